"""All problems of files, cases, backend and flags are reported together, each once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from plan_kit import build, cases_of, noted, problem_of, problems_of, write
from texts import says_exactly

from optest.api.run_request import run_request
from optest.errors import PlanError
from optest.plan import CaseRequest, open_plan, read_plan, request_from
from optest.spec import Tolerance


def refused(text: str, request: CaseRequest | None = None) -> list[tuple[int, str, str]]:
    return [(each.line, each.path, each.message) for each in problems_of(text, request)]


def places(text: str, request: CaseRequest | None = None) -> list[tuple[int, str]]:
    return [(line, path) for line, path, _ in refused(text, request)]


RIGHT = "  - {op: relu, shapes: {input0: 2}}\n"


def test_form_and_value_problems_in_file_order() -> None:
    text = """\
    backend: nmupy # $.backend
    seed: a # $.seed
    defaults: {tolerence: {rtol: 1}} # $.defaults.tolerence
    cases:
      - {op: matmul, dtypes: [float16, flot16], shapes: {input0: 2x3, input1: 3x4}} # $.cases[0].dtypes[1]
      - {op: reluu, shapes: {input0: 2}} # $.cases[1].op
      - 3 # $.cases[2]
      - {op: add, shapes: {input0: 2, input1: 3}} # $.cases[3].shapes
      - {op: relu, shapes: {input0: 2, out: 3}, name: no} # $.cases[4].name $.cases[4].shapes.out
      - {name: nameless, desciption: x} # $.cases[5].op $.cases[5].desciption
      - {op: add, dtypes: int8, shapes: {input0: 2, input1: 3}} # $.cases[6].dtypes $.cases[6].shapes
    """
    assert places(text) == noted(text)


def test_all_faults_of_one_case() -> None:
    text = """\
    cases:
      - op: add
        dtypes: {inp: f16, input0: f15, input1: f14} # .dtypes.input0 .dtypes.input1 .dtypes.inp
        shapes: {input0: [2, -1, x], input7: 2} # .shapes.input0[1] .shapes.input0[2] .shapes.input7
        attributes: {alfa: 1, alpha: 010} # .attributes.alpha .attributes.alfa
        generator: {input0: onse, input1: rand} # .generator.input0 .generator.input1
        tolerance: {rtol: a, btol: 3} # .tolerance.rtol .tolerance.btol
        reference: f # .reference
    """
    assert places(text) == [(line, f"$.cases[0]{path}") for line, path in noted(text)]


@pytest.mark.parametrize(
    "case",
    [
        "op: matmul, shapes: {input0: 2x3, input1: 3x}",  # no "needs a shape"
        "op: matmul, shape: {input0: 2x3}",  # what was meant is known
        "op: norm, shapes: {input0: 2}, attributes: {eps: 010}",  # no "needs the attribute"
        "op: sum, shapes: {input0: 2x3, out: 2}, attributes: {dim: 01}",  # the output follows from dim
        "op: add, shapes: {input0: 2}, dtypes: {input0: int8, out: flot}",  # the output's dtype is not known
        "op: unruled, shapes: {x: 2}, tolerance: 1e-3",  # no "a tolerance should be stated"
        "op: ranged, shapes: {x: 2, y: 2}, generator: {x: 3}",
    ],
)
def test_unreadable_values_cause_no_further_problems(case: str) -> None:
    found = refused(f"cases:\n{RIGHT}  - {{{case}}}\n")
    assert [line for line, _, _ in found] == [3], found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("defaults: {generator: 3}\ncases: [{PAIR, generator: {x: ones}}]", ["1 defaults.generator"]),
        ("defaults: {dtypes: flot16}\ncases:\n- {ADD, dtypes: int8}", ["1 defaults.dtypes", "3 cases[0].dtypes"]),
        ("defaults: {attributes: {alpha: 1}}\ncases: [3]", ["2 cases[0]"]),
        ("defaults: {attributes: {alpha: yep}}\ncases:\n- {ADD}\n- {ADD}\n", ["1 defaults.attributes.alpha"]),
        ("cases:\n- &a {op: relu, shapes: {input0: 2, out: 010}}\n- {<<: *a}\n- {<<: [*a]}", ["2 cases[0].shapes.out"]),
        (
            "cases:\n- &a {op: relu, shapes: {input0: 010}}\n- {<<: *a, shapes: {inptu: 2}}",
            ["2 cases[0].shapes.input0", "3 cases[1].shapes.inptu"],
        ),
        ("cases:\n- &a {ADD, dtypes: 010}\n- {<<: *a, dtypes: flot}", ["2 cases[0].dtypes", "3 cases[1].dtypes"]),
        (
            "defaults: {dtypes: flot16, tolerance: 3, attributes: {dim: 01}, backend_config: 3}\n"
            "cases: [{op: unruled, shapes: {x: 2}}, {op: sum, shapes: {input0: 2x3, out: 3}}]\n",
            [f"1 defaults.{key}" for key in ("attributes.dim", "backend_config", "dtypes", "tolerance")],
        ),
    ],
)
def test_shared_faults_cause_no_further_problems(text: str, expected: list[str]) -> None:
    text = text.replace("ADD", "op: add, shapes: {input0: 2}").replace("PAIR", "op: drawn_pair, shapes: {x: 2, y: 2}")
    assert sorted(f"{line} {path.removeprefix('$.')}" for line, path in places(text)) == expected


def test_an_unread_operator_makes_no_case_of_flags() -> None:
    assert places("cases: [{shapes: {input0: 2}}]", CaseRequest(ops=("relu",))) == [(1, "$.cases[0].op")]


def test_an_unknown_backend_is_not_asked_about_options() -> None:
    for stated in ("backend: asend", "backend: 3", "chip: 3"):
        text = f"{stated}\ncases: [{{op: relu, shapes: {{input0: 2}}}}]"
        assert problem_of(text, check_backend=lambda case: ["asked"]).path == f"$.{stated.split(':')[0]}"


def test_what_is_written_once_is_said_once() -> None:
    text = """\
    cases:
      - &base {op: relu, shapes: {input0: 010}, dtypes: flot, sed: 1} # [0].shapes.input0 [0].dtypes [0].sed
      - {<<: *base, name: a}
      - <<: *base
        name: b
      - {op: reluu, shapes: &shapes {inptu: 2}} # [3].op [4].shapes.inptu
      - {op: relu, shapes: *shapes}
      - {op: add, shapes: *shapes}
    """
    assert places(text) == [(line, f"$.cases{path}") for line, path in noted(text)]


def test_the_same_fault_of_many_cases_is_counted() -> None:
    entry = "  - {op: rel, shapes: {input0: 2}}\n"
    found = problems_of("cases:\n" + entry * 300 + entry.replace("rel", "addd"))
    assert [(each.line, each.path) for each in found] == [
        *((2 + index, f"$.cases[{index}].op") for index in range(3)),
        (5, "$.cases[*].op"),
        (302, "$.cases[300].op"),
    ]
    assert says_exactly(found[3].message, "plan.and_more_like_it")
    assert sum(each.count for each in found) == 301
    assert len(refused("cases:\n" + entry * 4)) == 4


def test_all_wrong_flags_at_once() -> None:
    stated = {"dtype": "f15", "shape": ["a", "b=2y"], "attr": ["k=[1"], "tolerance": "rtol=-1,btol=2", "seed": -1}
    with pytest.raises(PlanError) as raised:
        request_from(stated)
    flags = ("--seed", "--dtype f15", "--shape", "--shape b=2y", "--attr k=[1", *["--tolerance rtol=-1,btol=2"] * 2)
    assert [(each.file, each.path) for each in raised.value.problems] == [("command line", each) for each in flags]


# The document


def test_read_plan_refuses_what_open_plan_keeps(tmp_path: Path) -> None:
    path = write(tmp_path, "seed: a\ncases: [{op: relu, sed: 1}, 3, {op: add}]")
    with pytest.raises(PlanError) as raised:
        read_plan(path)
    document = open_plan(path)
    assert raised.value.problems == document.problems
    assert [each.path for each in document.problems] == ["$.seed", "$.cases[0].sed", "$.cases[1]"]
    assert [entry.get("op") for entry in document.cases] == ["relu", None, "add"]
    assert "seed" not in document.options()
    assert ("seed" in document.unread(()), "sed" in document.unread(("cases", 0))) == (True, True)
    assert not document.unread(("cases", 2))
    assert document.where(("cases", 2)) == f"{path}:2"


def test_names_of_plans_have_no_detours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "cases: [{op: relu, shapes: {input0: 2}}]")
    (tmp_path / "other" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    document = read_plan("other/../plan.yaml")
    assert document.path == "plan.yaml"
    assert build(document)[0].where == "plan.yaml:1"
    assert document.folder() == str(tmp_path)
    assert read_plan("./plan.yaml").path == "plan.yaml"
    os.symlink(tmp_path / "other" / "inner", tmp_path / "link")
    write(tmp_path / "other", "cases: []")
    assert read_plan("link/../plan.yaml").path == "link/../plan.yaml"  # that is other/plan.yaml


# Floating outputs that nothing judges


def test_float_output_without_rule_needs_tolerance() -> None:
    text = "cases:\n  - {op: unruled, shapes: {x: 2}, dtypes: f16}\n"
    problem = problem_of(text)
    assert (problem.line, problem.path) == (2, "$.cases[0].tolerance")
    assert says_exactly(problem.message, "plan.output_of_unruled_is")
    assert says_exactly(problem.hint, "plan.tolerance_rtol_atol_here")
    assert problems_of(None, CaseRequest(ops=("unruled",), shapes={"x": (2,)}))[0].path == "--tolerance"


@pytest.mark.parametrize(
    "case",
    ["tolerance: {rtol: 0}", "skip: later", "expects_error: {}", "dtypes: int32", "shapes: {x: 0}"],
)
def test_who_needs_no_tolerance(case: str) -> None:
    shapes = "" if case.startswith("shapes") else "shapes: {x: 2}, "
    assert len(cases_of(f"cases: [{{op: unruled, {shapes}{case}}}]")) == 1


def test_a_tolerance_of_another_layer_will_do() -> None:
    text = "cases: [{op: unruled, shapes: {x: 2}}]"
    assert len(cases_of(text, CaseRequest(tolerance=Tolerance(rtol=1)))) == 1
    assert len(cases_of(f"defaults: {{tolerance: {{atol: 0}}}}\n{text}")) == 1
    with pytest.raises(PlanError):
        cases_of("cases: [{op: unruled, shapes: {x: 2}, xfail: known}]")


# As a command asks


def test_a_command_says_everything_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "backend: tirch\nseed: a\ncases: [{op: reluu}, {op: relu, shapes: {input0: 2, out: 3}}]")
    with pytest.raises(PlanError) as raised:
        run_request({"plan": str(path)})
    assert [(each.line, each.path) for each in raised.value.problems] == [
        (1, "$.backend"),
        (2, "$.seed"),
        (3, "$.cases[0].op"),
        (3, "$.cases[1].shapes.out"),
    ]
    with pytest.raises(PlanError) as raised:
        run_request({"op": ("relu",), "shape": ("input0=2",), "backend": "zz"})
    lines = str(raised.value).split("\n")
    assert says_exactly(lines[0], "plan.command_line_backend_unknown")
    assert lines[1].startswith("    known: ")
    assert "ascend, " in lines[1]
    assert says_exactly(lines[2], "plan.is_it_your_own")

"""All problems of files, cases, backend and flags are reported together, each once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from plan_kit import build, cases_of, plan, write
from texts import says_exactly

from optest.api.run_request import run_request
from optest.errors import PlanError
from optest.plan import CaseRequest, open_plan, read_plan, request_from
from optest.spec import Tolerance


def refused(text: str, request: CaseRequest | None = None) -> list[tuple[int, str, str]]:
    with pytest.raises(PlanError) as raised:
        cases_of(text, request)
    return [(each.line, each.path, each.message) for each in raised.value.problems]


def places(text: str, request: CaseRequest | None = None) -> list[tuple[int, str]]:
    return [(line, path) for line, path, _ in refused(text, request)]


RIGHT = "  - {op: relu, shapes: {input0: 2}}\n"


def test_form_and_value_problems_in_file_order() -> None:
    text = """\
    backend: nmupy
    seed: a
    defaults: {tolerence: {rtol: 1}}
    cases:
      - {op: matmul, dtypes: [float16, flot16], shapes: {input0: 2x3, input1: 3x4}}
      - {op: reluu, shapes: {input0: 2}}
      - 3
      - {op: add, shapes: {input0: 2, input1: 3}}
      - {op: relu, shapes: {input0: 2, out: 3}, name: no}
      - {name: nameless, desciption: x}
      - {op: add, dtypes: int8, shapes: {input0: 2, input1: 3}}
    """
    assert places(text) == [
        (1, "$.backend"),
        (2, "$.seed"),
        (3, "$.defaults.tolerence"),
        (5, "$.cases[0].dtypes[1]"),
        (6, "$.cases[1].op"),
        (7, "$.cases[2]"),
        (8, "$.cases[3].shapes"),
        (9, "$.cases[4].name"),
        (9, "$.cases[4].shapes.out"),
        (10, "$.cases[5].op"),
        (10, "$.cases[5].desciption"),
        (11, "$.cases[6].dtypes"),
        (11, "$.cases[6].shapes"),
    ]


def test_all_faults_of_one_case() -> None:
    text = """\
    cases:
      - op: add
        dtypes: {inp: f16, input0: f15, input1: f14}
        shapes: {input0: [2, -1, x], input7: 2}
        attributes: {alfa: 1, alpha: 010}
        generator: {input0: onse, input1: rand}
        tolerance: {rtol: a, btol: 3}
        reference: f
    """
    assert places(text) == [
        (3, "$.cases[0].dtypes.input0"),
        (3, "$.cases[0].dtypes.input1"),
        (3, "$.cases[0].dtypes.inp"),
        (4, "$.cases[0].shapes.input0[1]"),
        (4, "$.cases[0].shapes.input0[2]"),
        (4, "$.cases[0].shapes.input7"),
        (5, "$.cases[0].attributes.alpha"),
        (5, "$.cases[0].attributes.alfa"),
        (6, "$.cases[0].generator.input0"),
        (6, "$.cases[0].generator.input1"),
        (7, "$.cases[0].tolerance.rtol"),
        (7, "$.cases[0].tolerance.btol"),
        (8, "$.cases[0].reference"),
    ]


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


def test_unreadable_defaults_cause_no_further_problems() -> None:
    text = "defaults: {dtypes: flot16, tolerance: 3, attributes: {dim: 01}, backend_config: 3}\ncases:\n"
    text += "  - {op: unruled, shapes: {x: 2}}\n  - {op: sum, shapes: {input0: 2x3, out: 3}}\n"
    keys = ("dtypes", "tolerance", "attributes.dim", "backend_config")
    assert sorted(places(text)) == sorted((1, f"$.defaults.{key}") for key in keys)
    fills = "defaults: {generator: 3}\ncases: [{op: drawn_pair, shapes: {x: 2, y: 2}, generator: {x: ones}}]"
    assert places(fills) == [(1, "$.defaults.generator")]
    own = "defaults: {dtypes: flot16}\ncases:\n  - {op: add, shapes: {input0: 2}, dtypes: int8}\n"
    assert places(own) == [(1, "$.defaults.dtypes"), (3, "$.cases[0].dtypes")]


def test_an_unread_operator_makes_no_case_of_flags() -> None:
    assert places("cases: [{shapes: {input0: 2}}]", CaseRequest(ops=("relu",))) == [(1, "$.cases[0].op")]
    assert places("cases: [3]\ndefaults: {attributes: {alpha: 1}}") == [(1, "$.cases[0]")]


def test_an_unknown_backend_is_not_asked_about_options() -> None:
    for stated in ("backend: asend", "backend: 3", "chip: 3"):
        with pytest.raises(PlanError) as raised:
            build(plan(f"{stated}\ncases: [{{op: relu, shapes: {{input0: 2}}}}]"), check_backend=lambda case: ["asked"])
        assert [each.path for each in raised.value.problems] == [f"$.{stated.split(':')[0]}"]


def test_what_is_written_once_is_said_once() -> None:
    text = """\
    cases:
      - &base {op: relu, shapes: {input0: 010}, dtypes: flot, sed: 1}
      - {<<: *base, name: a}
      - <<: *base
        name: b
      - {op: reluu, shapes: &shapes {inptu: 2}}
      - {op: relu, shapes: *shapes}
      - {op: add, shapes: *shapes}
    """
    assert places(text) == [
        (2, "$.cases[0].shapes.input0"),
        (2, "$.cases[0].dtypes"),
        (2, "$.cases[0].sed"),
        (6, "$.cases[3].op"),
        (6, "$.cases[4].shapes.inptu"),
    ]


def test_case_over_wrong_base_is_checked() -> None:
    text = "cases:\n  - &base {op: relu, shapes: {input0: 010}}\n  - {<<: *base, shapes: {inptu: 2}}\n"
    assert places(text) == [(2, "$.cases[0].shapes.input0"), (3, "$.cases[1].shapes.inptu")]
    text = "cases:\n  - &base {op: relu, shapes: {input0: 2}, dtypes: 010}\n  - {<<: *base, dtypes: flot}\n"
    assert places(text) == [(2, "$.cases[0].dtypes"), (3, "$.cases[1].dtypes")]


def test_unreadable_merges_cause_no_further_problems() -> None:
    text = "cases:\n  - &base {op: relu, shapes: {input0: 2, out: 010}}\n  - {<<: *base}\n  - {<<: [*base]}\n"
    assert places(text) == [(2, "$.cases[0].shapes.out")]


def test_the_same_fault_of_many_cases_is_counted() -> None:
    with pytest.raises(PlanError) as raised:
        cases_of("cases:\n" + "  - {op: rel, shapes: {input0: 2}}\n" * 300 + "  - {op: addd, shapes: {input0: 2}}\n")
    found = raised.value.problems
    assert [(each.line, each.path) for each in found] == [
        *((2 + index, f"$.cases[{index}].op") for index in range(3)),
        (5, "$.cases[*].op"),
        (302, "$.cases[300].op"),
    ]
    assert says_exactly(found[3].message, "plan.and_more_like_it")
    assert sum(each.count for each in found) == 301
    assert len(refused("cases:\n" + "  - {op: rel, shapes: {input0: 2}}\n" * 4)) == 4


def test_wrong_default_attribute_is_reported_once() -> None:
    text = "defaults: {attributes: {alpha: yep}}\ncases:\n" + "  - {op: add, shapes: {input0: 2}}\n" * 2
    assert places(text) == [(1, "$.defaults.attributes.alpha")]


def test_all_wrong_flags_at_once() -> None:
    stated = {"dtype": "f15", "shape": ["a", "b=2y"], "attr": ["k=[1"], "tolerance": "rtol=-1,btol=2", "seed": -1}
    with pytest.raises(PlanError) as raised:
        request_from(stated)
    assert [(each.file, each.path) for each in raised.value.problems] == [
        ("command line", "--seed"),
        ("command line", "--dtype f15"),
        ("command line", "--shape"),
        ("command line", "--shape b=2y"),
        ("command line", "--attr k=[1"),
        ("command line", "--tolerance rtol=-1,btol=2"),
        ("command line", "--tolerance rtol=-1,btol=2"),
    ]


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
    assert "seed" in document.unread(())
    assert "sed" in document.unread(("cases", 0))
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
    with pytest.raises(PlanError) as raised:
        cases_of(text)
    (problem,) = raised.value.problems
    assert (problem.line, problem.path) == (2, "$.cases[0].tolerance")
    assert says_exactly(problem.message, "plan.output_of_unruled_is")
    assert says_exactly(problem.hint, "plan.tolerance_rtol_atol_here")
    with pytest.raises(PlanError) as raised:
        build(None, CaseRequest(ops=("unruled",), shapes={"x": (2,)}))
    assert raised.value.problems[0].path == "--tolerance"


@pytest.mark.parametrize(
    "case",
    [
        "shapes: {x: 2}, tolerance: {rtol: 0}",
        "shapes: {x: 2}, skip: later",
        "shapes: {x: 2}, expects_error: {}",
        "shapes: {x: 2}, dtypes: int32",
        "shapes: {x: 0}",
    ],
)
def test_who_needs_no_tolerance(case: str) -> None:
    assert len(cases_of(f"cases: [{{op: unruled, {case}}}]")) == 1


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

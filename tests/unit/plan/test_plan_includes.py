"""Plans that include plans: each keeps its defaults, and the problems of all are reported together."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from plan_kit import build, problems_of
from texts import says, says_exactly

from optest.errors import PlanError
from optest.plan import CaseRequest, explain_case, open_plan, parse_plan, read_plan
from optest.spec import Layer, TestCase

INNER = """\
    seed: 5
    defaults: {dtypes: float16, tags: [inner], tolerance: {rtol: 1e-2}}
    cases: [{op: relu, shapes: {input0: 8}, name: first}]
    """


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder / f"{next(iter(texts))}.yaml"


def cases_in(path: Path, request: CaseRequest | None = None) -> list[TestCase]:
    return build(open_plan(path), request)


def told(path: Path, request: CaseRequest | None = None) -> list[tuple[str, int, str, str]]:
    return [
        (Path(each.file).name, each.line, each.path, each.message.replace(f"{path.parent}/", ""))
        for each in problems_of(open_plan(path), request)
    ]


def test_included_cases_run_first_with_their_defaults(tmp_path: Path) -> None:
    outer = "seed: 1\ndefaults: {dtypes: float64, tags: [outer]}\ncases: [{op: relu, shapes: {input0: 4}}]"
    path = write(tmp_path, main=f"include: [sub/a.yaml]\n{outer}", sub__a=INNER)
    first, second = cases_in(path)
    assert (first.id, first.seed, first.tags, first.dtypes[0].name) == ("first", 5, ("inner",), "float16")
    assert (second.seed, second.tags, second.dtypes[0].name) == (1, ("outer",), "float64")
    assert ([layer.layer for layer in first.tolerances], second.tolerances) == ([Layer.PLAN], ())
    inner = f"{tmp_path}/sub/a.yaml"
    assert (first.base_dir, first.where) == (str(tmp_path / "sub"), f"{inner}:3")
    origins = {what: origin for what, _, origin in explain_case(first)}
    assert (origins["seed"], origins["input0.dtype"]) == (f"{inner}:1", f"{inner}:2 defaults")


def test_included_plan_builds_its_usual_cases(tmp_path: Path) -> None:
    path = write(tmp_path, main="{include: a.yaml, seed: 9, defaults: {seed: 8}}", a=INNER)
    alone, included = (
        [(case.id, case.key, case.tolerances) for case in cases_in(each)] for each in (tmp_path / "a.yaml", path)
    )
    assert included == alone


def test_flags_reach_included_cases(tmp_path: Path) -> None:
    path = write(tmp_path, main="include: a.yaml", a=INNER)
    (case,) = cases_in(path, CaseRequest(seed=7, ops=("relu",)))
    assert case.seed == 7
    only_flags = cases_in(path, CaseRequest(ops=("add",), shapes={"input0": (2,)}))
    assert [each.id for each in only_flags] == ["add[float32](2, 2)"]


def test_includes_are_relative_to_their_file(tmp_path: Path) -> None:
    case = "cases: [{op: relu, shapes: {input0: %d}}]"
    path = write(
        tmp_path,
        main="include: [sub/a.yaml, b.yaml]",
        sub__a="include: [c.yaml, ../d.yaml]\n" + case % 1,
        **{name: case % size for name, size in (("sub__c", 2), ("d", 3), ("b", 4))},
    )
    assert [case.inputs[0].spec.shape for case in cases_in(path)] == [(2,), (3,), (1,), (4,)]
    names = [Path(each.path).name for each in read_plan(path).family()]
    assert names == ["c.yaml", "d.yaml", "a.yaml", "b.yaml", "main.yaml"]


def test_products_in_included_plans(tmp_path: Path) -> None:
    product = "cases:\n- op: relu\n  product: {m: [1, 2], seed: [3]}\n  shapes: {input0: [$m]}\n"
    cases = cases_in(write(tmp_path, main="include: a.yaml", a=product))
    assert [case.id for case in cases] == ["relu[float32](1) {seed=3}", "relu[float32](2) {seed=3}"]
    assert cases[0].origins["seed"] == f"{tmp_path}/a.yaml:3 product"


@pytest.mark.parametrize(
    ("texts", "place", "message"),
    [
        (
            {"main": "include: a.yaml", "a": "include:\n- b.yaml", "b": "cases: []\ninclude: main.yaml"},
            *(("b.yaml", 2), "main.yaml includes itself: main.yaml -> a.yaml -> b.yaml -> main.yaml"),
        ),
        ({"main": "include: main.yaml"}, ("main.yaml", 1), "main.yaml includes itself: main.yaml -> main.yaml"),
        ({"main": "include: link.yaml"}, ("main.yaml", 1), "link.yaml includes itself: main.yaml -> main.yaml"),
        (
            {"main": "include:\n- a.yaml\n- b.yaml", "a": INNER, "b": "include: a.yaml"},
            *(("b.yaml", 1), "a.yaml is included twice, first at main.yaml:2"),
        ),
    ],
    ids=["cycle", "itself", "a link to itself", "twice"],
)
def test_plan_is_included_once(tmp_path: Path, texts: dict[str, str], place: tuple[str, int], message: str) -> None:
    (tmp_path / "link.yaml").symlink_to("main.yaml")
    assert told(write(tmp_path, **texts)) == [(*place, "$.include", message)]


def test_problems_of_all_files_in_order(tmp_path: Path) -> None:
    cases = "cases: [{op: reluu}, {op: relu, shapes: {input0: 4}, name: first}]"
    main = f"include: [a.yaml, none.yaml, broken.yaml]\n{cases}"
    path = write(tmp_path, main=main, a=INNER + "nonsense: 1\n", broken="cases: [")
    assert [each[:3] for each in told(path)] == [
        ("broken.yaml", 2, ""),
        ("a.yaml", 4, "$.nonsense"),
        ("main.yaml", 1, "$.include[1]"),
        ("main.yaml", 2, "$.cases[0].op"),
        ("main.yaml", 2, "$.cases[1].name"),
    ]
    messages = [each[3] for each in told(path)]
    assert says_exactly(messages[2], "plan.none_yaml_cannot_be")
    assert says_exactly(messages[4], "plan.the_name_first_is")
    with pytest.raises(PlanError) as raised:
        read_plan(path)
    assert len(raised.value.problems) == 3


@pytest.mark.parametrize(
    ("include", "path", "message"),
    [
        ("[]", "$.include", "include is [], expected a file or a list of files"),
        ("3", "$.include", "include is 3, expected a file or a list of files"),
        ("[a.yaml, 3]", "$.include[1]", "item 1 of include is 3, expected the name of a file"),
    ],
)
def test_wrong_forms(tmp_path: Path, include: str, path: str, message: str) -> None:
    (found,) = parse_plan(f"include: {include}\n".encode(), str(tmp_path / "p.yaml")).problems
    assert (found.line, found.path, found.message) == (1, path, message)


# What an untrusted plan may open


@pytest.mark.parametrize("outside", ["../secret.yaml", "{folder}/secret.yaml", "link.yaml", "sub/../../secret.yaml"])
def test_untrusted_plans_include_only_below_their_folder(tmp_path: Path, outside: str) -> None:
    (tmp_path / "secret.yaml").write_text("password: hunter2\n")
    path = write(tmp_path / "own", main=f"include: [{outside.format(folder=tmp_path)}]", sub__x="cases: []")
    (tmp_path / "own" / "link.yaml").symlink_to("../secret.yaml")
    (found,) = open_plan(path, untrusted=True).problems
    assert "--untrusted refuses" in found.message
    assert "hunter2" not in str(found)
    assert any("password" in each.path for each in open_plan(path).problems)


def test_untrusted_include_with_too_long_name(tmp_path: Path) -> None:
    path = write(tmp_path, main=f"include: [{'n' * 300}.yaml]")
    (found,) = open_plan(path, untrusted=True).problems
    assert says(found.message, "plan.file_name_too_long")


def test_untrusted_plans_include_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, main="include: sub/a.yaml", sub__a="include: ../b.yaml", b=INNER)
    document = open_plan(path, untrusted=True)
    assert [case.id for case in build(document)] == ["first"]


def test_untrusted_code_in_an_included_plan(tmp_path: Path) -> None:
    path = write(tmp_path, main="include: a.yaml", a="cases: [{op: relu, shapes: {input0: 4}, generator: my.gen:Gen}]")
    message = "--untrusted refuses to run code that the plan names: my.gen:Gen"
    assert told(path, CaseRequest(untrusted=True)) == [("a.yaml", 1, "$.cases[0].generator", message)]


# One backend for all


def test_a_run_asks_one_backend(tmp_path: Path) -> None:
    path = write(tmp_path, main="include: a.yaml", a="backend: torch\nchip: x\n" + textwrap.dedent(INNER))
    assert [each[:3] for each in told(path)] == [("a.yaml", 1, "$.backend"), ("a.yaml", 2, "$.chip")]
    assert says_exactly(told(path)[0][3], "plan.backend_is_torch_but")


def test_included_plan_may_name_the_same_backend(tmp_path: Path) -> None:
    path = write(tmp_path, main="backend: torch\ninclude: a.yaml", a="backend: torch\n" + textwrap.dedent(INNER))
    assert [case.backend.name for case in cases_in(path)] == ["torch"]
    other = write(tmp_path, other="include: b.yaml", b="backend: torch\n" + textwrap.dedent(INNER))
    assert [case.backend.name for case in cases_in(other, CaseRequest(backend="torch"))] == ["torch"]


def test_defaults_that_no_operator_of_any_plan_takes(tmp_path: Path) -> None:
    main, other = (
        f"cases: [{{op: {op}, shapes: {{input0: 4}}}}]\ndefaults: {{attributes: {{{name}: 2}}}}\n"
        for op, name in (("relu", "alpha"), ("add", "alhpa"))
    )
    message = "unknown attribute of any operator in the plan 'alhpa'"
    path = write(tmp_path, main=main + "include: a.yaml", a=other)
    assert told(path) == [("a.yaml", 2, "$.defaults.attributes.alhpa", message)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cases: [{RELU, generator: {fill: file, path: ../x.npy}}]", "$.cases[0].generator"),
        ("cases: [{RELU, generator: {input0: {fill: file, path: l.npy}}}]", "$.cases[0]"),
        ("{base_dir: .., defaults: {generator: 'file(path=x.npy)'}, cases: [{RELU}]}", "$.defaults.generator"),
        ("cases: [{RELU, product: {f: [x, l]}, generator: {fill: file, path: $f.npy}}]", "$.cases[0].generator"),
        ("{report: {format: json, path: ../r.json}, cases: [{RELU}]}", "$.report.path"),
        ("{report: {format: json, path: l.npy}, cases: [{RELU}]}", "$.report.path"),
    ],
)
def test_untrusted_plan_is_limited_to_its_folder(tmp_path: Path, text: str, place: str) -> None:
    path = write(tmp_path / "own", main=text.replace("RELU", "op: relu, shapes: {input0: 4}"))
    (tmp_path / "own" / "l.npy").symlink_to("../x.npy")
    assert cases_in(path)
    ((_, _, found, message),) = told(path, CaseRequest(untrusted=True))
    assert found.startswith(place)
    assert says(message, "plan.is_not_below_the")


def test_untrusted_plans_read_and_write_below_their_folder(tmp_path: Path) -> None:
    main = "{include: sub/a.yaml, report: {format: json, path: out/r.json}, cases: []}"
    own = "cases: [{op: relu, shapes: {input0: 4}, generator: {fill: file, path: ../x.npy}}]"
    assert cases_in(write(tmp_path, main=main, sub__a=own), CaseRequest(untrusted=True))


# What no file is


@pytest.mark.parametrize("name", ["fifo", "folder", "/dev/zero", "large.yaml", "n" * 300 + ".yaml", "a\\0b.yaml"])
def test_only_regular_files_of_some_size_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large.yaml").open("wb") as large:
        large.truncate(2**40)
    document = open_plan(write(tmp_path, main=f'include: "{name}"'))
    assert [problem.line for problem in document.problems] == [1]
    if "\\" not in name:
        with pytest.raises(PlanError):
            open_plan(tmp_path / name)


def test_too_long_include_chain_is_reported(tmp_path: Path) -> None:
    for number in range(1500):
        (tmp_path / f"{number}.yaml").write_text(f"include: {number + 1}.yaml")
    (problem,) = open_plan(tmp_path / "0.yaml").problems
    assert problem.line == 1
    assert "chain" in problem.message

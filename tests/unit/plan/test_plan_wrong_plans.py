"""Usual mistakes in plans: each message has the position, the value, and a correction."""

from __future__ import annotations

import pytest
from plan_kit import build, plan
from texts import says, says_exactly

from optest.errors import PlanError


def said(text: str) -> str:
    with pytest.raises(PlanError) as raised:
        build(plan(text))
    return str(raised.value)


def test_wrong_indentation() -> None:
    assert says_exactly(said("cases:\n  - op: matmul\n   shapes: {}\n"), "plan.plan_yaml_this_is")
    message = "plan.yaml:3: this is not YAML: a ':' is in a position without a key: correct the indentation"
    assert said("cases:\n  - op: matmul\n      shapes: {}\n").startswith(message)


def test_a_key_of_a_case_at_the_margin() -> None:
    found = said("cases:\n- op: relu\ntags: [a]\nshapes: {input0: 2}\n")
    assert says(found, "plan.plan_yaml_tags_unknown")
    assert says(found, "plan.below_op_or_write")
    assert found.endswith("$.shapes: unknown key 'shapes' of the plan\n"
                          "    it is a key of a case: indent it as far as op, below '- op:'")  # fmt: skip


def test_tensors_beside_shapes() -> None:
    assert says_exactly(said("cases:\n  - op: relu\n    shapes:\n    input0: 2\n"), "plan.plan_yaml_cases_shapes")


@pytest.mark.parametrize("text", ["cases:\n  - op: relu\n\tname: a\n", "cases:\n  - op: relu\n    x:\n\t- a\n"])
def test_tabs(text: str) -> None:
    assert says(said(text), "plan.this_is_not_yaml")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ('"64,128"', "shapes is '64,128', expected a mapping\n    shapes: {input0: [64,128]}"),
        ("64x128", "shapes is '64x128', expected a mapping\n    shapes: {input0: 64x128}"),
        ("[4x5, 5x3]", ", expected a mapping\n    shapes: {input0: 4x5, input1: 5x3}"),
        ("[[4, 5], [5, 3]]", ", expected a mapping\n    shapes: {input0: [4, 5], input1: [5, 3]}"),
        ("[4, 5]", "shapes is [4, 5], expected a mapping\n    shapes: {input0: [4, 5]}"),
        ("{input0: 64*128}", "tensor without dimensions\n    if it is a list of sizes, write [64, 128]"),
        ("{input0: '(64'}", "shape is '(64', expected sizes such as 2x3x4"),
        ("{input0: 64,128}", "128 has no value, expected a key with a value\n    write sizes in brackets"),
        ("{input0:4x5}", "    a space is missing: write input0: 4x5"),
        ("{input0: [$m, 5], input1: 5x3}", "    $NAME refers to an axis of `product`, which the case does not have"),
        ("{input0: '${m}x5', input1: 5x3}", "    $NAME refers to an axis of `product`, which the case does not have"),
    ],
)
def test_shapes(shapes: str, message: str) -> None:
    found = said(f"cases:\n  - {{op: matmul, shapes: {shapes}}}\n")
    assert found.startswith("plan.yaml:2 $.cases[0].shapes")
    assert message in found
    assert "needs a shape" not in found


def test_shapes_in_balanced_brackets_are_read() -> None:
    document = plan('cases: [{op: relu, shapes: {a: "64,128", b: "(2, 3)", c: "[4]", d: "(5,)", e: "128 x 32"}}]')
    assert [each.shape for each in document.cases[0]["shapes"].values()] == [(64, 128), (2, 3), (4,), (5,), (128, 32)]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("dtypes: {intput0: f16}", "$.cases[0].dtypes.intput0: unknown tensor 'intput0'\n    did you mean input0?"),
        ("op: reluu", "$.cases[0].op: unknown operator 'reluu'\n    did you mean relu? known: add, cat, "),
        ("dtype: f16", "unknown key 'dtype' of a case\n    did you mean dtypes?"),
        ("type: f16", "unknown key 'type' of a case\n    did you mean dtypes?"),
        ("tolerance: 1e-3", "tolerance is 0.001, expected a mapping such as {rtol: 1e-3, atol: 1e-5}"),
        ("rtol: 1e-3", "unknown key 'rtol' of a case\n    write tolerance: {rtol: ...}"),
        ('tolerance: {rtol: "1e-3"}', "rtol is '1e-3', expected a number of 0 or more\n    write it without quo"),
        ("attributes: [alpha, 2]", ", expected a mapping\n    attributes: {alpha: 2}"),
        ("name: 10", 'name is 10, expected text\n    write "10" in quotes if it is text'),
        ("tags: slow", "tags is 'slow', expected a list\n    tags: [slow]"),
        ("backend: numpy", "it is a key of the plan: write backend: at the left margin, outside of cases"),
        (
            "backend_config: {command: [a]}",
            "    indent options below the name of their backend: backend_config: {ascend: {command: ...}}",
        ),
        ("config: {}", "unknown key 'config' of a case\n    did you mean backend_config?"),
        ("shapes.x: {}", "unknown key 'shapes.x' of a case\n    did you mean shapes?"),
        ("inputs: []", "unknown key 'inputs' of a case\n    it is a key of model cases: write model: NAME above cases"),
    ],
)
def test_keys_of_a_case(case: str, message: str) -> None:
    op = "" if case.startswith("op:") else "op: relu, "
    assert message in said(f"cases:\n  - {{{op}shapes: {{input0: 2}}, {case}}}\n")


def test_values_that_do_not_fit_the_case() -> None:
    options = "{op: relu, shapes: {input0: 2}, backend_config: {torch: {command: [a]}}}"
    assert says_exactly(said(f"backend: ascend\ncases:\n  - {options}\n"), "plan.plan_yaml_cases_command")
    output = "{op: matmul, shapes: {input0: 2x3, input1: 3x4, output0: 3x4}}"
    assert says_exactly(said(f"cases:\n  - {output}\n"), "plan.plan_yaml_cases_shapes_output")
    name = "{op: relu, product: {m: [1]}, name: $m, shapes: {input0: $m}}"
    assert says(said(f"cases:\n  - {name}\n"), "plan.name_is_but_should")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: [dtypes]\ncases: []", "$.defaults: defaults is ['dtypes'], expected a mapping\n    defaults: {"),
        ("cases: [relu]", "$.cases[0]: case 0 is 'relu', expected a mapping\n    - {op: relu, shapes: {input0: 2x"),
        ("cases: {relu: 3}", ", expected a list\n    each case begins with '- op:', indented below cases:"),
        ("- op: relu", "the top of the file is a list, expected a mapping with the key cases\n    write cases: abo"),
        ("cases:\n", "$.cases: cases is null, expected a list\n    cases: [{op: relu, shapes: {input0: 2x3}}]"),
        ("tests: []\n", "plan.yaml:1 $.tests: unknown key 'tests' of the plan\n    did you mean cases?"),
        ("seed: 1\n", "plan.yaml:1 $.cases: the key cases is missing\n    cases: [{op: relu"),
        ("cases: [{operator: relu}]", "$.cases[0].operator: unknown key 'operator' of a case\n    did you mean op?"),
        ("cases: [{name: relu}]", "$.cases[0].op: the key op is missing\n    every case names its operator: op: relu"),
        ("cases:\n  - op:relu\n    name: a", "a ':' needs a space after it; write 'op: relu', not"),
        ("cases:\n  - {op: relu\n  - {op: add}\n", "a bracket that is opened in line 2 is not closed, or a comma is"),
        ("cases:\n  - {op: relu, name: a: b}\n", "plan.yaml:2: this is not YAML: a ':' is in a position without"),
    ],
)
def test_the_rest(text: str, message: str) -> None:
    found = said(text)
    assert message in found
    assert sum(not line.startswith("    ") for line in found.split("\n")) == 1, found


@pytest.mark.parametrize(
    ("stated", "instead"),
    [
        ("inputs: [{tensor: {shape: [2]}}]", "shapes: {input0: [2, 3]} and dtypes: {input0: float32}"),
        ("shapes: {input0: 2}, kwmap: {dim: 1}", "attributes: {dim: 1}"),
    ],
)
def test_keys_of_model_cases_in_a_plan(stated: str, instead: str) -> None:
    assert said(f"cases:\n  - {{op: sum, {stated}}}\n").endswith(
        "    it is a key of model cases: write model: NAME above cases, if this is a file of them; "
        f"in a plan write {instead}"
    )
    keys = instead.replace(" and ", ", ") if "shapes" in instead else f"shapes: {{input0: [2, 3]}}, {instead}"
    assert len(build(plan(f"cases:\n  - {{op: sum, {keys}}}\n"))) == 1

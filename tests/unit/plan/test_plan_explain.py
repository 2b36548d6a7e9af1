"""Every value of a case has an origin."""

from __future__ import annotations

import pytest
from plan_kit import build, case_of, cases_of, noted

from optest.plan import CaseRequest, explain_case
from optest.spec import Tolerance


def rows(text: str, request: CaseRequest | None = None) -> dict[str, tuple[str, str]]:
    return {what: (value, origin) for what, value, origin in explain_case(cases_of(text, request)[0])}


def origins_in(text: str) -> dict[str, tuple[str, str]]:
    """The values in the comments of a plan, each with its line."""
    values = [(line, *word.split("=", 1)) for line, word in noted(text)]
    return {what: (value.replace("~", " "), f"plan.yaml:{line}") for line, what, value in values}


FULL = """\
backend: ascend # backend=ascend
seed: 4 # seed=4
defaults:
  tolerance: {rtol: 1e-2}
  tags: [t]
  timeout: 5
cases:
  - op: add # op=add
    name: named # id=named
    dtypes: f16 # input0.dtype=float16
    shapes: {input0: {shape: [2, 3], strides: [1, 2]}, input1: 2x3} # input0.shape=[2,~3] input0.strides=[1,~2]
    attributes: {alpha: 2} # alpha=2.0
    generator: {other: ones} # input1.fill=ones
    tolerance: {atol: 1}
    backend_config: {ascend: {workdir: w}} # backend_config.ascend.workdir='w'
    xfail: {reason: bug, status: error} # xfail=error:~bug
    reference: a.b:c # reference=a.b:c
"""


def test_origins() -> None:
    found = rows(FULL, CaseRequest(tolerance=Tolerance(rtol=0.5), retries=2))
    expected = {
        **origins_in(FULL),
        "input1.name": ("other", "operator"),
        "output0": ("float16[2x3]", "operator"),
        "timeout": ("5 s", "plan.yaml:6 defaults"),
        "retries": ("2", "command line"),
        "tags": ("t, pointwise", "plan.yaml:5 defaults"),
    }
    assert {what: found[what] for what in expected} == expected


def test_tolerances_are_shown_with_the_winner_first() -> None:
    case = cases_of(FULL, CaseRequest(tolerance=Tolerance(rtol=0.5)))[0]
    assert [row[1:] for row in explain_case(case) if row[0] == "tolerance"] == [
        ("rtol=0.5", "--tolerance (command line)"),
        ("atol=1", "plan.yaml:14 (case)"),
        ("rtol=0.01", "plan.yaml:4 (plan default)"),
    ]


def test_defaults_of_operator_and_optest() -> None:
    found = rows("cases: [{op: add, shapes: {input0: 2}}]")
    assert found["input0.dtype"] == ("float32", "operator")
    assert found["input0.fill"] == ("randn", "default")
    assert found["alpha"] == ("1.0", "operator")
    assert found["seed"] == ("0", "default")
    assert found["backend"] == ("numpy", "default")
    assert found["id"] == ("add[float32](2, 2)", "built from the case")


def test_shapes_that_spread_and_single_flags_say_so() -> None:
    text = "cases:\n  - op: add\n    shapes: {input0: 2x3}\n    attributes: {alpha: 3}\n"
    found = rows(text)
    assert found["input0.shape"] == found["input1.shape"] == ("[2, 3]", "plan.yaml:3")
    flags = CaseRequest(shapes={"input0": (4,), "input1": (4,)})
    assert rows(text, flags)["input0.shape"] == ("[4]", "command line")
    assert rows(text, flags)["alpha"] == ("3.0", "plan.yaml:4")


def test_flag_is_origin_of_its_value_only() -> None:
    text = "cases:\n  - op: matmul\n    shapes: {input0: 2x3, input1: 3x4}\n    attributes: {mode: x}\n"
    found = rows(text, CaseRequest(shapes={"input0": (5, 3)}, attributes={"trans_a": False}))
    assert found["input0.shape"] == ("[5, 3]", "command line")
    assert found["input1.shape"] == ("[3, 4]", "plan.yaml:3")
    assert found["mode"] == ("'x'", "plan.yaml:4")
    assert found["trans_a"] == ("false", "command line")


def test_origins_of_merged_attributes_and_options() -> None:
    text = """\
    defaults:
      attributes: {transA: false, mode: y} # trans_a=false
      backend_config: {ascend: {a: 1, b: 1, c: 1}} # backend_config.ascend.a=1
    cases:
      - op: matmul
        shapes: {input0: 2x3, input1: 3x4}
        attributes: {mode: x} # mode='x'
        backend_config: {ascend: {b: 2}} # backend_config.ascend.b=2
    """
    found = rows(text, CaseRequest(attributes={"backend_config.ascend.c": 3}))
    for what, (value, line) in origins_in(text).items():
        assert found[what] == (value, f"{line} defaults" if line in ("plan.yaml:2", "plan.yaml:3") else line)
    assert found["backend_config.ascend.c"] == ("3", "command line")


def test_a_case_of_flags_alone() -> None:
    (case,) = build(None, CaseRequest(ops=("add",), shapes={"input0": (2,)}))
    found = {what: (value, origin) for what, value, origin in explain_case(case)}
    assert found["input0.shape"] == ("[2]", "command line")
    assert found["input1.shape"] == ("[2]", "as input0")


@pytest.mark.parametrize("case", ["op: relu, shapes: {input0: []}, skip: later", "op: drawn, shapes: {x: 1}"])
def test_rows_are_text(case: str) -> None:
    for row in explain_case(case_of(f"cases: [{{{case}, expects_error: {{match: x}}}}]")):
        assert all(isinstance(part, str) and part for part in row)


def test_a_stated_default_shows_where_it_was_stated() -> None:
    text = "cases:\n  - op: add\n    shapes: {input0: 2}\n    attributes: {alpha: 1}\n"
    assert rows(text)["alpha"] == ("1.0", "plan.yaml:4")
    assert rows(text, CaseRequest(attributes={"alpha": 1}))["alpha"] == ("1.0", "command line")

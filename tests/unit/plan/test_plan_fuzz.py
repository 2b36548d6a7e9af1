"""Any text of a file leads to cases, or to a PlanError with positions."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plan_kit import build

from optest.errors import PlanError
from optest.plan import parse_plan
from optest.plan.schema import CaseEntry, PlanDocument
from optest.spec import TestCase

TEXT = """
op add relu matmul mine cases shapes input0 input1 dtypes f16 no 0x4 1e-3 2x3 generator fill tolerance rtol ~ null
010 1:30 << *a !!str - x attributes alpha k a.b:c xfail skip reason name .inf [ { ? &a
"""
WORDS = st.sampled_from(TEXT.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
CASE_KEYS = st.sampled_from([*CaseEntry.__annotations__, "unknown"])
TOP_KEYS = st.sampled_from(
    ["version", "name", "backend", "chip", "seed", "fail_fast", "defaults", "report", "base_dir", "unknown"]
)
SHAPES = st.dictionaries(
    st.sampled_from(["input0", "input1", "x", "y", "output0", "bad"]),
    st.lists(st.integers(-1, 5), max_size=3) | st.sampled_from(["2x3", "scalar", "3x4"]) | VALUES,
    max_size=3,
)
OPERATORS = st.sampled_from(["add", "relu", "matmul", "sum", "norm", "cat", "mine", "drawn", "nope"])
DTYPES = st.sampled_from(["f16", "float32", "int8", ["f16", "f32"], {"input0": "f16"}, {"out": "f16"}, {"zzz": "f16"}])
CASES = st.builds(
    lambda case, op, shapes, dtypes, more: {**case, "op": op, "shapes": shapes, **({"dtypes": dtypes} if more else {})},
    st.dictionaries(CASE_KEYS, VALUES, max_size=2),
    OPERATORS | VALUES,
    SHAPES,
    DTYPES,
    st.booleans(),
)


def outcome(raw: bytes) -> PlanDocument | list[TestCase] | None:
    """Return the cases, or None for a PlanError in which every problem has a position."""
    try:
        return build(parse_plan(raw, "fuzz.yaml"))
    except PlanError as error:
        problems = error.problems
    assert problems
    assert all(problem.message and problem.file == "fuzz.yaml" and problem.line for problem in problems)
    return None


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"cases: [{<<: *a}]")
@example(b"&a [*a]: 1")
@example(b"cases:\n- {op: relu, shapes: {input0: 4}, ? [a] : 1}")
@example(b"cases: [{op: relu}]\ncases: [{op: relu}, {op: relu, product: {m: [1]}, shapes: {input0: [$m]}}]")
def test_any_bytes(raw: bytes) -> None:
    outcome(raw)


@given(VALUES)
def test_any_yaml(value: Any) -> None:
    outcome(yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace"))


@settings(max_examples=80)
@given(
    top=st.dictionaries(TOP_KEYS, VALUES, max_size=2),
    cases=st.lists(CASES, max_size=3) | VALUES,
    defaults=st.none() | st.dictionaries(CASE_KEYS, VALUES, max_size=2),
)
def test_any_plan_like_thing(top: dict[str, Any], cases: Any, defaults: dict[str, Any] | None) -> None:
    plan = {**top, "cases": cases, **({"defaults": defaults} if defaults is not None else {})}
    outcome(yaml.safe_dump(plan, allow_unicode=True).encode("utf-8", "replace"))


RICH = """\
name: rich
defaults: &all {dtypes: float32, tolerance: {rtol: 1e-3}, backend_config: {command: {workdir: .}}, tags: [a]}
cases:
  - {op: add, shapes: {input0: 2x3, input1: [2, 3]}, attributes: {alpha: 2.0}, name: first, xfail: why}
  - op: matmul
    product: {m: [1, 2], "k, n": [[3, 4], [5, 6]], dtypes: [float16, float32]}
    shapes: {input0: [$m, $k], input1: [$k, $n]}
    exclude: [{m: 1, dtypes: float16}]
    generator: {input0: "uniform(low=0, high=1)", input1: {fill: ones}}
  - op: relu
    product: {n: [1, 2]}
    shapes: {input0: {shape: [$n, 3], strides: [3, 1]}}
  - {op: relu, shapes: {input0: 4}, expects_error: {pattern: a}, skip: why}
"""
INSERTED = st.sampled_from([*":?-[]{}&*$#,'\"", "? ", "<<: ", "[a]: 1, ", "&all ", "*all", "!!x ", '"\\0"', "\n", "  "])


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_mutant_of_a_rich_plan(data: st.DataObject) -> None:
    lines = RICH.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["repeat", "delete", "move", "insert", "cut"])):
            case "repeat":
                lines.insert(at, lines[data.draw(st.integers(0, len(lines) - 1))])
            case "delete" if len(lines) > 1:
                del lines[at]
            case "move":
                lines.append(lines.pop(at))
            case "insert":
                column = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:column] + data.draw(INSERTED) + lines[at][column:]
            case _:
                column = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:column] + lines[at][column + data.draw(st.integers(1, 8)) :]
    outcome("".join(lines).encode())


@pytest.mark.parametrize("raw", [b"cases: []", b"cases: [{op: relu, shapes: {input0: 2}}]"])
def test_right_plans_are_not_refused(raw: bytes) -> None:
    assert outcome(raw) is not None

"""Whatever stands in a file, reading it and building its cases ends in cases or in a PlanError with places."""

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

WORDS = st.sampled_from(
    [
        *("op", "add", "relu", "matmul", "mine", "cases", "shapes", "input0", "input1", "dtypes", "f16", "no", "0x4"),
        *("1e-3", "2x3", "generator", "fill", "tolerance", "rtol", "~", "null", "010", "1:30", "<<", "*a", "!!str"),
        *(
            "-",
            "x",
            "attributes",
            "alpha",
            "k",
            "a.b:c",
            "xfail",
            "skip",
            "reason",
            "name",
            ".inf",
            "[",
            "{",
            "?",
            "&a",
        ),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4))
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
    """Cases, or None for a PlanError whose every problem has a place. Anything else that is raised fails the test."""
    try:
        return build(parse_plan(raw, "fuzz.yaml"))
    except PlanError as error:
        problems = error.problems
    assert problems
    assert all(problem.message and problem.file == "fuzz.yaml" for problem in problems)
    return None


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"cases: [{<<: *a}]")
@example(b"&a [*a]: 1")
def test_any_bytes(raw: bytes) -> None:
    outcome(raw)


@given(st.lists(WORDS | st.sampled_from([": ", "\n", "\n  ", "- ", ", ", "]", "}", "[", "{", " #"]), max_size=30))
def test_any_words(words: list[str]) -> None:
    outcome("".join(words).encode())


@given(VALUES)
def test_any_yaml(value: Any) -> None:
    outcome(yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace"))


@settings(max_examples=400)
@given(
    top=st.dictionaries(TOP_KEYS, VALUES, max_size=2),
    cases=st.lists(CASES, max_size=3) | VALUES,
    defaults=st.none() | st.dictionaries(CASE_KEYS, VALUES, max_size=2),
)
def test_any_plan_like_thing(top: dict[str, Any], cases: Any, defaults: dict[str, Any] | None) -> None:
    plan = {**top, "cases": cases, **({"defaults": defaults} if defaults is not None else {})}
    outcome(yaml.safe_dump(plan, allow_unicode=True).encode("utf-8", "replace"))


@settings(max_examples=300)
@given(
    op=st.sampled_from(["add", "relu", "matmul", "sum", "norm", "cat", "mine", "drawn"]),
    shapes=SHAPES,
    dtypes=st.none() | DTYPES,
    extra=st.sampled_from(
        [
            {},
            {"attributes": {"alpha": 1}},
            {"attributes": {"k": 1}},
            {"attributes": {"eps": 0.5}},
            {"generator": {"input0": "ones"}},
            {"generator": "integer-exact"},
            {"expects_error": {}},
        ]
    ),
)
def test_any_nearly_right_case(op: str, shapes: Any, dtypes: Any, extra: dict[str, Any]) -> None:
    case = {"op": op, "shapes": shapes, **({"dtypes": dtypes} if dtypes is not None else {}), **extra}
    outcome(yaml.safe_dump({"cases": [case]}, allow_unicode=True).encode("utf-8", "replace"))


@pytest.mark.parametrize("raw", [b"cases: []", b"cases: [{op: relu, shapes: {input0: 2}}]"])
def test_right_plans_are_not_refused(raw: bytes) -> None:
    assert outcome(raw) is not None

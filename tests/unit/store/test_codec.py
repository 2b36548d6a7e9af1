"""decode(encode(result)) == result, for everything that a result can hold."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.spec import (
    CaseResult,
    Check,
    CheckState,
    Evidence,
    Measure,
    Reason,
    RuleUsed,
    RunInfo,
    RunSummary,
    Status,
    Timings,
    Verdict,
)
from optest.store import codec, journal_schema

SPELLED = ("nan", "inf", "-inf")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOAT = st.none() | st.floats()
INDEX = st.none() | st.lists(st.integers(0, 10**6), max_size=3).map(tuple)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.sampled_from(["$float", "nan", "$", "$$x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(["$float", "$$"]), inner, max_size=3)
    ),
    max_leaves=8,
)
MAPPING = st.dictionaries(TEXT | st.just("$float"), PLAIN, max_size=3)
VALUE = st.none() | st.floats() | st.integers() | TEXT.filter(lambda text: text not in SPELLED)
RULE = st.none() | st.builds(RuleUsed, name=TEXT, layer=TEXT, text=TEXT)


def fields(names: str, values: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), values)


MEASURE = st.builds(
    Measure,
    **fields("output dtype where", TEXT),
    **fields("worst_actual worst_expected", VALUE),
    **fields("worst_bound worst_used max_abs_error rmse statistic", FLOAT),
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    compared=st.integers(0),
    worst_index=INDEX,
    rule=RULE,
)
CHECK = st.builds(Check, name=TEXT, state=st.sampled_from(CheckState), detail=TEXT)
VERDICT = st.builds(
    Verdict,
    status=st.sampled_from([status for status in Status if status is not Status.PASSED]),
    reason=st.sampled_from(Reason),
    message=TEXT,
    evidence=st.none() | st.sampled_from(Evidence),
    measures=st.lists(MEASURE, max_size=2).map(tuple),
    checks=st.lists(CHECK, max_size=2).map(tuple),
    details=MAPPING,
)
RESULT = st.builds(
    CaseResult,
    **fields("id key operator target reference mode", TEXT),
    **fields("attributes case", MAPPING),
    verdict=VERDICT,
    seed=st.integers(),
    dtypes=st.lists(TEXT, max_size=2).map(tuple),
    shapes=st.dictionaries(TEXT, st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=2),
    chip=st.none() | TEXT,
    timings=st.builds(Timings, run_s=FLOAT),
    tags=st.lists(TEXT, max_size=2).map(tuple),
)
INFO = st.builds(
    RunInfo,
    **fields("run_id started_at target", TEXT),
    **fields("host options", MAPPING),
    total=st.integers(0),
    seed=st.integers(),
)


def same(one: Any, other: Any) -> bool:
    """Equality in which NaN equals NaN, 0.0 differs from -0.0, and 1, 1.0 and True differ."""
    if dataclasses.is_dataclass(one):
        fields = [field.name for field in dataclasses.fields(one) if field.compare]
        return type(one) is type(other) and all(same(getattr(one, name), getattr(other, name)) for name in fields)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    return type(one) is type(other) and one == other


def strict(line: bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(line, parse_constant=refuse)


@given(RESULT)
def test_a_result_comes_back_as_it_was(result: CaseResult) -> None:
    line = codec.encode(result)
    strict(line)
    assert b"\n" not in line
    assert same(codec.decode(line, CaseResult), result)


@given(INFO)
def test_a_run_comes_back_as_it_was(info: RunInfo) -> None:
    assert same(codec.decode(codec.encode(info), RunInfo), info)


@given(st.floats())
def test_a_summary_comes_back_as_it_was(duration: float) -> None:
    summary = RunSummary(total=3, finished=2, duration_s=duration, by_status={"passed": 2})
    assert same(codec.decode(codec.encode(summary), RunSummary), summary)


@given(RESULT, INFO)
def test_what_is_written_fits_the_published_schema(result: CaseResult, info: RunInfo) -> None:
    validator = jsonschema.Draft202012Validator(journal_schema())
    validator.validate({"type": "result", "schema_version": 1, "result": strict(codec.encode(result))})
    validator.validate({"type": "start", "schema_version": 1, "info": strict(codec.encode(info))})


def a_result(**changes: Any) -> CaseResult:
    verdict = Verdict(status=Status.ERROR, reason=Reason.RAISED, details=changes.pop("details", {}))
    base = {"id": "a", "key": "k1:0", "operator": "add", "target": "numpy", "reference": "numpy", "mode": "forward"}
    return CaseResult(**{**base, "seed": 0, "verdict": verdict, **changes})


def test_nan_is_spelled_and_never_null() -> None:
    measure = Measure(output="out", dtype="float32", shape=(), compared=1, worst_actual=math.nan, worst_used=math.inf)
    verdict = Verdict(status=Status.FAILED, reason=Reason.NAN, measures=(measure,))
    line = strict(codec.encode(a_result(verdict=verdict, attributes={"low": -math.inf})))
    assert line["verdict"]["measures"][0]["worst_actual"] == "nan"
    assert line["verdict"]["measures"][0]["worst_used"] == "inf"
    assert line["attributes"] == {"low": {"$float": "-inf"}}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float32("nan"), {"$float": "nan"}),
        (np.float64("inf"), {"$float": "inf"}),
        (ValueError("x"), "ValueError('x')"),
        ("\udcff", "\\udcff"),
        (Status.PASSED, "passed"),
        ((1, 2), [1, 2]),
    ],
)
def test_any_details_of_a_driver_are_encoded(value: Any, kept: Any) -> None:
    assert strict(codec.encode(a_result(details={"x": value})))["verdict"]["details"]["x"] == kept


def test_bool_values_of_measures_are_decoded() -> None:
    measure = Measure(output="out", dtype="bool", shape=(), compared=1, worst_actual=True, worst_expected=False)
    verdict = Verdict(status=Status.FAILED, reason=Reason.VALUE, measures=(measure,))
    back = codec.decode(codec.encode(a_result(verdict=verdict)), CaseResult).verdict.measures[0]
    assert (back.worst_actual, back.worst_expected) == (1, 0)

"""Number, shape and dtype of outputs, and comparisons that other tools pass by mistake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, COMPOSED, EXACT, ULP, array_of, case_of, expect, stated, verdict_of
from texts import says

from optest.compare.verdict import compare_outputs
from optest.spec import Evidence, Numerics, Reason, Status, TensorSpec, Terms, dtype

ONES = np.ones(4, np.float32)
TWO = case_of(ULP, names="first, second")


def compare_all(actual: list[Any], expected: list[Any], case: Any = TWO) -> Any:
    return compare_outputs(case, actual, expected, numerics=Numerics())


def test_equal_output_passes_once_rounded() -> None:
    verdict = verdict_of(ONES, np.ones(4), rule=ULP)
    assert (verdict.status, verdict.evidence, verdict.reason) == (Status.PASSED, Evidence.MEASURED, None)
    assert verdict.measures[0].compared == 4
    # 1 + 2^-11 + 2^-40 lies above the tie of float16: rounding through float32 would go down to even
    value = 1.0 + 2.0**-11 + 2.0**-40
    assert verdict_of([1.0 + 2.0**-10], [value], "float16", rule=EXACT).status is Status.PASSED
    assert verdict_of([1.0], [value], "float16", rule=EXACT).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("actual", "reason", "words"),
    [
        ([ONES], Reason.MISSING_OUTPUT, "second: the output is missing"),
        ([], Reason.MISSING_OUTPUT, "first: the output is missing"),
        ([None, ONES], Reason.MISSING_OUTPUT, "first: the output is missing"),
        ([ONES, ONES, ONES], Reason.EXTRA_OUTPUT, "the number of outputs is 3, expected 2"),
        ([ONES, np.ones((2, 2), np.float32)], Reason.SHAPE, "second: the shape is 2x2, expected 4"),
        ([ONES, np.ones(1, np.float32)], Reason.SHAPE, "second: the shape is 1, expected 4"),
        ([ONES, np.float32(1)], Reason.SHAPE, "second: the shape is scalar, expected 4"),
        ([ONES, np.ones(4)], Reason.DTYPE, "second: the dtype is float64, expected float32"),
        ([ONES, np.ones(4, np.float16)], Reason.DTYPE, "second: the dtype is float16, expected float32"),
        ([ONES, np.ones(4, ">f4")], Reason.DTYPE, "second: the dtype is >f4, expected float32"),
        ([ONES, np.ones(4, object)], Reason.DTYPE, "second: the dtype is object, expected float32"),
        ([ONES, [1.0, 1.0, 1.0, 1.0]], Reason.DTYPE, "second: the output is a list, expected a NumPy array"),
        ([ONES, 1.0], Reason.DTYPE, "second: the output is a float, expected a NumPy array"),
    ],
)
def test_misfits_have_their_reason(actual: list[Any], reason: Reason, words: str) -> None:
    verdict = compare_all(actual, [expect(np.ones(4), name="first"), expect(np.ones(4), name="second")])
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason)
    assert words in verdict.message


def test_structure_and_nan_precede_values() -> None:
    verdict = compare_all(
        [ONES * 2, np.ones(3, np.float32)], [expect(np.ones(4), name="first"), expect(np.ones(4), name="second")]
    )
    assert verdict.reason is Reason.SHAPE
    assert [measure.output for measure in verdict.measures] == ["first"]
    assert verdict.measures[0].mismatched == 4
    assert says(verdict.message, "compare.second_the_shape_is")
    assert says(verdict.message, "compare.first_of_elements_are")
    with_nan = np.array([np.nan, 1, 1, 1], np.float32)
    verdict = compare_all([ONES * 2, with_nan], [expect(np.ones(4), name="first"), expect(np.ones(4), name="second")])
    assert verdict.reason is Reason.NAN


def test_nothing_compared_passes_only_if_declared() -> None:
    assert compare_all([], [], case_of(ULP)).reason is Reason.NOTHING_COMPARED
    empty = np.empty((0, 3), np.float32)
    assert compare_all([empty], [expect(np.empty((0, 3)))], case_of(ULP)).reason is Reason.NOTHING_COMPARED
    full = case_of(ULP, outputs=(TensorSpec(dtype=dtype("float32"), shape=(2, 3)),))
    assert compare_all([empty], [expect(np.empty((0, 3)))], full).reason is Reason.NOTHING_COMPARED
    declared = case_of(ULP, outputs=(TensorSpec(dtype=dtype("float32"), shape=(0, 3)),))
    verdict = compare_all([np.empty((0, 3), np.float32)], [expect(np.empty((0, 3)))], declared)
    assert (verdict.status, verdict.measures[0].compared) == (Status.PASSED, 0)
    assert "empty by declaration" in verdict.message
    assert compare_all([ONES], [expect(np.empty((0, 3)))], declared).reason is Reason.SHAPE


def test_reference_of_wrong_shape_or_range_fails() -> None:
    wrong = expect(np.ones(4))
    object.__setattr__(wrong, "value", np.ones(3))
    assert compare_all([ONES], [wrong], case_of(ULP)).reason is Reason.REFERENCE_FAILED
    assert verdict_of(array_of([1, 2], "int8"), [1, 300], "int8").reason is Reason.REFERENCE_FAILED
    assert verdict_of(ONES, np.ones(4, complex), rule=ULP).reason is Reason.REFERENCE_FAILED
    terms = Terms(np.ones(3), np.ones(3), 8)
    assert verdict_of(ONES, np.ones(4), rule=ACCUMULATE, terms=terms).reason is Reason.REFERENCE_FAILED
    many = np.ones(64, np.float32)
    assert verdict_of(many, np.ones(64), rule=ACCUMULATE, terms=terms).reason is Reason.REFERENCE_FAILED


@pytest.mark.parametrize("rule", [None, ACCUMULATE, COMPOSED])
def test_floats_without_a_rule_are_a_bad_case(rule: Any) -> None:
    verdict = verdict_of(ONES, np.ones(4), rule=rule)
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.BAD_CASE)
    assert says(verdict.message, "compare.state_rtol_and_atol")


def test_verdicts_without_a_rule_are_exact() -> None:
    assert verdict_of([1, 2], [1, 2], "int32").status is Status.PASSED
    assert verdict_of([1, 2], [1, 3], "int32").reason is Reason.VALUE
    assert verdict_of([True, False], [True, False], "bool").status is Status.PASSED
    assert verdict_of([True, False], [True, True], "bool").reason is Reason.VALUE


class TestFailingOpen:
    """Comparisons that pass in a respected tool (shared research, style §5.1); none may pass here."""

    @pytest.mark.parametrize(
        ("actual", "reference", "tolerance", "reason"),
        [
            (np.zeros(4, np.float32), np.full(4, np.nan), (1, 1), Reason.NAN),
            (np.zeros(4, np.float32), np.full(4, np.inf), (1, 1), Reason.VALUE),
            (np.array([np.nan, 1, 1, 1], np.float32), np.ones(4), (1, 1, 0.9), Reason.NAN),
            (np.array([np.inf, 1, 1, 1], np.float32), np.ones(4), (1, 1, 0.9), Reason.VALUE),
            # Relative 0.9 and absolute 9e-6, which is only beyond rtol.
            ([1.9e-5], [1e-5], (1e-3, 1e-6), Reason.VALUE),
            (np.ones(4, np.float16), np.ones(4), None, Reason.DTYPE),
            (np.ones(1, np.float32), np.ones((2, 2)), None, Reason.SHAPE),
        ],
    )
    def test_no_class_cast_or_broadcast_is_ignored(
        self, actual: Any, reference: Any, tolerance: tuple[float, ...] | None, reason: Reason
    ) -> None:
        rule, layers = (ULP, ()) if tolerance is None else (None, (stated(*tolerance),))
        assert verdict_of(actual, reference, rule=rule, layers=layers).reason is reason

    def test_no_match_by_position_for_a_missing_name(self) -> None:
        assert compare_all([ONES], [expect(np.ones(4), name="a"), expect(np.ones(4), name="b")]).status is Status.FAILED

    @pytest.mark.parametrize("size", [4, 100])
    def test_a_bound_that_is_no_number_allows_nothing(self, size: int) -> None:
        nan, inf = np.full(size, np.nan), np.full(size, np.inf)
        for bad in (nan, inf):
            terms = Terms(bad, np.ones(size), 8)
            actual, reference = np.ones(size, np.float32), np.ones(size)
            verdict = verdict_of(actual, reference, rule=ACCUMULATE, terms=terms)
            assert (verdict.reason, verdict.measures[0].mismatched) == (Reason.VALUE, size)

    @pytest.mark.parametrize("size", [4, 100])
    def test_a_statistic_that_is_no_number_allows_nothing(self, size: int) -> None:
        terms = Terms(np.ones(size), np.full(size, np.nan), 8)
        verdict = verdict_of(np.ones(size, np.float32), np.ones(size), rule=ACCUMULATE, terms=terms)
        assert verdict.reason is Reason.REFERENCE_FAILED

    def test_an_overflowing_bound_allows_nothing(self) -> None:
        verdict = verdict_of(np.zeros(2), [1e300, 1.0], "float64", layers=(stated(1e300, 0),))
        assert verdict.reason is Reason.VALUE

    @pytest.mark.parametrize("actual", [np.inf, -np.inf, np.nan, np.finfo(np.float32).max])
    def test_overflowing_bound_allows_rounded_infinity(self, actual: float) -> None:
        got = np.array([actual, 1.0], np.float32)
        verdict = verdict_of(got, [1e300, 1.0], "float32", layers=(stated(1e300, 0),))
        assert (verdict.status is Status.PASSED) == (actual == np.inf), verdict

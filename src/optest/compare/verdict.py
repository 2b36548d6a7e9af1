"""Compare the outputs of a case with the expected ones and return a verdict; find passes that are inconclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from optest.compare import Expected
from optest.compare.assert_close import fitting_tolerance, mean_within, zeros_are_within
from optest.compare.bounds import Statistic
from optest.compare.elements import Ends, flat
from optest.compare.kernels import BLOCK, Outcome, compare
from optest.compare.picture import draw
from optest.compare.policy import Allowance, NoRule, defines_signs, for_stored, remembered_tolerance, resolve
from optest.compare.statistic import ENOUGH_VALUES, distinct_values, limit, stricter_statistic
from optest.numerics import Array, byte_beyond_bool, dtype_of, numpy_dtype, widen
from optest.spec import (
    AsRight,
    Check,
    CheckState,
    Evidence,
    Measure,
    Numerics,
    Picture,
    Reason,
    RuleClass,
    Status,
    TestCase,
    Verdict,
    format_shape,
)
from optest.spec.construct import constructor

_new_verdict, _new_measure = constructor(Verdict), constructor(Measure)
_PASSED, _MEASURED = Status.PASSED, Evidence.MEASURED

# Elements below which all measures are computed even if the output passes.
ALWAYS_DETAILED = 1_000_000

_PRIORITY = (
    Reason.REFERENCE_FAILED,
    Reason.BAD_CASE,
    Reason.MISSING_OUTPUT,
    Reason.EXTRA_OUTPUT,
    Reason.SHAPE,
    Reason.DTYPE,
    Reason.NOTHING_COMPARED,
    Reason.NAN,
    Reason.VALUE,
)
_RANK = {reason: rank for rank, reason in enumerate(_PRIORITY)}

# Share of Σ|terms| that an accumulator may lose, from which sums are inconclusive. float32 loses less with a million
# terms, so only narrow accumulators reach it.
_MUCH_LOST = 0.125

# A reason and its message. Without a reason: why the pass is inconclusive.
_Finding = tuple[Reason | None, str]


class _Options(NamedTuple):
    """Additions to the verdict: all measures even on a pass, pictures of wrong outputs."""

    every_measure: bool
    draws: bool


class _OutputResult(NamedTuple):
    """Measure of one output, its fault or doubt if any, a note for the checks, and a picture of its wrong elements."""

    measure: Measure | None
    finding: _Finding | None = None
    note: Check | None = None
    picture: Picture | None = None


def compare_outputs(
    case: TestCase,
    actual: Sequence[Any],
    expected: Sequence[Expected],
    *,
    numerics: Numerics,
    every_measure: bool = False,
    inputs: Sequence[Any] | None = None,
    checks: tuple[Check, ...] = (),
    draws: bool = False,
) -> Verdict:
    """Compare the outputs of a case with the expected ones, and return the verdict.

    ``actual`` are NumPy arrays in the operator's order; their number, shapes and dtypes are part of the verdict. Of
    several reasons the first of ``_PRIORITY`` decides; messages and measures of all outputs are kept.

    ``every_measure`` computes all measures even on a pass; ``draws`` adds pictures of wrong outputs. ``checks`` are
    copied to the verdict. ``inputs``, if known, show operands of few distinct values: their roundings repeat, so that
    errors add up.
    """
    options = _Options(every_measure, draws)
    if len(actual) == len(expected) == 1:
        result = _compare_output(case, 0, actual, expected, numerics, options, inputs)
        measure = result.measure
        if result.finding is None and result.note is None and measure is not None and measure.compared:
            return _new_verdict(status=_PASSED, evidence=_MEASURED, measures=(measure,), checks=checks)
        return _sum_up(case, expected, [result], [], checks)
    findings: list[_Finding] = []
    if len(actual) > len(expected):
        message = f"the number of outputs is {len(actual)}, expected {len(expected)}"
        findings.append((Reason.EXTRA_OUTPUT, message))
    if not expected and not actual:
        findings.append((Reason.NOTHING_COMPARED, "there is no output, so nothing was compared"))
    padded = [*actual, *[None] * (len(expected) - len(actual))]
    results = [_compare_output(case, at, padded, expected, numerics, options, inputs) for at in range(len(expected))]
    return _sum_up(case, expected, results, findings, checks)


def _sum_up(
    case: TestCase,
    expected: Sequence[Expected],
    results: Sequence[_OutputResult],
    findings: list[_Finding],
    checks: tuple[Check, ...],
) -> Verdict:
    """Build the verdict of a case from the results of its outputs and further findings; the worst reason decides."""
    measures = tuple(result.measure for result in results if result.measure is not None)
    findings = findings + [result.finding for result in results if result.finding is not None]
    checks = (*checks, *[result.note for result in results if result.note is not None])
    messages = [message for reason, message in findings if reason is None]
    wrong = [(reason, message) for reason, message in findings if reason is not None]
    reason, status = None, Status.SUSPECT if messages else Status.PASSED
    if wrong:
        wrong.sort(key=lambda finding: _RANK[finding[0]])
        reason, status = wrong[0][0], wrong[0][0].status
        messages = [message for _, message in wrong]
    elif not messages:
        empty_input = _empty_input_of(case)
        why = " by declaration" if case.outputs else f" as {empty_input} is" if empty_input else ""
        messages = [
            f"{output.name}: empty{why}, {format_shape(output.shape)}"
            for output, result in zip(expected, results, strict=True)
            if result.measure is not None and not result.measure.compared
        ]
    return Verdict(
        status=status,
        reason=reason,
        evidence=None if wrong else _MEASURED,
        message="; ".join(messages),
        measures=measures,
        checks=checks,
        pictures=tuple(result.picture for result in results if result.picture is not None),
    )


def _compare_output(
    case: TestCase,
    index: int,
    outputs: Sequence[Any],
    all_expected: Sequence[Expected],
    numerics: Numerics,
    options: _Options,
    inputs: Sequence[Any] | None,
) -> _OutputResult:
    """Compare one output with the expected one: structure, then values by the rule for this output.

    If values are wrong and the operator has alternatives (results as right as the reference's), compare again with the
    elements that these accept.
    """
    expected = all_expected[index]
    misfit = _find_misfit(outputs[index], expected)
    if misfit is not None:
        return _OutputResult(None, misfit)
    actual = np.asarray(outputs[index])
    try:
        reference = _reference_array(expected)
    except ValueError as error:
        return _OutputResult(None, (Reason.REFERENCE_FAILED, f"{expected.name}: {error}"))
    if not actual.size:
        return _accept_empty(case, index, all_expected)
    try:
        allowance = resolve(case, expected, index, numerics, inputs)
    except NoRule as error:
        return _OutputResult(None, (Reason.BAD_CASE, f"{expected.name}: {error}"))
    # An expectation that is stored rounded (a golden file) may be half an ulp off itself.
    if reference.dtype not in _UNROUNDED and expected.dtype.is_inexact:
        allowance = for_stored(allowance, dtype_of(reference.dtype))
    rules = (expected, allowance, numerics, options.every_measure, defines_signs(case, expected))
    try:
        result = _compare_values(actual, reference, *rules)
        if (
            result.finding is not None
            and expected.alternatives is not None
            and not _has_explicit_tolerance(case, expected, allowance)
            and (as_right := expected.alternatives(outputs)) is not None
        ):
            mask, doubt, uneven = as_right if isinstance(as_right, AsRight) else AsRight(as_right)
            reference = np.where(mask, widen(actual) if reference.dtype in _UNROUNDED else actual, reference)
            result = _compare_values(actual, reference, *rules)
            if doubt and result.finding is None:
                return result._replace(finding=(None, f"{expected.name}: {doubt}"))
            if uneven and result.measure is not None:
                result = result._replace(measure=replace(result.measure, where=uneven))
        if result.finding is None and _accumulator_may_lose_sums(allowance, reference):
            lost = "the accumulator may lose the whole sum, so that zeros pass too; use fewer terms or other values"
            return result._replace(finding=(None, f"{expected.name}: {lost}"))
        if not options.draws or result.finding is None or result.measure is None:
            return result
        mismatched = result.measure.mismatched
        return result._replace(picture=draw(expected, actual, reference, allowance, _ends_of(numerics), mismatched))
    except ValueError as error:
        return _OutputResult(None, (Reason.REFERENCE_FAILED, f"{expected.name}: {error}"))


def _accumulator_may_lose_sums(allowance: Allowance, reference: Array) -> bool:
    """Return whether no sum exceeds the loss of its accumulator: few distinct values, many terms and few digits."""
    law = allowance.law
    if law is None or law.statistic is Statistic.SUM or law.per_term < _MUCH_LOST or not reference.any():
        return False
    return bool(np.all(np.abs(reference) <= law.per_term * np.asarray(allowance.budget.total)))


def _ends_of(numerics: Numerics) -> Ends:
    return Ends(flush=numerics.denormals == "flush", saturate=numerics.overflow == "saturate")


def _has_explicit_tolerance(case: TestCase, expected: Expected, allowance: Allowance) -> bool:
    """Return whether a user's tolerance replaces the rule CLOSE of the operator, so that alternatives do not count."""
    rule = case.descriptor.rule
    is_close = expected.rule is None and rule is not None and rule.kind is RuleClass.CLOSE
    # Integers of such an operator get the rule `exact` without any tolerance.
    return is_close and allowance.used.name not in (RuleClass.CLOSE.value, RuleClass.EXACT.value)


_UNROUNDED = (np.dtype(np.float64), np.dtype(np.complex128))


def _find_misfit(output: Any, expected: Expected) -> _Finding | None:
    """Return the fault of a missing output or one of a wrong type, shape, dtype or bool byte; else None."""
    if output is None:
        return Reason.MISSING_OUTPUT, f"{expected.name}: the output is missing"
    if not isinstance(output, (np.ndarray, np.generic)):
        return Reason.DTYPE, f"{expected.name}: the output is a {type(output).__name__}, expected a NumPy array"
    if output.shape != expected.shape:
        return (
            Reason.SHAPE,
            f"{expected.name}: the shape is {format_shape(output.shape)}, expected {format_shape(expected.shape)}",
        )
    if output.dtype != numpy_dtype(expected.dtype):
        return Reason.DTYPE, f"{expected.name}: the dtype is {output.dtype}, expected {expected.dtype}"
    beyond = byte_beyond_bool(np.asarray(output)) if output.dtype == np.bool_ else None
    if beyond is not None:
        return Reason.DTYPE, f"{expected.name}: the byte at {beyond[0]} is {beyond[1]}, expected 0 or 1 for bool"
    return None


def _reference_array(expected: Expected) -> Array:
    """Return the expected values as an array; raise ValueError for a wrong shape or for complex values."""
    reference = np.asarray(expected.value)
    if reference.shape != expected.shape:
        raise ValueError(
            f"the reference has the shape {format_shape(reference.shape)}, expected {format_shape(expected.shape)}"
        )
    if reference.dtype.kind == "c" and not expected.dtype.is_complex:
        raise ValueError(f"the reference returned {reference.dtype}, expected {expected.dtype}")
    return reference


def _empty_input_of(case: TestCase) -> str:
    """Return the first input without elements if an operator with any number of outputs declares none; else ""."""
    # Outputs that can be declared must be declared empty. Only the caller of a variadic operator knows its output
    # shapes, so there an empty input explains empty outputs.
    if case.outputs or not case.descriptor.tensors.variadic_output:
        return ""
    return next((argument.path for argument in case.inputs if not argument.spec.elements), "")


def _accept_empty(case: TestCase, index: int, all_expected: Sequence[Expected]) -> _OutputResult:
    """Return a measure of 0 elements for an output that is expected to be empty, else a NOTHING_COMPARED finding.

    It is expected if the case declares it, if it belongs to an empty input, or if the operator has no declared outputs
    and another output has elements.
    """
    expected = all_expected[index]
    declared = index < len(case.outputs) and case.outputs[index].elements == 0
    empty = [argument.path for argument in case.inputs if not argument.spec.elements]
    is_of_empty_input = any(expected.name in (f"grad.{path}", f"{path} afterwards") for path in empty)
    has_others = not case.outputs and any(
        math.prod(output.shape) for output in all_expected if not output.name.startswith("grad.")
    )
    if not (declared or _empty_input_of(case) or is_of_empty_input or has_others):
        message = (
            f"{expected.name}: the output is {format_shape(expected.shape)}, which has no elements, "
            f"and the case does not declare it empty"
        )
        return _OutputResult(None, (Reason.NOTHING_COMPARED, message))
    return _OutputResult(
        Measure(output=expected.name, dtype=expected.dtype.name, shape=tuple(expected.shape), compared=0)
    )


def _compare_values(
    actual: Array,
    reference: Array,
    expected: Expected,
    allowance: Allowance,
    numerics: Numerics,
    every_measure: bool,
    with_signs: bool = False,
) -> _OutputResult:
    """Compare the elements of an output of the right structure, and decide whether it is right.

    All measures are computed for small and wrong outputs, or if ``every_measure``; ``with_signs`` also counts zeros of
    the wrong sign.
    """
    detailed = every_measure or actual.size < ALWAYS_DETAILED
    law, draws, with_rounding = allowance.law, 0, False
    if law is not None and law.statistic is not Statistic.NONE:
        draws = distinct_values(reference) if law.statistic is Statistic.SUM else ENOUGH_VALUES
        # An error of one operand element reaches a whole row of results, so rows are the independent draws.
        draws = math.isqrt(draws) if law.correlated else draws
        with_rounding = law.narrow and (law.statistic is Statistic.ROUNDING or draws < ENOUGH_VALUES)

    def run(detailed: bool) -> tuple[Outcome, float | None, float | None, _Finding | None]:
        outcome = compare(
            actual,
            reference,
            expected.dtype,
            allowance,
            ends=_ends_of(numerics),
            detailed=detailed,
            with_rounding=with_rounding,
            with_signs=with_signs and detailed,
        )
        statistic = ceiling = None
        if draws:  # the law has a statistic
            statistic, ceiling = stricter_statistic(outcome.scatter.z, limit(draws), outcome.rounding.z)
        return outcome, statistic, ceiling, _find_fault(outcome, allowance, statistic, ceiling, expected.name)

    outcome, statistic, ceiling, finding = run(detailed)
    # A failure is described by all measures; a pass is cheaper without them.
    if finding is not None and not detailed:
        outcome, statistic, ceiling, finding = run(True)
    measure = _measure(outcome, expected, actual.shape, allowance, statistic, ceiling)
    return _OutputResult(measure, finding, _signs_note(outcome, expected, allowance))


def _signs_note(outcome: Outcome, expected: Expected, allowance: Allowance) -> Check | None:
    """Return a note on zeros of the wrong sign, None if there are none or the rule counts them as wrong."""
    if not outcome.wrong_signs or allowance.signed_zeros:
        return None
    count, first = outcome.wrong_signs, list(_index_at(outcome.first_wrong_sign, expected.shape) or ())
    verb = "has" if count == 1 else "have"
    detail = f"{expected.name}: {count} of {outcome.zeros} zeros {verb} the wrong sign, the first at {first}"
    return Check(name="signed zeros", state=CheckState.NOTE, detail=detail)


def _find_fault(
    outcome: Outcome, allowance: Allowance, statistic: float | None, ceiling: float | None, name: str
) -> _Finding | None:
    """Return the reason and message of wrong values, None if the values are right.

    In order: NaN on one side only, elements beyond their bound, a statistic that is NaN, errors too large together.
    """
    if outcome.nan_mismatched:
        are = "is" if outcome.nan_mismatched == 1 else "are"
        message = f"{outcome.nan_mismatched} of {outcome.compared} elements {are} NaN on one side only"
        return Reason.NAN, f"{name}: {message}"
    # The ratio excuses finite errors only: an infinity in place of a number is never a rounding.
    within_ratio = outcome.finite_mismatched <= allowance.mismatch_ratio * outcome.compared
    if outcome.nonfinite_mismatched or not within_ratio:
        count = outcome.mismatched
        worst = "" if math.isinf(outcome.worst.value) else f", the worst {outcome.worst.value:.3g} x allowed"
        are = "is" if count == 1 else "are"
        return Reason.VALUE, f"{name}: {count} of {outcome.compared} elements {are} off{worst}"
    if statistic is not None and statistic != statistic:
        return Reason.REFERENCE_FAILED, (
            f"{name}: the errors cannot be compared together, because the operator's terms or variance are not finite "
            "for a finite result; correct its `terms` hook"
        )
    if statistic is not None and ceiling is not None and not statistic <= ceiling:
        return Reason.VALUE, (
            f"{name}: every element is within its bound, but the errors together are {statistic:.3g} x what "
            f"rounding explains ({ceiling:.3g} is allowed): truncation, a low-precision accumulator or a bias"
        )
    return None


def _measure(
    outcome: Outcome,
    expected: Expected,
    shape: tuple[int, ...],
    allowance: Allowance,
    statistic: float | None,
    ceiling: float | None,
) -> Measure:
    """Build the measure of an output from its comparison; numbers that were not computed stay None."""
    details: dict[str, Any] = {}
    if outcome.detailed:
        error, relative, in_ulp, worst = outcome.error, outcome.relative, outcome.in_ulp, outcome.worst
        norm = math.sqrt(outcome.actual_squared) * math.sqrt(outcome.target_squared)
        details = {
            "worst_index": _index_at(worst.place, shape),
            "worst_actual": _json_number(outcome.worst_actual),
            "worst_expected": _json_number(outcome.worst_target),
            "worst_bound": _finite_or_none(outcome.worst_bound),
            "worst_used": _finite_or_none(worst.value),
            "worst_ulp": _finite_or_none(outcome.worst_ulp) if expected.dtype.is_inexact else None,
            "max_abs_error": _finite_or_none(error.value) if error.place >= 0 else None,
            "max_abs_index": _index_at(error.place, shape),
            "max_rel_error": _finite_or_none(relative.value) if relative.place >= 0 else None,
            "max_rel_index": _index_at(relative.place, shape),
            "max_ulp_error": _finite_or_none(in_ulp.value) if in_ulp.place >= 0 else None,
            "max_ulp_index": _index_at(in_ulp.place, shape),
            "rmse": _finite_or_none(math.sqrt(outcome.squared_error / outcome.finite)) if outcome.finite else None,
            "cosine": outcome.product / norm if norm > 0 and math.isfinite(norm) else None,
            "where": outcome.sketch.phrase() if outcome.sketch is not None else "",
        }
    return _new_measure(
        output=expected.name,
        dtype=expected.dtype.name,
        shape=shape,
        compared=outcome.compared,
        mismatched=outcome.mismatched,
        nonfinite_mismatched=outcome.nonfinite_mismatched,
        statistic=statistic,
        statistic_limit=ceiling,
        rule=allowance.used,
        **details,
    )


@lru_cache(maxsize=4096)
def _index_at(flat: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index of a flat position in row-major order, None for a negative position."""
    if flat < 0:
        return None
    index = []
    for size in reversed(shape):
        flat, coordinate = divmod(flat, size)
        index.append(coordinate)
    return tuple(reversed(index))


def _finite_or_none(value: float) -> float | None:
    """Return the value, None if it is NaN or infinite: a factor over a bound of 0, an error beyond float64."""
    return value if math.isfinite(value) else None


def _json_number(value: Any) -> float | int | str | None:
    """Convert a NumPy scalar to a JSON value: "nan", "inf" and "-inf" as text, complex numbers as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, complex):
        return str(value)
    return None if value is None else int(value)


def has_no_number(expected: Expected) -> bool:
    """Return whether every expected element of an inexact output is NaN or infinite."""
    if not expected.dtype.is_inexact:
        return False
    values = flat(np.asarray(expected.value))
    starts = range(0, np.size(expected.value), BLOCK)
    return not any(np.isfinite(widen(values[start : start + BLOCK])).any() for start in starts)


def passing_constant(case: TestCase, index: int, measure: Measure, expected: Expected) -> str:
    """Return a description of a wrong constant output that the tolerance accepts, "" if there is none.

    Zeros are tried for every tolerance, the mean of the expected values for a user's tolerance only.
    """
    rule = measure.rule.name if measure.rule is not None and measure.compared else ""
    values = np.asarray(expected.value)
    # The other class rules follow the size of the terms; there a sum may cancel to less than its bound.
    if rule == RuleClass.CLOSE.value:
        fitting = fitting_tolerance(expected.dtype, expected.value)
        return "nothing but zeros" if fitting is not None and zeros_are_within(values, *fitting) else ""
    tolerance = remembered_tolerance(case.tolerances, case.descriptor, index, expected.name, False, False)
    if rule != "tolerance" or tolerance is None:
        return ""
    allowed = (tolerance.rtol, tolerance.atol, tolerance.mismatch_ratio)
    if zeros_are_within(values, *allowed):
        return "nothing but zeros"
    mean = mean_within(values, expected.dtype, *allowed)
    return "" if mean is None else f"nothing but the mean of the expected values, {mean:.3g},"

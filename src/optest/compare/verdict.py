"""From outputs to a verdict: structure first, then values, one reason for all; and whether a pass proves anything."""

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
from optest.compare.kernels import BLOCK, Outcome, compare, draw
from optest.compare.picture import Drawing
from optest.compare.policy import Allowance, NoRule, defines_signs, for_stored, remembered_tolerance, resolve
from optest.compare.statistic import ENOUGH_VALUES, distinct_values, limit, sharper
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

ALWAYS_DETAILED = 1_000_000
"""Elements below which all measures are computed for a passing output too."""

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
_LOSES = 0.125
"""Of the sum of all terms: float32 loses less of a million."""
_RANK = {reason: rank for rank, reason in enumerate(_PRIORITY)}
_Finding = tuple[Reason | None, str]
"""A reason and its message; without a reason, why a pass proves little."""


class _Looks(NamedTuple):
    """What is asked beside the verdict: all numbers even on a pass, pictures of what is wrong."""

    every_measure: bool
    draws: bool


class _Judged(NamedTuple):
    """What is known of one output, what is wrong with it, and what is to be noted."""

    measure: Measure | None
    finding: _Finding | None = None
    note: Check | None = None
    picture: Picture | None = None


def judge(
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
    """Compare outputs, NumPy arrays, in order: the first reason by rank decides, all messages and measures are kept.

    Number, shape and dtype of the outputs are part of the verdict. ``every_measure`` computes all numbers even on a
    pass. ``inputs``, where they are known, tell sums over operands of few distinct values, whose roundings add up, from
    all others. ``checks`` is what else was looked at; the verdict holds them. ``draws`` adds pictures of wrong outputs.
    """
    looks = _Looks(every_measure, draws)
    if len(actual) == len(expected) == 1:
        only = _judge_output(case, 0, actual, expected, numerics, looks, inputs)
        measure = only.measure
        if only.finding is None and only.note is None and measure is not None and measure.compared:
            return _new_verdict(status=_PASSED, evidence=_MEASURED, measures=(measure,), checks=checks)
        return _sum_up(case, expected, [only], [], checks)
    findings: list[_Finding] = []
    if len(actual) > len(expected):
        message = f"the number of outputs is {len(actual)}, but should be {len(expected)}"
        findings.append((Reason.EXTRA_OUTPUT, message))
    if not expected and not actual:
        findings.append((Reason.NOTHING_COMPARED, "there is no output, so nothing was compared"))
    padded = [*actual, *[None] * (len(expected) - len(actual))]
    judged = [_judge_output(case, index, padded, expected, numerics, looks, inputs) for index in range(len(expected))]
    return _sum_up(case, expected, judged, findings, checks)


def _sum_up(
    case: TestCase,
    expected: Sequence[Expected],
    judged: Sequence[_Judged],
    findings: list[_Finding],
    checks: tuple[Check, ...],
) -> Verdict:
    measures = tuple(each.measure for each in judged if each.measure is not None)
    findings = findings + [each.finding for each in judged if each.finding is not None]
    checks = (*checks, *[each.note for each in judged if each.note is not None])
    told = [message for reason, message in findings if reason is None]
    wrong = [(reason, message) for reason, message in findings if reason is not None]
    reason, status = None, Status.SUSPECT if told else Status.PASSED
    if wrong:
        wrong.sort(key=lambda finding: _RANK[finding[0]])
        reason, status = wrong[0][0], wrong[0][0].status
        told = [message for _, message in wrong]
    elif not told:
        stated = _empty_input_of(case)
        why = " by declaration" if case.outputs else f" as {stated} is" if stated else ""
        told = [
            f"{output.name}: empty{why}, {format_shape(output.shape)}"
            for output, each in zip(expected, judged, strict=True)
            if each.measure is not None and not each.measure.compared
        ]
    return Verdict(
        status=status,
        reason=reason,
        evidence=None if wrong else _MEASURED,
        message="; ".join(told),
        measures=measures,
        checks=checks,
        pictures=tuple(each.picture for each in judged if each.picture is not None),
    )


def _judge_output(
    case: TestCase,
    index: int,
    outputs: Sequence[Any],
    every: Sequence[Expected],
    numerics: Numerics,
    looks: _Looks,
    inputs: Sequence[Any] | None,
) -> _Judged:
    got, expected = outputs[index], every[index]
    misfit = _misfit(got, expected)
    if misfit is not None:
        return _Judged(None, misfit)
    actual = np.asarray(got)
    try:
        reference = _reference_array(expected)
    except ValueError as error:
        return _Judged(None, (Reason.REFERENCE_FAILED, f"{expected.name}: {error}"))
    if not actual.size:
        return _judge_empty(case, index, every)
    try:
        allowance = resolve(case, expected, index, numerics, inputs)
    except NoRule as error:
        return _Judged(None, (Reason.BAD_CASE, f"{expected.name}: {error}"))
    if reference.dtype not in _UNROUNDED and expected.dtype.is_inexact:
        allowance = for_stored(allowance, dtype_of(reference.dtype))
    judging = (expected, allowance, numerics, looks.every_measure, defines_signs(case, expected))
    try:
        judged = _judge_values(actual, reference, *judging)
        if (
            judged.finding is not None
            and expected.alternatives is not None
            and not _has_explicit_tolerance(case, expected, allowance)
            and (as_right := expected.alternatives(outputs)) is not None
        ):
            mask, doubt, uneven = as_right if isinstance(as_right, AsRight) else AsRight(as_right)
            given = widen(actual) if reference.dtype in _UNROUNDED else actual
            reference = np.where(mask, given, reference)
            judged = _judge_values(actual, reference, *judging)
            if doubt and judged.finding is None:
                return judged._replace(finding=(None, f"{expected.name}: {doubt}"))
            if uneven and judged.measure is not None:
                judged = judged._replace(measure=replace(judged.measure, where=uneven))
        if judged.finding is None and _may_lose_sums(allowance, reference):
            lost = "its accumulator may lose the whole sum, so that zeros pass too; take fewer terms, or other values"
            return judged._replace(finding=(None, f"{expected.name}: {lost}"))
        if not looks.draws or judged.finding is None or judged.measure is None:
            return judged
        drawing = Drawing(expected.name, tuple(expected.shape), judged.measure.mismatched)
        return judged._replace(picture=draw(drawing, actual, reference, expected.dtype, allowance, _ends(numerics)))
    except ValueError as error:
        return _Judged(None, (Reason.REFERENCE_FAILED, f"{expected.name}: {error}"))


def _may_lose_sums(allowance: Allowance, reference: Array) -> bool:
    """Whether no sum is larger than what its accumulator may lose, as with few values, many terms and few digits."""
    law = allowance.law
    if law is None or law.statistic is Statistic.SUM or law.per_term < _LOSES or not reference.any():
        return False
    return bool(np.all(np.abs(reference) <= law.per_term * np.asarray(allowance.budget.total)))


def _ends(numerics: Numerics) -> Ends:
    return Ends(flush=numerics.denormals == "flush", saturate=numerics.overflow == "saturate")


def _has_explicit_tolerance(case: TestCase, expected: Expected, allowance: Allowance) -> bool:
    """Whether a tolerance is stated for what only the rule of close results would look at again."""
    rule = case.descriptor.rule
    is_close = expected.rule is None and rule is not None and rule.kind is RuleClass.CLOSE
    # integers of such an operator get the rule `exact` by themselves
    return is_close and allowance.used.name not in (RuleClass.CLOSE.value, RuleClass.EXACT.value)


_UNROUNDED = (np.dtype(np.float64), np.dtype(np.complex128))


def _misfit(got: Any, expected: Expected) -> _Finding | None:
    """What is wrong with an output before any value is looked at."""
    if got is None:
        return Reason.MISSING_OUTPUT, f"{expected.name}: there is no such output"
    if not isinstance(got, (np.ndarray, np.generic)):
        return Reason.DTYPE, f"{expected.name}: the output is a {type(got).__name__}, but should be a NumPy array"
    if got.shape != expected.shape:
        return (
            Reason.SHAPE,
            f"{expected.name}: the shape is {format_shape(got.shape)}, but should be {format_shape(expected.shape)}",
        )
    if got.dtype != numpy_dtype(expected.dtype):
        return Reason.DTYPE, f"{expected.name}: the dtype is {got.dtype}, but should be {expected.dtype}"
    beyond = byte_beyond_bool(np.asarray(got)) if got.dtype == np.bool_ else None
    if beyond is not None:
        return Reason.DTYPE, f"{expected.name}: the byte at {beyond[0]} is {beyond[1]}, but bool should be 0 or 1"
    return None


def _reference_array(expected: Expected) -> Array:
    reference = np.asarray(expected.value)
    if reference.shape != expected.shape:
        raise ValueError(
            f"the reference has the shape {format_shape(reference.shape)}, "
            f"but should have {format_shape(expected.shape)}"
        )
    if reference.dtype.kind == "c" and not expected.dtype.is_complex:
        raise ValueError(f"the reference gave {reference.dtype} for a {expected.dtype} output")
    return reference


def _empty_input_of(case: TestCase) -> str:
    """The input that is stated without elements, "" for none, of a call whose outputs no plan can declare.

    Such a call has any number of outputs, and nobody but who makes it knows their shapes: what is stated of it are its
    inputs. An operator whose outputs can be declared has to have them declared.
    """
    if case.outputs or not case.descriptor.tensors.variadic_output:
        return ""
    return next((each.path for each in case.inputs if not each.spec.elements), "")


def _judge_empty(case: TestCase, index: int, every: Sequence[Expected]) -> _Judged:
    """An output without elements, which has to be declared so, or to stand beside others that are compared."""
    expected = every[index]
    declared = index < len(case.outputs) and case.outputs[index].elements == 0
    empty = [each.path for each in case.inputs if not each.spec.elements]
    is_of_empty_input = any(expected.name in (f"grad.{path}", f"{path} afterwards") for path in empty)
    meant = declared or bool(_empty_input_of(case)) or is_of_empty_input
    # An operator without declared outputs may yield others with elements next to the empty one.
    others = not case.outputs and any(math.prod(each.shape) for each in every if not each.name.startswith("grad."))
    if not meant and not others:
        message = (
            f"{expected.name}: the output is {format_shape(expected.shape)}, which has no elements, "
            f"and the case does not declare it empty"
        )
        return _Judged(None, (Reason.NOTHING_COMPARED, message))
    return _Judged(Measure(output=expected.name, dtype=expected.dtype.name, shape=tuple(expected.shape), compared=0))


def _judge_values(
    actual: Array,
    reference: Array,
    expected: Expected,
    allowance: Allowance,
    numerics: Numerics,
    every_measure: bool,
    with_signs: bool = False,
) -> _Judged:
    detailed = every_measure or actual.size < ALWAYS_DETAILED
    law, draws, with_rounding = allowance.law, 0, False
    if law is not None and law.statistic is not Statistic.NONE:
        draws = distinct_values(reference) if law.statistic is Statistic.SUM else ENOUGH_VALUES
        draws = math.isqrt(draws) if law.correlated else draws
        with_rounding = law.narrow and (law.statistic is Statistic.ROUNDING or draws < ENOUGH_VALUES)

    def look(detailed: bool, with_sides: bool) -> tuple[Outcome, float | None, float | None, _Finding | None]:
        outcome = compare(
            actual,
            reference,
            expected.dtype,
            allowance,
            ends=_ends(numerics),
            detailed=detailed,
            with_rounding=with_rounding,
            with_sides=with_sides,
            with_signs=with_signs and detailed,
        )
        statistic, ceiling = sharper(outcome.scatter.z, limit(draws), outcome.rounding.z)
        return outcome, statistic, ceiling, _decide(outcome, allowance, statistic, ceiling, expected.name)

    outcome, statistic, ceiling, finding = look(detailed, every_measure)
    if finding is not None and not every_measure:
        outcome, statistic, ceiling, finding = look(True, True)
    measure = _measure(outcome, expected, reference, actual.shape, allowance, statistic, ceiling)
    return _Judged(measure, finding, _signs_note(outcome, expected, allowance))


def _signs_note(outcome: Outcome, expected: Expected, allowance: Allowance) -> Check | None:
    if not outcome.wrong_signs or allowance.signed_zeros:
        return None
    count, first = outcome.wrong_signs, list(_place(outcome.first_wrong_sign, expected.shape) or ())
    verb = "has" if count == 1 else "have"
    detail = f"{expected.name}: {count} of {outcome.zeros} zeros {verb} the wrong sign, the first at {first}"
    return Check(name="signed zeros", state=CheckState.NOTE, detail=detail)


def _decide(
    outcome: Outcome, allowance: Allowance, statistic: float | None, ceiling: float | None, name: str
) -> _Finding | None:
    """None where the values are shown to be right."""
    if outcome.nan_mismatched:
        are = "is" if outcome.nan_mismatched == 1 else "are"
        message = f"{outcome.nan_mismatched} of {outcome.compared} elements {are} NaN on one side only"
        return Reason.NAN, f"{name}: {message}"
    within_ratio = outcome.finite_mismatched <= allowance.mismatch_ratio * outcome.compared
    if outcome.nonfinite_mismatched or not within_ratio:
        count = outcome.mismatched
        worst = "" if math.isinf(outcome.worst.value) else f", the worst {outcome.worst.value:.3g} x allowed"
        are = "is" if count == 1 else "are"
        return Reason.VALUE, f"{name}: {count} of {outcome.compared} elements {are} off{worst}"
    if statistic is not None and statistic != statistic:
        return Reason.REFERENCE_FAILED, (
            f"{name}: the errors cannot be judged together, since the operator's terms or variance are not finite "
            "where its result is"
        )
    if statistic is not None and ceiling is not None and not statistic <= ceiling:
        return Reason.VALUE, (
            f"{name}: no single element is out of its bound, but the errors together are {statistic:.3g} x what "
            f"rounding explains ({ceiling:.3g} is allowed): truncation, a low-precision accumulator or a bias"
        )
    return None


def _measure(
    outcome: Outcome,
    expected: Expected,
    reference: Array,
    shape: tuple[int, ...],
    allowance: Allowance,
    statistic: float | None,
    ceiling: float | None,
) -> Measure:
    known: dict[str, Any] = {}
    if outcome.detailed:
        error, relative, in_ulp, worst = outcome.error, outcome.relative, outcome.in_ulp, outcome.worst
        norm = math.sqrt(outcome.actual_squared) * math.sqrt(outcome.target_squared)
        known = {
            "worst_index": _place(worst.place, shape),
            "worst_actual": _plain(outcome.worst_actual),
            "worst_expected": _plain(outcome.worst_target),
            "worst_bound": _finite(outcome.worst_bound),
            "worst_used": _finite(worst.value),
            "worst_ulp": _finite(outcome.worst_ulp) if expected.dtype.is_inexact else None,
            "max_abs_error": _finite(error.value) if error.place >= 0 else None,
            "max_abs_index": _place(error.place, shape),
            "max_rel_error": _finite(relative.value) if relative.place >= 0 else None,
            "max_rel_index": _place(relative.place, shape),
            "max_ulp_error": _finite(in_ulp.value) if in_ulp.place >= 0 else None,
            "max_ulp_index": _place(in_ulp.place, shape),
            "rmse": _finite(math.sqrt(outcome.squared_error / outcome.finite)) if outcome.finite else None,
            "cosine": outcome.product / norm if norm > 0 and math.isfinite(norm) else None,
            "where": outcome.sketch.phrase() if outcome.sketch is not None else "",
        }
        known["rounding"] = outcome.sides.rounding(reference) if outcome.sides is not None else None
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
        **known,
    )


@lru_cache(maxsize=4096)
def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The index of a flat position in row-major order; None for none."""
    if flat < 0:
        return None
    place = []
    for size in reversed(shape):
        flat, coordinate = divmod(flat, size)
        place.append(coordinate)
    return tuple(reversed(place))


def _finite(value: float) -> float | None:
    """The number, or None where it is none: a factor over a bound of 0, an error beyond float64."""
    return value if math.isfinite(value) else None


def _plain(value: Any) -> float | int | str | None:
    """A number as JSON knows it, or as ``nan``, ``inf``, ``-inf``; complex as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, complex):
        return str(value)
    return None if value is None else int(value)


def has_no_number(expected: Expected) -> bool:
    """Whether every expected element is NaN or infinite."""
    if not expected.dtype.is_inexact:
        return False
    values = flat(np.asarray(expected.value))
    starts = range(0, np.size(expected.value), BLOCK)
    return not any(np.isfinite(widen(values[start : start + BLOCK])).any() for start in starts)


def passing_constant(case: TestCase, index: int, measure: Measure, expected: Expected) -> str:
    """Return the name of a wrong constant output that rtol and atol accept, "" if there is none.

    It is zeros or, for the tolerance of a user, the mean of the expected values.

    The other class rules follow the size of the terms, and a sum may cancel to less than its bound.
    """
    rule = measure.rule.name if measure.rule is not None and measure.compared else ""
    values = np.asarray(expected.value)
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

"""Verdicts of several cases at once, where outputs of one kind are judged by one law; it can pass them, never fail one.

A tensor of a few hundred elements costs NumPy's calls, not what they compute: as rows of one array many cost as much as
one. The numbers are those of :mod:`optest.compare.medium`, bit for bit; what is not plainly right is judged alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf as _inf
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from optest.compare import Expected
from optest.compare.bounds import Law, Statistic, array_ulp
from optest.compare.medium import MEDIUM
from optest.compare.policy import Allowance, NoRule, resolve
from optest.compare.small import SMALL, new_measure, place_of
from optest.compare.verdict import new_verdict
from optest.numerics import Array, Quiet, numpy_dtype, ulp, widen
from optest.spec import Check, Evidence, Measure, Numerics, Status, TestCase, Verdict

__all__ = ["Question", "judged_together"]

_MOST_ELEMENTS = 1 << 13
"""Of the rows of one array: a dozen arrays like it stay in the second-level cache."""

_FLOAT64 = np.dtype(np.float64)
_NO_STATISTIC = Statistic.NONE
_PASSED, _MEASURED = Status.PASSED, Evidence.MEASURED


class Question(NamedTuple):
    """What :func:`optest.compare.verdict.judge` is asked for one case, without ``every_measure``."""

    case: TestCase
    actual: Sequence[Any]
    expected: Sequence[Expected]
    numerics: Numerics
    inputs: Sequence[Any]
    checks: tuple[Check, ...]


class _Row(NamedTuple):
    """One output, and the place of its question."""

    place: int
    actual: Array
    reference: Array


def judged_together(questions: Sequence[Question]) -> list[Verdict | None]:
    """The verdict of each question that is a plain pass beside others of its kind, None for all others."""
    verdicts: list[Verdict | None] = [None] * len(questions)
    kinds: dict[tuple[Any, ...], tuple[Expected, Allowance, list[_Row]]] = {}
    for place, question in enumerate(questions):
        allowance = _shared_allowance(question)
        if allowance is None:
            continue
        wanted, actual = question.expected[0], question.actual[0]
        kind = (id(allowance), wanted.name, actual.shape, actual.dtype)
        rows = kinds.setdefault(kind, (wanted, allowance, []))[2]
        rows.append(_Row(place, actual, wanted.value))
    for wanted, allowance, rows in kinds.values():
        most = max(2, _MOST_ELEMENTS // rows[0].actual.size)
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            if len(some) == 1:
                continue
            for row, measure in zip(some, _measures(some, wanted, allowance), strict=True):
                if measure is not None:
                    checks = questions[row.place].checks
                    verdicts[row.place] = new_verdict(
                        status=_PASSED, evidence=_MEASURED, measures=(measure,), checks=checks
                    )
    return verdicts


def _shared_allowance(question: Question) -> Allowance | None:
    """The allowance of a case with one real output of some size, if it is a law that depends on nothing but the
    expected values; the same object for all of which the same is allowed."""
    if len(question.actual) != 1 or len(question.expected) != 1:
        return None
    actual, wanted = question.actual[0], question.expected[0]
    reference = wanted.value
    if (
        type(actual) is not np.ndarray
        or type(reference) is not np.ndarray
        or not SMALL < actual.size <= MEDIUM
        or not actual.shape == wanted.shape == reference.shape
        or not wanted.dtype.is_float
        or actual.dtype != numpy_dtype(wanted.dtype)
        or reference.dtype != _FLOAT64
        or question.numerics.denormals == "flush"
    ):
        return None
    try:
        allowance = resolve(question.case, wanted, 0, question.numerics, question.inputs)
    except NoRule:
        return None
    law = allowance.law
    if law is None or law.statistic is not _NO_STATISTIC or law.per_term != 0.0 or law.ulps == 0.0:
        return None
    return allowance


def _measures(rows: Sequence[_Row], wanted: Expected, allowance: Allowance) -> list[Measure | None]:
    """One for each row whose elements are plainly right; the first of equal largest numbers counts."""
    law, entry, shape = allowance.law, wanted.dtype, rows[0].actual.shape
    assert law is not None
    with Quiet():
        got = widen(np.concatenate([row.actual.reshape(1, -1) for row in rows]), quiet=False)
        want = np.concatenate([row.reference.reshape(1, -1) for row in rows])
        magnitude = np.abs(want)
        spacing = ulp(magnitude, entry)
        bound = _bound(law, magnitude, spacing, entry)
        error = got - want
        np.abs(error, out=error)
        share = error / bound
        relative = error / magnitude
        in_ulps = error / spacing
        worst, error_at = share.argmax(axis=1), error.argmax(axis=1)
        relative_at, ulp_at = relative.argmax(axis=1), in_ulps.argmax(axis=1)
        every = np.arange(len(rows))
        used, largest = share[every, worst], error[every, error_at]
        most_relative = relative[every, relative_at]
        # NaN is the largest of what it is among, and fails every comparison.
        right = (used <= 1.0) & (largest < _inf) & (most_relative < _inf)
        right &= (np.minimum.reduce(bound, axis=1) > 0.0) & (np.maximum.reduce(bound, axis=1) < _inf)
    columns = {
        "worst_index": worst,
        "worst_actual": got[every, worst],
        "worst_expected": want[every, worst],
        "worst_bound": bound[every, worst],
        "worst_used": used,
        "worst_ulp": in_ulps[every, worst],
        "max_abs_error": largest,
        "max_abs_index": error_at,
        "max_rel_error": most_relative,
        "max_rel_index": relative_at,
        "max_ulp_error": in_ulps[every, ulp_at],
        "max_ulp_index": ulp_at,
    }
    numbers = list(zip(*[column.tolist() for column in columns.values()], strict=True))
    found: list[Measure | None] = [None] * len(rows)
    for index, is_right in enumerate(right.tolist()):
        if is_right:
            known = dict(zip(columns, numbers[index], strict=True))
            found[index] = _measure(known, got[index], want[index], error[index], shape, wanted, allowance)
    return found


def _measure(
    known: dict[str, Any],
    got: Array,
    want: Array,
    error: Array,
    shape: tuple[int, ...],
    wanted: Expected,
    allowance: Allowance,
) -> Measure:
    """The measure of one row; ``known`` are its numbers, with the places of elements in the row."""
    for name in _PLACES:
        known[name] = place_of(known[name], shape)
    known["max_ulp_error"] = _finite(known["max_ulp_error"])
    dot, size = np.dot, error.size
    norm = sqrt(dot(got, got)) * sqrt(dot(want, want))
    return new_measure(
        output=wanted.name,
        dtype=wanted.dtype.name,
        shape=shape,
        compared=size,
        rmse=_finite(sqrt(dot(error, error) / size)),
        cosine=float(dot(got, want)) / norm if 0.0 < norm < _inf else None,
        rule=allowance.used,
        **known,
    )


_PLACES = ("worst_index", "max_abs_index", "max_rel_index", "max_ulp_index")


def _bound(law: Law, magnitude: Array, spacing: Array, entry: Any) -> Array:
    """Of each element, from a law whose arithmetic error is a number of units."""
    ulp_arithmetic = (lambda _: spacing) if law.arithmetic is entry else array_ulp(law.arithmetic)
    arithmetic = law.arithmetic_error(magnitude, 0.0, ulp_arithmetic)
    return np.asarray(law.bound(magnitude, arithmetic, array_ulp(entry)))


def _finite(value: float) -> float | None:
    return value if value < _inf else None

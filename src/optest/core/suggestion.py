"""A suggested tolerance for an operator without a rule: the change of its results by one rounding of the inputs.

Steps inside the operator that round worse than its inputs are not included. Functions of torch without a rule are
compared in the same way (:mod:`optest.core.closeness`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optest.core.comparison import Comparison
from optest.generators.counter import Stream, words
from optest.numerics import Array, dtype_of, round_to, widen
from optest.spec import Reason, RuleClass, Verdict

# As for torch functions without a rule: between the 4 roundings of bfloat16 and the 22 of float32 in torch.testing's
# rtol.
_FACTOR = 8.0
HOW = f"{_FACTOR:g} x what one rounding of the inputs, and one of the result, changes"
# Detail of a verdict that has both numbers.
SUGGESTED = "suggested_tolerance"
COMPARE = "compare with a reference function: optest check --function m:fast --reference m:slow"
_DRAWS = 4
# Share of elements for which rtol is enough; atol covers the others, in which terms cancel.
_USUAL = 0.9
_MOST_ELEMENTS = 1 << 20


def with_suggestion(comparison: Comparison, verdict: Verdict) -> Verdict:
    """Add rtol and atol that fit this call, or why none do, to the verdict on an operator without a rule."""
    rule = comparison.case.descriptor.rule
    if verdict.reason is not Reason.BAD_CASE or (rule is not None and rule.kind is not RuleClass.CLOSE):
        return verdict
    if any(array.size > _MOST_ELEMENTS for array in comparison.inputs):
        return verdict
    suggestion = _suggestion(comparison)
    if isinstance(suggestion, str):
        return replace(verdict, message=f"{verdict.message}; {suggestion}")
    rtol, atol, *_ = suggestion
    message = f"{verdict.message}; for example rtol={rtol:g}, atol={atol:g}: {HOW} here"
    return replace(verdict, message=message, details={**verdict.details, SUGGESTED: list(suggestion)})


def accepts_constants(rtol: float, atol: float, spread: float, level: float) -> bool:
    """Return whether zeros, or the mean, would pass for results up to ``level``, ``spread`` away from one of them."""
    return spread <= atol + rtol * level


def _spread_from_constants(true: Array) -> tuple[float, float]:
    """Return the largest distance of results from zeros or, if smaller, from their mean; and the largest result."""
    known = true[np.isfinite(true)]
    sizes = [
        float(np.max(np.abs(each), initial=0.0)) for each in (known, known - known.mean() if known.size else known)
    ]
    return min([size for size in sizes if size] or [math.inf]), sizes[0]


def _suggestion(comparison: Comparison) -> tuple[float, float, float, float] | str:
    """Return rtol and atol that fit all outputs, with the spread and level of one; or the reason why none fit."""
    moved = []
    for draw in range(_DRAWS):
        inputs = [_moved_to_neighbours(comparison, index, draw) for index in range(len(comparison.inputs))]
        with_moved = comparison.with_inputs(inputs)
        if isinstance(with_moved, str):
            return f"no tolerance can be suggested: {with_moved}"
        moved.append(with_moved.expected)
    tolerances = []
    for index, output in enumerate(comparison.expected):
        if output.dtype.is_inexact:
            values = [np.asarray(expected[index].value) for expected in moved]
            tolerances.append(_tolerance(np.asarray(output.value), values, output.dtype.unit_roundoff))
    rtol, atol = (max(numbers, default=0.0) for numbers in (zip(*tolerances, strict=True) if tolerances else ((), ())))
    if not rtol < 1.0:
        return f"no tolerance can be suggested: {HOW} is as much as the results themselves"
    spreads = [
        _spread_from_constants(np.asarray(output.value)) for output in comparison.expected if output.dtype.is_inexact
    ]
    spread, level = min(spreads, key=lambda pair: pair[0] - rtol * pair[1], default=(math.inf, 0.0))
    if accepts_constants(rtol, atol, spread, level):
        return f"no tolerance can be suggested: zeros, or the mean of the results, would pass; {COMPARE}"
    return rtol, atol, spread, level


def _moved_to_neighbours(comparison: Comparison, index: int, draw: int) -> Array:
    """Return an input with each element moved to a neighbour in its dtype, up or down by the case's random bits."""
    array = comparison.inputs[index]
    kind = dtype_of(array.dtype)
    if not kind.is_inexact:
        return array
    stream = Stream(comparison.case.key, f"{comparison.case.inputs[index].path}/moved {draw}")
    bits = [block & 1 for block in words(stream, array.size)]
    up = np.concatenate(bits).reshape(array.shape) if bits else np.zeros(array.shape)
    step = 1.01 * kind.unit_roundoff  # more than half of the distance to the neighbour, less than all of it
    with np.errstate(all="ignore"):
        return round_to(widen(array) * (1.0 + np.where(up, step, -step)), kind)


def _tolerance(true: Array, others: Sequence[Array], unit: float) -> tuple[float, float]:
    """Return rtol and atol for an output; infinite rtol if moved inputs change its shape."""
    if any(each.shape != true.shape for each in others):
        return math.inf, 0.0
    with np.errstate(all="ignore"):
        size = np.abs(true)
        # Divided by 2, because a neighbour is two roundings away.
        changed = np.sqrt(np.mean([np.abs(each - true) ** 2 for each in others], axis=0)) / 2.0
        need = _FACTOR * (changed + unit * size)
        known = np.isfinite(need) & (size > 0)
        rtol = float(np.quantile((need / size)[known], _USUAL)) if known.any() else _FACTOR * unit
        rtol = _round_up(rtol)
        rest = (need - rtol * size)[np.isfinite(need)]
    return rtol, _round_up(float(rest.max(initial=0.0)))


def _round_up(value: float) -> float:
    """Round a positive number up to one digit."""
    if value <= 0.0 or not math.isfinite(value):
        return value
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / unit * 0.999999) * unit:.0e}")

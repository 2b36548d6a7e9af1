"""A tolerance to begin with, for an operator that has no rule: what one rounding of the inputs changes, in float64.

It is what the condition of the call makes of inputs that nobody knows better, as results of torch functions without a
rule are looked at (``core/closeness.py``); a step between that rounds worse than the inputs do is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.core.comparison import Comparison
from optest.generators.counter import Stream, words
from optest.numerics import dtype_of, round_to, widen
from optest.spec import Reason, RuleClass, Verdict

Array = np.ndarray[Any, Any]
_FACTOR = 8.0
"""That of torch functions without a rule: between the 4 roundings of bfloat16 and the 22 of float32 that torch.testing
has for rtol."""
HOW = f"{_FACTOR:g} x what one rounding of the inputs, and one of the result, changes"
SUGGESTED = "suggested_tolerance"
"""The detail of a verdict that has both numbers."""
COMPARE = "compare with a reference function: optest check --function m:fast --reference m:slow"
_DRAWS = 4
_USUAL = 0.9
"""The share of elements for which rtol is enough; what terms that cancel leave of the others needs atol."""
_MOST_ELEMENTS = 1 << 20


def with_suggestion(comparison: Comparison, verdict: Verdict) -> Verdict:
    """The verdict on an operator without a rule, with rtol and atol that fit this call, or why none do."""
    rule = comparison.case.descriptor.rule
    if verdict.reason is not Reason.BAD_CASE or (rule is not None and rule.kind is not RuleClass.CLOSE):
        return verdict
    if any(array.size > _MOST_ELEMENTS for array in comparison.inputs):
        return verdict
    found = _suggestion(comparison)
    if isinstance(found, str):
        return replace(verdict, message=f"{verdict.message}; {found}")
    rtol, atol, *_ = found
    message = f"{verdict.message}; for example rtol={rtol:g}, atol={atol:g}: {HOW} here"
    return replace(verdict, message=message, details={**verdict.details, SUGGESTED: list(found)})


def lets_constants_pass(rtol: float, atol: float, spread: float, level: float) -> bool:
    """Return whether zeros, or the mean, would pass for results up to ``level``, ``spread`` away from one of them."""
    return spread <= atol + rtol * level


def _spread(true: Array) -> tuple[float, float]:
    """Return the largest distance of results from zeros or, if smaller, from their mean; and the largest result."""
    known = true[np.isfinite(true)]
    sizes = [
        float(np.max(np.abs(each), initial=0.0)) for each in (known, known - known.mean() if known.size else known)
    ]
    return min([size for size in sizes if size] or [math.inf]), sizes[0]


def _suggestion(comparison: Comparison) -> tuple[float, float, float, float] | str:
    """Return rtol and atol that fit all outputs, with the spread and level of one; or why there are none."""
    moved = []
    for draw in range(_DRAWS):
        other = comparison.with_inputs([_moved(comparison, place, draw) for place in range(len(comparison.inputs))])
        if isinstance(other, str):
            return f"no number can be suggested: {other}"
        moved.append(other.expected)
    needs = []
    for place, each in enumerate(comparison.expected):
        if each.dtype.is_inexact:
            values = [np.asarray(others[place].value) for others in moved]
            needs.append(_tolerance(np.asarray(each.value), values, each.dtype.unit_roundoff))
    rtol, atol = (max((need[place] for need in needs), default=0.0) for place in (0, 1))
    if not rtol < 1.0:
        return f"no number can be suggested: {HOW} is as much as the results themselves"
    spreads = [_spread(np.asarray(each.value)) for each in comparison.expected if each.dtype.is_inexact]
    spread, level = min(spreads, key=lambda pair: pair[0] - rtol * pair[1], default=(math.inf, 0.0))
    if lets_constants_pass(rtol, atol, spread, level):
        return f"no number can be suggested: zeros, or the mean of the results, would pass; {COMPARE}"
    return rtol, atol, spread, level


def _moved(comparison: Comparison, place: int, draw: int) -> Array:
    """An input with each element moved to one of its neighbours, up or down by the bits of the case."""
    array = comparison.inputs[place]
    kind = dtype_of(array.dtype)
    if not kind.is_inexact:
        return array
    stream = Stream(comparison.case.key, f"{comparison.case.inputs[place].path}/moved {draw}")
    bits = [block & 1 for block in words(stream, array.size)]
    up = np.concatenate(bits).reshape(array.shape) if bits else np.zeros(array.shape)
    step = 1.01 * kind.unit_roundoff  # more than half of the distance to the neighbour, less than all of it
    with np.errstate(all="ignore"):
        return round_to(widen(array) * (1.0 + np.where(up, step, -step)), kind)


def _tolerance(true: Array, others: Sequence[Array], unit: float) -> tuple[float, float]:
    """rtol and atol for an output: a neighbour is two roundings away. Elements that are no numbers say nothing."""
    if any(each.shape != true.shape for each in others):
        return math.inf, 0.0
    with np.errstate(all="ignore"):
        size = np.abs(true)
        changed = np.sqrt(np.mean([np.abs(each - true) ** 2 for each in others], axis=0)) / 2.0
        need = _FACTOR * (changed + unit * size)
        known = np.isfinite(need) & (size > 0)
        rtol = float(np.quantile((need / size)[known], _USUAL)) if known.any() else _FACTOR * unit
        rtol = _rounded_up(rtol)
        rest = (need - rtol * size)[np.isfinite(need)]
    return rtol, _rounded_up(float(rest.max(initial=0.0)))


def _rounded_up(value: float) -> float:
    """To one digit."""
    if value <= 0.0 or not math.isfinite(value):
        return value
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / unit * 0.999999) * unit:.0e}")

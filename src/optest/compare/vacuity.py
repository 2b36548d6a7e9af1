"""Whether a pass proves anything: would an output of nothing but zeros have passed by the same tolerance?"""

from __future__ import annotations

import numpy as np

from optest.compare import Expected
from optest.compare.assert_close import fitting_tolerance
from optest.compare.elements import flat
from optest.compare.policy import remembered_tolerance
from optest.compare.zeros import zeros_are_within
from optest.numerics import widen
from optest.spec import Measure, RuleClass, TestCase

__all__ = ["admits_zeros", "has_no_number"]


def has_no_number(wanted: Expected) -> bool:
    """Whether every expected element is NaN or infinite."""
    if not wanted.dtype.is_inexact:
        return False
    values = flat(np.asarray(wanted.value))
    starts = range(0, np.size(wanted.value), _BLOCK)
    return not any(np.isfinite(widen(values[start : start + _BLOCK])).any() for start in starts)


_BLOCK = 1 << 15


def admits_zeros(case: TestCase, index: int, measure: Measure, wanted: Expected) -> bool:
    """Whether rtol and atol are so wide that zeros pass too, though zeros are not what is expected.

    The other class rules are not asked: they follow the size of the terms, and a sum may cancel to less than its bound.
    """
    if measure.rule is None or not measure.compared:
        return False
    allowed = _allowed(case, index, measure.rule.name, wanted)
    if allowed is None:
        return False
    return zeros_are_within(np.asarray(wanted.value), *allowed)


def _allowed(case: TestCase, index: int, rule: str, wanted: Expected) -> tuple[float, float, float] | None:
    """rtol, atol and the share of elements that may be wrong; None for a rule that has other words."""
    if rule == RuleClass.CLOSE.value:
        close = fitting_tolerance(wanted.dtype, wanted.value)
        return None if close is None else (*close, 0.0)
    if rule != "tolerance":
        return None
    stated = remembered_tolerance(case.tolerances, case.descriptor, index, wanted.name, False, False)
    return None if stated is None else (stated.rtol, stated.atol, stated.mismatch_ratio)

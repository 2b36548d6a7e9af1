"""Measures equal their definitions, computed one element after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.compare import Expected
from optest.compare.policy import Allowance, Method
from optest.compare.verdict import _compare_values
from optest.numerics import numpy_dtype, ulp
from optest.spec import Measure, Numerics, RuleUsed, dtype

TOLERANCE = Allowance(
    used=RuleUsed(name="tolerance", layer="case", text=""), method=Method.TOLERANCE, rtol=1e-2, atol=1e-3
)
EXACT = Allowance(used=RuleUsed(name="exact", layer="operator", text=""), method=Method.EXACT)


def by_definition(got: list[float], want: list[float], name: str, allowance: Allowance) -> dict[str, Any] | None:
    """Return the measures by the words of ``Measure``; None if an element is wrong or not finite."""
    top = dtype(name).max_finite
    best: dict[str, tuple[float, int]] = {}

    def see(what: str, value: float, index: int) -> None:
        if what not in best or value > best[what][0]:
            best[what] = (value, index)

    ulps: list[float] = []
    for index, (actual, target) in enumerate(zip(got, want, strict=True)):
        error, magnitude = abs(actual - target), abs(target)
        bound = allowance.atol + allowance.rtol * magnitude
        if not (error <= bound and magnitude <= top):
            return None
        ulps.append(error / float(ulp(np.array([magnitude]), dtype(name))[0]))
        see("used", error / bound if bound else 0.0, index)
        see("abs", error, index)
        see("ulp", ulps[-1], index)
        if magnitude:
            see("rel", error / magnitude, index)
    used, worst = best["used"]
    found: dict[str, Any] = {"compared": len(got), "worst_used": used, "worst_index": worst, "worst_ulp": ulps[worst]}
    found |= {"worst_actual": got[worst], "worst_expected": want[worst]}
    for what in ("abs", "rel", "ulp"):
        found[f"max_{what}_error"], found[f"max_{what}_index"] = best.get(what, (None, None))
    rmse = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want, strict=True)) / len(got))
    return {**found, "rmse": rmse}


def shown(measure: Measure, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields, indices as positions in memory order."""
    values = {name: getattr(measure, name) for name in names}
    indices = {name: int(np.ravel_multi_index(x, measure.shape)) for name, x in values.items() if isinstance(x, tuple)}
    return values | indices


def measured(actual: np.ndarray[Any, Any], reference: np.ndarray[Any, Any], name: str, allowance: Allowance) -> Any:
    wanted = Expected(name="out", dtype=dtype(name), shape=actual.shape, value=reference)
    return _compare_values(actual, reference, wanted, allowance, Numerics(), every_measure=False).measure


VALUES = st.one_of(
    st.floats(width=16, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e-8, 6e-8, -6.1e-5, 65504.0, -65504.0, 1.0, 2.0, 0.5]),
)
SLIPS = st.sampled_from([0.0, 0.0, 0.0, 1e-3, -2e-3, 1e-4, 5e-3, 1.0])


@given(
    pairs=st.lists(st.tuples(VALUES, SLIPS), min_size=1, max_size=20),
    name=st.sampled_from(["float16", "float32"]),
    wide=st.booleans(),
)
def test_measures_follow_their_definitions(pairs: list[tuple[float, float]], name: str, wide: bool) -> None:
    """``wide`` has unrounded float64 references, which are rounded before they are compared by a tolerance."""
    kind = numpy_dtype(dtype(name))
    reference = np.array([value for value, _ in pairs], np.float64 if wide else kind)
    with np.errstate(all="ignore"):
        actual = (reference + np.array([value * slip for value, slip in pairs])).astype(kind)
    rounded = [float(each) for each in reference.astype(kind)]
    for allowance in (TOLERANCE, EXACT):
        found = measured(actual, reference, name, allowance)
        defined = by_definition([float(each) for each in actual], rounded, name, allowance)
        if defined is None:
            assert found.mismatched or not np.isfinite([*actual, *reference.astype(kind)]).all()
            continue
        assert found.rmse == pytest.approx(defined.pop("rmse"), rel=1e-12, abs=0.0)
        assert shown(found, defined) == defined


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_ulp_at_zero_is_smallest_number(name: str) -> None:
    kind = numpy_dtype(dtype(name))
    reference = np.array([0.0, -0.0, 1.0])
    actual = np.array([np.finfo(kind).smallest_subnormal, 0.0, 1.0], kind)
    assert measured(actual, reference, name, TOLERANCE).max_ulp_error == 1.0


def test_first_of_equal_errors_is_named() -> None:
    reference = np.array([[1.0, 2.0, 1.0], [4.0, 1.0, 0.0]])
    actual = reference.astype(np.float32)
    actual[0, 2] += np.float32(2**-10)
    actual[1, 1] += np.float32(2**-10)
    measure = measured(actual, reference, "float32", TOLERANCE)
    assert (measure.max_abs_index, measure.max_rel_index, measure.max_ulp_index) == ((0, 2), (0, 2), (0, 2))
    assert measure.worst_index == (0, 2)

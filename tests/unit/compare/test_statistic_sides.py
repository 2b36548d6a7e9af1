"""Sides on which inexact results are, counted as defined and on request only."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, EXACT, ULP, stated, verdict_of
from hypothesis import given
from hypothesis import strategies as st

from optest.compare.statistic import Sides
from optest.numerics import numpy_dtype, round_to, ulp, widen
from optest.spec import Numerics, Reason, Rounding, Rule, RuleClass, Terms, dtype

LOOSE = Rule(kind=RuleClass.ULP, ulp=4.0)
NAMES = ("float32", "float16", "bfloat16", "float8_e4m3fn")


def by_definition(got: Any, want: Any, name: str) -> dict[str, Any]:
    """Return the counts by the words of ``Rounding``, one element after the other, in exact arithmetic."""
    counts = dict.fromkeys(("inexact", "above", "away", "nearest_above", "nearest_away", "astray"), 0)
    squared = 0.0
    for actual, true in zip(widen(got).tolist(), want.tolist(), strict=True):
        nearest = float(widen(round_to(np.array([true]), dtype(name)))[0])
        gap = float(ulp(np.array([true]), dtype(name))[0])
        if nearest == true or abs(Fraction(nearest) - Fraction(true)) * 2 == Fraction(gap):
            continue
        counts["inexact"] += 1
        counts["above"] += actual > true
        counts["away"] += (actual > true) if true > 0 else (actual < true)
        counts["nearest_above"] += nearest > true
        counts["nearest_away"] += (nearest > true) if true > 0 else (nearest < true)
        counts["astray"] += (actual > true) != (nearest > true)
        squared += ((actual - true) / gap) ** 2
    return {**counts, "squared": squared}


def stepped(want: Any, steps: Any, name: str) -> Any:
    """Return the nearest numbers of the dtype, moved by steps; those beyond the finite numbers stay."""
    nearest = widen(round_to(want, dtype(name)))
    moved = nearest + steps * ulp(want, dtype(name))
    top = dtype(name).max_finite
    return round_to(np.where(np.abs(moved) <= top, moved, nearest), dtype(name))


@given(
    name=st.sampled_from(NAMES),
    rows=st.lists(st.tuples(st.floats(-400.0, 400.0), st.integers(-2, 2)), min_size=1, max_size=40),
    short=st.booleans(),
)
def test_counts_follow_definition(name: str, rows: list[tuple[float, int]], short: bool) -> None:
    want = np.array([value for value, _ in rows])
    if short:  # ties and numbers that the dtype holds
        want = np.round(want * 16.0) / 16.0
    got = stepped(want, np.array([step for _, step in rows], dtype=np.float64), name)
    sides = Sides()
    for start in range(0, want.size, 7):
        sides.add(widen(got[start : start + 7]), want[start : start + 7], dtype(name), None)
    wanted = by_definition(got, want, name)
    found = {field: getattr(sides, field) for field in wanted if field != "squared"}
    assert found == {field: count for field, count in wanted.items() if field != "squared"}
    assert sides.squared_ulp == pytest.approx(wanted["squared"], rel=1e-12)
    wide = verdict_of(got, want, name, rule=None, layers=(stated(1.0, 1e3),), every_measure=True).measures[0].rounding
    assert (wide is None) == (not wanted["inexact"])
    if wide is not None:  # also by the way of a handful of elements
        assert {field: getattr(wide, field) for field in found} == found
        assert wide.rms_ulp == pytest.approx((wanted["squared"] / wanted["inexact"]) ** 0.5, rel=1e-12)


def values(size: int = 4000) -> Any:
    return np.random.default_rng(5).standard_normal(size)


def truncated(want: Any, name: str = "float32") -> Any:
    nearest = widen(round_to(want, dtype(name)))
    return round_to(
        np.where(np.abs(nearest) > np.abs(want), nearest - np.sign(want) * ulp(want, dtype(name)), nearest), dtype(name)
    )


def rounding_of(got: Any, want: Any, name: str = "float32", **more: Any) -> Rounding:
    found = verdict_of(got, want, name, **{"rule": LOOSE, "every_measure": True, **more}).measures[0].rounding
    assert found is not None
    return found


def test_truncation_shows_though_it_passes() -> None:
    verdict = verdict_of(truncated(values()), values(), rule=LOOSE, every_measure=True)
    assert verdict.reason is None
    found = verdict.measures[0].rounding
    assert found is not None
    assert (found.inexact, found.away, found.astray) == (4000, 0, found.nearest_away)
    assert 0.45 < found.above / 4000 < 0.55
    assert found.rms_ulp == pytest.approx(3**-0.5, abs=0.02)


def test_correct_rounding_is_astray_nowhere() -> None:
    found = rounding_of(values().astype(np.float32), values())
    assert (found.astray, found.above, found.away) == (0, found.nearest_above, found.nearest_away)
    assert found.rms_ulp == pytest.approx(12**-0.5, abs=0.01)


def test_inputs_rounding_to_one_side_are_no_bias() -> None:
    want = 1.0 - np.linspace(1e-9, 2e-8, 3000)
    found = rounding_of(want.astype(np.float32), want)
    assert found.above == found.nearest_above == found.inexact == 3000


def test_sides_are_counted_on_request_only() -> None:
    assert verdict_of(truncated(values()), values(), rule=LOOSE).measures[0].rounding is None
    few = values(5)
    assert verdict_of(truncated(few), few, rule=LOOSE).measures[0].rounding is None
    assert rounding_of(truncated(few), few).away == 0


def test_a_failure_is_always_asked() -> None:
    want = values()
    verdict = verdict_of(truncated(want, "bfloat16"), want, "bfloat16", rule=ULP)
    assert verdict.reason is Reason.VALUE
    found = verdict.measures[0].rounding
    assert found is not None
    assert (found.away, found.inexact) == (0, 4000)
    one_off = values(5).astype(np.float32) * np.float32(2.0)
    assert verdict_of(one_off, values(5), rule=LOOSE).measures[0].rounding is not None


@pytest.mark.parametrize(
    ("entry", "rule", "want"),
    [
        ("float64", LOOSE, values(20)),
        ("int32", EXACT, np.arange(20)),
        ("float32", EXACT, values(20).astype(np.float32).astype(np.float64)),
        ("complex64", None, values(20) + 1j),
    ],
)
def test_there_is_none_where_nothing_can_be_told(entry: str, rule: Rule | None, want: Any) -> None:
    got = want.astype(numpy_dtype(dtype(entry)))
    layers = () if rule is not None else (stated(1e-3, 1e-3),)
    assert verdict_of(got, want, entry, rule=rule, layers=layers, every_measure=True).measures[0].rounding is None


def test_stored_expectations_have_no_digits_to_tell_by() -> None:
    want = values()
    assert (
        verdict_of(truncated(want), want.astype(np.float32), rule=LOOSE, every_measure=True).measures[0].rounding
        is None
    )


def test_equal_values_are_one_draw() -> None:
    want = np.repeat(values(20), 200)
    assert rounding_of(truncated(want), want).draws == 20
    assert rounding_of(truncated(values()), values()).draws == 4000


def test_nan_infinity_and_flushed_results_are_left_out() -> None:
    want = np.concatenate([values(100), [np.nan, np.inf, 1e300]])
    got = np.concatenate([values(100).astype(np.float32), np.array([np.nan, np.inf, np.inf], np.float32)])
    assert rounding_of(got, want).inexact == 100
    tiny = np.full(50, 3.3e-40)
    flushing = Numerics(denormals="flush")
    assert (
        verdict_of(np.zeros(50, np.float32), tiny, rule=LOOSE, numerics=flushing, every_measure=True)
        .measures[0]
        .rounding
        is None
    )


def test_a_sum_is_asked_as_well() -> None:
    want = values(300)
    terms = Terms(absolute=np.full(300, 40.0), squared=np.full(300, 50.0), count=50)
    found = rounding_of(np.nextafter(want.astype(np.float32), np.float32(9)), want, rule=ACCUMULATE, terms=terms)
    assert found.above == found.inexact == 300

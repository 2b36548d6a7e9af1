"""The predicate against a slow oracle in exact fractions, on every path that a verdict can take."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, COMPOSED, EXACT, MOVEMENT, ULP, case_of, expect, stated, verdict_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optest.compare import fast_tolerance, kernels
from optest.compare.elements import Ends
from optest.compare.policy import Allowance, Method
from optest.compare.verdict import compare_outputs
from optest.numerics import numpy_dtype, round_to, ulp, widening
from optest.spec import DType, ErrorBudget, Numerics, Reason, Rule, RuleClass, RuleUsed, Status, Terms, Verdict, dtype

FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")


Pair = tuple[str, list[float], list[float]]
"""A dtype, actual values and reference values."""


def exact_ulp(value: Fraction, entry: DType) -> Fraction:
    """Return the gap above |value|, in exact arithmetic."""
    exponent = entry.emin
    while Fraction(2) ** (exponent + 1) <= abs(value):
        exponent += 1
    return Fraction(2) ** (exponent - entry.precision + 1)


def threshold(entry: DType) -> Fraction:
    return Fraction(entry.max_finite) + exact_ulp(Fraction(entry.max_finite), entry) / 2


def oracle(actual: float, reference: float, bound: float, target: float, entry: DType) -> bool:
    """Return whether one element is right: class first, then |actual - target| <= bound in exact arithmetic."""
    if math.isnan(reference):
        return math.isnan(actual)
    if math.isinf(reference):
        top = math.copysign(entry.max_finite, reference)
        return actual == reference if entry.has_infinity else math.isnan(actual) or actual == top
    # Without a finite bound infinity is right where correct rounding gives it, and nothing else is.
    reach = bound if math.isfinite(bound) else 0.0
    if abs(Fraction(reference)) + Fraction(reach) >= threshold(entry):
        top = math.copysign(entry.max_finite, reference)
        if math.isnan(actual) if not entry.has_infinity else actual == math.copysign(math.inf, top):
            return True
        if actual == top and (not entry.has_infinity or abs(reference) - reach < threshold(entry)):
            return True
    if not (math.isfinite(actual) and math.isfinite(target) and math.isfinite(bound)):
        return False
    return float(abs(Fraction(actual) - Fraction(target))) <= bound


def tolerance_oracle(actual: float, reference: float, rtol: float, atol: float, entry: DType) -> bool:
    target = float(round_to(np.float64(reference), entry))
    base = target if math.isfinite(target) else reference
    return oracle(actual, reference, atol + rtol * abs(base), target, entry)


@st.composite
def pairs(draw: st.DrawFn, longest: int = 20) -> Pair:
    """Draw a dtype, actual values in it, and unrounded reference values near them."""
    name = draw(st.sampled_from(FLOATS[:3] + FLOATS[4:]))
    entry = dtype(name)
    top = entry.max_finite
    smallest = 2.0 ** (entry.emin - entry.precision + 1)
    special = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, top, -top, 2.0**entry.emin, smallest])
    reference = st.one_of(
        st.floats(-4, 4), st.floats(-2 * top, 2 * top), st.floats(2.0**entry.emin / 8, 2.0**entry.emin * 2), special
    )
    size = draw(st.integers(1, longest))
    wanted = [draw(reference) for _ in range(size)]
    nearby = [1.0, 1.0 + 2.0**-entry.precision, 1.0 - 2.0 ** (1 - entry.precision), 1.001, 0.99]
    got = [value * draw(st.sampled_from(nearby)) if draw(st.integers(0, 5)) else draw(reference) for value in wanted]
    return name, [float(each) for each in round_to(np.array(got, dtype=np.float64), entry)], wanted


TOLERANCES = st.tuples(
    st.sampled_from([0.0, 2.0**-8, 1e-3, 0.1, 1e300]), st.sampled_from([0.0, 2.0**-10, 1e-5, 0.5, 1e-40])
)


@settings(max_examples=50, deadline=None)
@given(pairs(), TOLERANCES)
@example(("float16", [65504.0], [70000.0]), (0.0, 0.0))
@example(("float16", [math.inf], [65519.0]), (0.0, 0.0))
@example(("float8_e4m3fn", [math.nan], [460.0]), (0.01, 0.0))
@example(("float32", [math.inf, 3.4028234663852886e38], [3.4028235677973366e38] * 2), (1e300, 0.0))
def test_tolerance_is_the_oracle(pair: Pair, tolerance: tuple[float, float]) -> None:
    name, got, wanted = pair
    rtol, atol = tolerance
    right = [tolerance_oracle(a, y, rtol, atol, dtype(name)) for a, y in zip(got, wanted, strict=True)]
    for repeats in (1, 3):
        actual = np.tile(np.array(got), repeats).astype(numpy_dtype(dtype(name)))
        verdict = verdict_of(actual, np.tile(np.array(wanted), repeats), name, layers=(stated(rtol, atol),))
        assert (verdict.status is Status.PASSED) == all(right)
        assert verdict.measures[0].mismatched == repeats * right.count(False)


@settings(max_examples=50, deadline=None)
@given(pairs(), st.sampled_from([0.5, 2.0, 16.0]))
def test_ulp_rule_is_the_oracle(pair: Pair, ceiling: float) -> None:
    name, got, wanted = pair
    entry, single = dtype(name), dtype("float32")
    right = []
    for actual, reference in zip(got, wanted, strict=True):
        bound = math.nan
        if math.isfinite(reference):
            arithmetic = Fraction(ceiling) * exact_ulp(Fraction(reference), single)
            final = 0 if name == "float32" else exact_ulp(abs(Fraction(reference)) + arithmetic, entry) / 2
            bound = float(arithmetic + final)
        right.append(oracle(actual, reference, bound, reference, entry))
    for repeats in (1, 3):
        actual = np.tile(np.array(got), repeats).astype(numpy_dtype(entry))
        rule = Rule(kind=RuleClass.ULP, ulp=ceiling)
        verdict = verdict_of(actual, np.tile(np.array(wanted), repeats), name, rule=rule)
        assert verdict.measures[0].mismatched == repeats * right.count(False)
        if not all(right):
            assert verdict.status is Status.FAILED


@settings(max_examples=50, deadline=None)
@given(pairs(longest=50), TOLERANCES)
def test_the_fast_test_accepts_nothing_that_is_wrong(pair: Pair, tolerance: tuple[float, float]) -> None:
    name, got, wanted = pair
    entry = dtype(name)
    fast = fast_tolerance.within_for(entry, *tolerance)
    if fast is None:
        return
    actual = np.array(got).astype(numpy_dtype(entry))
    expected = round_to(np.array(wanted, dtype=np.float64), entry)
    with np.errstate(all="ignore"):
        accepted = fast(actual, expected)
    if accepted:
        values = [float(each) for each in expected]
        assert all(tolerance_oracle(a, e, *tolerance, entry) for a, e in zip(got, values, strict=True))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_the_fast_test_accepts_what_is_right(name: str) -> None:
    entry = dtype(name)
    expected = round_to(np.linspace(-1000, 1000, 5000), entry)
    actual = round_to(np.linspace(-1000, 1000, 5000) * 1.001, entry)
    fast = fast_tolerance.within_for(entry, 1e-2, 1e-3)
    assert fast is not None
    assert fast(actual, expected)
    assert not fast(round_to(np.linspace(-1000, 1000, 5000) * 1.02, entry), expected)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_fast_test_rejects_first_value_beyond_bound(name: str) -> None:
    entry, rng = dtype(name), np.random.default_rng(3)
    rtol, atol = 1e-2, 1e-3
    fast = fast_tolerance.within_for(entry, rtol, atol)
    assert fast is not None
    expected = round_to(rng.uniform(-100, 100, 2000), entry)
    wide = expected.astype(np.float64)
    bound = atol + rtol * np.abs(wide)
    actual = round_to(wide + bound, entry)
    beyond = np.abs(actual.astype(np.float64) - wide) > bound
    assert beyond.sum() > 500
    for at in np.flatnonzero(beyond):
        assert not fast(actual[at : at + 1], expected[at : at + 1])


@pytest.mark.parametrize("code", [0x7C00, 0x7C01, 0x7FFF, 0xFC00, 0xFE00])
def test_the_fast_test_refuses_half_infinity_and_nan(code: int) -> None:
    fast = fast_tolerance.within_for(dtype("float16"), 0.9, 1e4)
    assert fast is not None
    actual = np.array([code], np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        assert not fast(actual, np.array([65504.0 if code < 0x8000 else -65504.0], np.float16))
        assert not fast(np.ones(1, np.float16), actual)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_16_bit_float_loads_exactly(name: str) -> None:
    every = np.arange(0x10000, dtype=np.uint16).view(numpy_dtype(dtype(name)))
    loaded = np.empty(every.size, np.float32)
    with np.errstate(all="ignore"):
        widening.LOADERS[name](every, loaded)
        expected = every.astype(np.float32)
    finite = np.isfinite(expected)
    assert np.array_equal(loaded[finite].view(np.uint32), expected[finite].view(np.uint32))
    if name == "bfloat16":
        assert np.array_equal(loaded, expected, equal_nan=True)
    else:
        assert np.abs(loaded[~finite]).min() >= widening.HALF_INFINITY


@pytest.mark.parametrize("at", [0, kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 3 * kernels.BLOCK])
@pytest.mark.parametrize("layout", ["dense", "strided"])
def test_wrong_element_is_found_at_block_borders(at: int, layout: str) -> None:
    size = 3 * kernels.BLOCK + 1
    reference = np.linspace(1.0, 2.0, size)
    actual = reference.astype(np.float32)
    actual[at] *= np.float32(1.5)
    if layout == "strided":
        storage = np.zeros(2 * size, np.float32)
        storage[::2] = actual
        actual = storage[::2]
    verdict = verdict_of(actual, reference, rule=ULP)
    measure = verdict.measures[0]
    assert (verdict.reason, measure.mismatched, measure.worst_index) == (Reason.VALUE, 1, (at,))
    assert measure.max_abs_index == measure.max_rel_index == measure.max_ulp_index == (at,)
    assert measure.compared == size
    assert measure.where == f"element [{at}]"


def test_large_tensors_need_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.compare.verdict.ALWAYS_DETAILED", 1000)
    reference = np.linspace(1.0, 2.0, 200_000)
    actual = reference.astype(np.float32)
    passed = verdict_of(actual, reference, rule=ULP).measures[0]
    assert (passed.compared, passed.worst_index, passed.rmse) == (200_000, None, None)
    assert verdict_of(actual, reference, rule=ULP, every_measure=True).measures[0].rmse is not None
    actual[150_000] = 3.0
    failed = verdict_of(actual, reference, rule=ULP).measures[0]
    assert (failed.worst_index, failed.mismatched) == ((150_000,), 1)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_large_same_dtype_pair_has_same_verdict(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.compare.verdict.ALWAYS_DETAILED", 1000)
    entry = dtype(name)
    expected = round_to(np.random.default_rng(0).standard_normal(200_000), entry)
    actual = np.array(expected)
    layers = (stated(1e-2, 1e-2),)
    with monkeypatch.context() as patch:  # nothing but the fast test is needed for a pass
        patch.setattr(kernels, "block_comparison", None)
        passed = verdict_of(actual, expected, name, layers=layers)
    assert (passed.status, passed.measures[0].compared) == (Status.PASSED, 200_000)
    for value, reason in ((5.0, Reason.VALUE), (math.nan, Reason.NAN), (math.inf, Reason.VALUE)):
        wrong = np.array(actual)
        wrong[131_072] = value
        verdict = verdict_of(wrong, expected, name, layers=layers)
        assert (verdict.reason, verdict.measures[0].worst_index) == (reason, (131_072,))


def test_blocks_need_little_memory() -> None:
    import tracemalloc

    size = 3_000_000
    reference = np.linspace(1.0, 2.0, size)
    actual = reference.astype(np.float32)
    allowance = Allowance(used=RuleUsed(name="t", layer="case", text=""), method=Method.TOLERANCE, rtol=1e-3, atol=1e-3)
    for detailed in (False, True):
        tracemalloc.start()
        kernels.compare(actual, reference, dtype("float32"), allowance, ends=Ends(), detailed=detailed)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32e6


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("ceiling", [0.5, 3.0])
def test_large_ulp_verdicts_equal_exact_path(name: str, ceiling: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements at and around the bound, zeros, subnormals and powers of two, in blocks that are not sampled."""
    monkeypatch.setattr("optest.compare.verdict.ALWAYS_DETAILED", 0)
    monkeypatch.setattr(kernels, "BLOCK", 64)
    entry, rng = dtype(name), np.random.default_rng(5)
    tiny = 2.0 ** rng.uniform(entry.emin - entry.precision, entry.emin + 2, 300)
    reference = np.concatenate([[0.0] * 100, tiny, 2.0 ** rng.uniform(-3, 3, 3000), np.exp2(rng.integers(-3, 3, 100))])
    rounded = round_to(reference, entry)
    outcomes = set()
    for step in (0.0, 0.4, 1.0, 3.0, 5.0):
        shift = step * rng.choice([-1.0, 1.0], reference.size) * ulp(reference, entry)
        for actual in (round_to(reference + shift, entry), np.where(rng.random(reference.size) < 0.001, 2, rounded)):
            got = actual.astype(rounded.dtype)
            rule = Rule(kind=RuleClass.ULP, ulp=ceiling)
            quick = verdict_of(got, reference, name, rule=rule)
            slow = verdict_of(got, reference, name, rule=rule, every_measure=True)
            assert quick.status is slow.status
            assert quick.measures[0].mismatched == slow.measures[0].mismatched
            outcomes.add(quick.status)
    assert outcomes == {Status.PASSED, Status.FAILED}


RULES = {
    "movement": MOVEMENT,
    "exact": EXACT,
    "half": Rule(kind=RuleClass.ULP, ulp=0.5),
    "two": Rule(kind=RuleClass.ULP, ulp=2.0),
    "accumulate": ACCUMULATE,
    "composed": COMPOSED,
    "tolerance": None,
}


COPIES = (1, 3, 16, 17, 64, 5000)


VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45, -6e-8, 448.0, 65504.0, 3.4e38, 1.0, -1.5]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)


def terms_of(rule: str, reference: np.ndarray[Any, Any]) -> Any:
    """Return terms of sums of one term, or a budget without a variance: neither statistic grows with the size."""
    size = np.abs(np.nan_to_num(reference, posinf=1.0, neginf=1.0))
    if rule == "accumulate":
        return Terms(absolute=size, squared=size * size, count=1)
    return ErrorBudget(worst=size) if rule == "composed" else None


def verdict_of_copies(
    rule: str, name: str, right: float, value: float, got: float, copies: int, stored: bool
) -> Verdict:
    """Compare ``copies`` of a right element, and one that is ``got`` where ``value`` is expected."""
    entry, layers = dtype(name), () if RULES[rule] is not None else (stated(rtol=1e-2, atol=1e-6),)
    reference = np.array([right] * copies + [value])
    with np.errstate(all="ignore"):
        actual = np.concatenate([round_to(reference[:-1], entry), round_to(np.array([got]), entry)])
        if stored:
            reference = np.asarray(round_to(reference, entry))
    case = case_of(RULES[rule], (name,), layers=layers, shape=reference.shape)
    wanted = expect(reference, name, terms=terms_of(rule, np.asarray(reference, dtype=np.float64)))
    return compare_outputs(case, [actual.astype(numpy_dtype(entry), copy=False)], [wanted], numerics=Numerics())


@settings(max_examples=100, deadline=None)
@given(
    rule=st.sampled_from(sorted(RULES)),
    name=st.sampled_from(FLOATS),
    right=st.sampled_from([1.0, 0.0, 2.5, np.nan, np.inf]),
    value=VALUES,
    other=st.one_of(st.none(), VALUES),
    slip=st.sampled_from([0.0, 0.5, 1.0, 2.0, 40.0]),
    stored=st.booleans(),
)
@example("movement", "float32", 1.0, -0.0, 0.0, 0.0, False)
@example("movement", "float32", 1.0, 0.0, -0.0, 0.0, True)
@example("exact", "float16", 1.0, np.nan, 1.0, 0.0, False)
def test_verdict_ignores_number_of_right_elements(
    rule: str, name: str, right: float, value: float, other: float | None, slip: float, stored: bool
) -> None:
    """``other`` is the actual value; None for one that is ``slip`` units off."""
    with np.errstate(all="ignore"):
        got = value * (1.0 + slip * 2.0 ** (1 - dtype(name).precision)) if other is None else other
    found = [verdict_of_copies(rule, name, right, value, got, copies, stored) for copies in COPIES]
    if found[0].status is Status.FAILED and not any(each.mismatched for each in found[0].measures):
        return  # only the statistic of all errors is too large, which is a matter of how many there are
    assert {(each.status, each.reason) for each in found} == {(found[0].status, found[0].reason)}


def test_movement_compares_signs_of_zeros() -> None:
    for copies in COPIES:
        assert verdict_of_copies("movement", "float32", 1.0, -0.0, 0.0, copies, False).reason is Reason.VALUE

"""The quick measure of a tensor of one block is that of the kernels, number for number, and passes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, COMPOSED, EXACT, MOVEMENT, case_of, expect, stated
from hypothesis import example, given
from hypothesis import strategies as st

from optest.compare import judge, verdict
from optest.compare.medium import MEDIUM, _Numbers
from optest.compare.small import SMALL
from optest.numerics import numpy_dtype, round_to
from optest.spec import ErrorBudget, Numerics, Rule, RuleClass, Status, Terms, Verdict, dtype

RULES = {
    "half": Rule(kind=RuleClass.ULP, ulp=0.5),
    "two": Rule(kind=RuleClass.ULP, ulp=2.0),
    "none": Rule(kind=RuleClass.ULP, ulp=0.0),
    "exact": EXACT,
    "movement": MOVEMENT,
    "sum": ACCUMULATE,
    "composed": COMPOSED,
    "composed with variance": COMPOSED,
    "tolerance": None,
}
SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-8, 5e-324, -6.1e-5, 65504.0, 65519.0, 448.0, 3.4e38, 1.5, 2.5e-8]
SHAPES = [(17,), (5, 13), (3, 4, 6), (1, 300)]


def terms_of(rule: str, reference: np.ndarray[Any, Any], total: float) -> Any:
    worst = np.abs(np.nan_to_num(reference, posinf=1.0, neginf=1.0)) + total
    if rule == "sum":
        return Terms(absolute=worst, squared=worst * worst, count=4)
    if rule.startswith("composed"):
        return ErrorBudget(worst=worst * 4.0, variance=worst if rule.endswith("variance") else None)
    return ErrorBudget(worst=worst) if rule == "two" else None


def verdicts(  # every knob of a verdict over one output
    seed: int,
    rule: str,
    name: str,
    shape: tuple[int, ...],
    *,
    specials: list[tuple[int, float]],
    slips: list[tuple[int, float]],
    stored: str = "float64",
    total: float = 0.0,
    numerics: Numerics | None = None,
    budgeted: bool = True,
    turned: bool = False,
) -> tuple[Verdict, Verdict]:
    """By the quick way and by the kernels; ``slips`` are in units of the last place, ``turned`` lies by columns."""
    kind = numpy_dtype(dtype(name))
    values = np.random.default_rng(seed).standard_normal(shape)
    for place, value in specials:
        values.reshape(-1)[place % values.size] = value
    with np.errstate(all="ignore"):
        reference = values.astype(stored) if stored != "float64" else values
        actual = np.array(round_to(values, dtype(name)))
        for place, slip in slips:
            at = place % values.size
            moved = actual.reshape(-1)[at].astype(np.float64) * (1.0 + slip * 2.0 ** (1 - dtype(name).precision))
            actual.reshape(-1)[at] = np.asarray(moved).astype(kind)
    if turned:
        actual, reference = np.asfortranarray(actual), np.asfortranarray(reference)
    layers = () if RULES[rule] is not None else (stated(rtol=1e-2, atol=1e-6),)
    case = case_of(RULES[rule], (name,), layers=layers, shape=shape)
    wanted = expect(reference, name, terms=terms_of(rule, values, total) if budgeted else None)
    asked = (case, [actual], [wanted])
    quick = judge(*asked, numerics=numerics or Numerics())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verdict, "MEDIUM", 0)
        return quick, judge(*asked, numerics=numerics or Numerics())


PLACES = st.integers(0, 10_000)


@given(
    seed=st.integers(0, 1000),
    rule=st.sampled_from(sorted(RULES)),
    name=st.sampled_from(["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]),
    shape=st.sampled_from(SHAPES),
    specials=st.lists(st.tuples(PLACES, st.sampled_from(SPECIALS)), max_size=4),
    slips=st.lists(st.tuples(PLACES, st.sampled_from([0.5, 1.0, -1.0, 3.0, 1e6])), max_size=3),
    stored=st.sampled_from(["float64", "float64", "float32"]),
    total=st.sampled_from([0.0, 0.0, 1.0, np.inf, np.nan, -10.0]),
    numerics=st.sampled_from([Numerics(), Numerics(denormals="flush"), Numerics(overflow="saturate")]),
    budgeted=st.booleans(),
    turned=st.booleans(),
)
@example(0, "half", "float32", (17,), [(0, 0.0), (1, 5e-324)], [], "float64", 0.0, Numerics(), False, False)
@example(0, "two", "float32", (17,), [], [(0, 1.0)], "float64", np.inf, Numerics(), True, False)
@example(0, "two", "float32", (17,), [], [(0, 1.0)], "float64", -10.0, Numerics(), True, False)
@example(0, "composed", "float32", (17,), [], [], "float64", -10.0, Numerics(), True, False)
@example(0, "half", "float32", (17,), [(0, 3.4e38)], [(0, 1e6)], "float64", 0.0, Numerics(), False, False)
@example(0, "none", "float32", (17,), [], [], "float64", 0.0, Numerics(), False, False)
@example(0, "none", "float64", (17,), [], [], "float64", 0.0, Numerics(), False, False)
def test_both_ways_say_the_same(
    seed: int,
    rule: str,
    name: str,
    shape: tuple[int, ...],
    specials: list[tuple[int, float]],
    slips: list[tuple[int, float]],
    stored: str,
    total: float,
    numerics: Numerics,
    budgeted: bool,
    turned: bool,
) -> None:
    quick, slow = verdicts(
        seed,
        rule,
        name,
        shape,
        specials=specials,
        slips=slips,
        stored=stored,
        total=total,
        numerics=numerics,
        budgeted=budgeted,
        turned=turned,
    )
    assert repr(quick) == repr(slow)  # which tells -0.0 from 0.0, and NaN is NaN


@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"none"}))
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_what_is_right_needs_no_kernel(rule: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with an expected 0, at which nothing can be relative."""
    monkeypatch.setattr(verdict, "compare", None)
    values = np.random.default_rng(3).standard_normal(300)
    values[7] = 0.0
    actual = round_to(values, dtype(name))
    layers = () if RULES[rule] is not None else (stated(rtol=1e-2, atol=1e-6),)
    case = case_of(RULES[rule], (name,), layers=layers, shape=values.shape)
    wanted = expect(values, name, terms=terms_of(rule, values, 1.0))
    found = judge(case, [actual], [wanted], numerics=Numerics())
    assert found.status is Status.PASSED
    assert found.measures[0].max_rel_error is not None


@given(bound=st.floats(min_value=5e-324, max_value=1e300), steps=st.integers(1, 3))
@example(bound=np.nextafter(2.0, 0.0), steps=1)
@example(bound=np.nextafter(1.0, 0.0), steps=1)
@example(bound=5e-324, steps=1)
def test_a_quotient_of_more_than_one_is_never_rounded_to_one(bound: float, steps: int) -> None:
    error = bound
    for _ in range(steps):
        error = float(np.nextafter(error, np.inf))
    errors, bounds = np.zeros(17), np.full(17, bound)
    assert _Numbers(errors, bounds, bounds, errors, bounds, bounds).are_plainly_right()
    errors[5] = error
    assert not _Numbers(errors, bounds, bounds, errors, bounds, bounds).are_plainly_right()


def test_beyond_one_block_the_kernels_are_asked() -> None:
    assert SMALL < MEDIUM <= 8192  # up to which a dot product is NumPy's, as in the kernels

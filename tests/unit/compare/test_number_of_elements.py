"""The verdict on an element does not depend on the number of right ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from comparing import ACCUMULATE, COMPOSED, EXACT, MOVEMENT, case_of, expect, stated
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optest.compare.verdict import compare_outputs
from optest.numerics import numpy_dtype, round_to
from optest.spec import ErrorBudget, Numerics, Reason, Rule, RuleClass, Status, Terms, Verdict, dtype

RULES = {
    "movement": MOVEMENT,
    "exact": EXACT,
    "half": Rule(kind=RuleClass.ULP, ulp=0.5),
    "two": Rule(kind=RuleClass.ULP, ulp=2.0),
    "accumulate": ACCUMULATE,
    "composed": COMPOSED,
    "tolerance": None,
}
FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
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


def verdict_of(rule: str, name: str, right: float, value: float, got: float, copies: int, stored: bool) -> Verdict:
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
    found = [verdict_of(rule, name, right, value, got, copies, stored) for copies in COPIES]
    if found[0].status is Status.FAILED and not any(each.mismatched for each in found[0].measures):
        return  # only the statistic of all errors is too large, which is a matter of how many there are
    assert {(each.status, each.reason) for each in found} == {(found[0].status, found[0].reason)}


def test_movement_compares_signs_of_zeros() -> None:
    for copies in COPIES:
        assert verdict_of("movement", "float32", 1.0, -0.0, 0.0, copies, False).reason is Reason.VALUE

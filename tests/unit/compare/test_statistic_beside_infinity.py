"""Elements that are infinite or NaN on both sides do not change the statistic of the others."""

from __future__ import annotations

import numpy as np
import pytest
from comparing import ACCUMULATE, COMPOSED, verdict_of

from optest.numerics import round_to
from optest.spec import ErrorBudget, Reason, Status, Terms, dtype


@pytest.mark.parametrize("entry", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", [ACCUMULATE, COMPOSED])
def test_infinity_beside_numbers(entry: str, rule: object) -> None:
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((5000, 64))
    value = terms.sum(1)
    total, squares = np.abs(terms).sum(1), (terms * terms).sum(1)
    odd = {3: np.inf, 77: -np.inf, 1000: np.nan}
    for index, special in odd.items():
        value[index] = total[index] = squares[index] = special
    wanted = Terms(np.abs(total), squares, 64) if rule is ACCUMULATE else ErrorBudget(np.abs(total), np.abs(total))
    right = round_to(value, dtype(entry))
    assert verdict_of(right, value, entry, rule=rule, terms=wanted).status is Status.PASSED
    truncated = np.where(np.isfinite(value), value * (1 + 2.0**-7), value)
    wrong = verdict_of(round_to(truncated, dtype(entry)), value, entry, rule=rule, terms=wanted)
    assert wrong.reason is Reason.VALUE


def test_nan_variance_does_not_blame_kernel() -> None:
    value = np.linspace(1.0, 2.0, 2000)
    budget = ErrorBudget(np.ones(2000), np.full(2000, np.nan))
    verdict = verdict_of(value.astype(np.float32), value, rule=COMPOSED, terms=budget)
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.REFERENCE_FAILED)

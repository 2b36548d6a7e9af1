"""What a library does now and then is not taken for what a circumstance does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from optest.core.further_calls import is_reproducible


def is_blamed(wrong: Callable[[int], bool]) -> bool:
    """A library whose n-th call is wrong or not, whatever the circumstance."""
    calls = iter(range(1000))
    without, with_it = wrong(next(calls)), wrong(next(calls))
    return without != with_it and is_reproducible(
        lambda: wrong(next(calls)) == without, lambda: wrong(next(calls)) == with_it
    )


@pytest.mark.parametrize("period", range(2, 30))
def test_no_rhythm_is_blamed(period: int) -> None:
    for wrong in range(period):
        assert not is_blamed(lambda call, wrong=wrong: call % period == wrong)
        assert not is_blamed(lambda call, wrong=wrong: call % period != wrong)
        assert not is_blamed(lambda call, wrong=wrong: call % (2 * period) // period == wrong % 2)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_chance_is_hardly_ever_blamed(share: float) -> None:
    choice = random.Random(2026)
    assert sum(is_blamed(lambda _: choice.random() < share) for _ in range(5000)) <= 3


def test_a_circumstance_is_blamed() -> None:
    assert is_reproducible(lambda: True, lambda: True)
    assert not is_reproducible(lambda: True, lambda: False)
    assert not is_reproducible(lambda: False, lambda: True)

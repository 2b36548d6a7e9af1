"""Test whether two variants of a call are deterministic."""

from __future__ import annotations

from collections.abc import Callable

# A library that is wrong at random in every other call agrees with a variant this often in one of 4^6 cases.
_REPETITIONS = 6


def is_reproducible(without: Callable[[], bool], with_it: Callable[[], bool]) -> bool:
    """Return whether both variants of a call repeat their results each time that they run in this order.

    Each function makes its call and returns whether the result is the former one.
    """
    # In the order of Thue and Morse, so that a library that is wrong in every second or third call does not keep pace.
    for repetition in range(1, _REPETITIONS + 1):
        first, second = (with_it, without) if repetition.bit_count() % 2 else (without, with_it)
        if not (first() and second()):
            return False
    return True

"""Whether two ways to make a call give what they gave, each time that they are made."""

from __future__ import annotations

from collections.abc import Callable

_TURNS = 6
"""A library that is wrong in every other call at random agrees with a circumstance so often in one of 4^6 cases."""


def is_reproducible(without: Callable[[], bool], with_it: Callable[[], bool]) -> bool:
    """Whether both calls, which were made in this order before, give what they gave each time that they are made.

    The order is that of Thue and Morse, so that no library that is wrong in every second or third call keeps pace.
    """
    for turn in range(1, _TURNS + 1):
        first, second = (with_it, without) if turn.bit_count() % 2 else (without, with_it)
        if not (first() and second()):
            return False
    return True

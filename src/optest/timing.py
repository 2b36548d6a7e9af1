"""How long a call takes: batches that the clock can resolve, several calls in turns, medians and spreads.

The clock is an argument, and nothing else here depends on the machine; what a time means is not decided here.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

from optest.errors import UsageError
from optest.spec.benchmark import CallTime

Clock = Callable[[], float]

_BATCHES = 20
"""Into how many batches the target time is divided: enough for quartiles."""
_FEWEST_BATCHES = 3
_SHORTEST_BATCH_S = 1e-4
"""A thousand times what reading the clock costs."""
_WARM_UP_SHARE = 0.25
_MOST_CALLS_IN_NO_TIME = 1 << 20


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something to be timed. ``synchronize`` returns when all that ``call`` has begun on a device is done."""

    who: str
    call: Callable[[], object]
    synchronize: Callable[[], object] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Seconds of one call, for each batch in the order of the batches."""

    who: str
    seconds: tuple[float, ...]
    calls_in_batch: int
    warm_up_calls: int = 0

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    def call_time(self, *, moved_bytes: int | None = None, operations: int | None = None) -> CallTime:
        """The samples in numbers; rates for the bytes and operations of one call, where they are known."""
        median_s = self.median_s
        return CallTime(
            who=self.who,
            median_s=median_s,
            least_s=min(self.seconds),
            spread_s=interquartile_range(self.seconds),
            calls=self.calls_in_batch * len(self.seconds),
            batches=len(self.seconds),
            warm_up_calls=self.warm_up_calls,
            gb_per_s=None if moved_bytes is None else moved_bytes / median_s / 1e9,
            gflop_per_s=None if operations is None else operations / median_s / 1e9,
        )


def measure(subjects: Sequence[Subject], *, target_s: float = 0.2, clock: Clock = time.perf_counter) -> list[Samples]:
    """Time the subjects in turns, A B A B, each for ``target_s`` seconds or more, in equally many batches.

    Each is called once, then in growing batches until one takes a twentieth of the target and a quarter of the target
    has gone by: its warm-up, two calls or more. The device is waited for before a batch begins and before it ends. A
    call that takes longer than the target is timed three times.

    Raises:
        UsageError: for a target that leaves no iteration, no subject, or a clock that stands still.
    """
    if not subjects:
        raise UsageError("there is nothing to time; zero iterations are no timing")
    if not 0 < target_s < float("inf"):
        raise UsageError(f"benchmark time is {target_s} s, but should be more than 0; zero iterations are no timing")
    with no_collector():
        sizes, warm_ups = zip(*(_warmed_up(subject, target_s, clock) for subject in subjects), strict=True)
        seconds: list[list[float]] = [[] for _ in subjects]
        spent = [0.0] * len(subjects)
        while len(seconds[0]) < _FEWEST_BATCHES or min(spent) < target_s:
            for place, (subject, size) in enumerate(zip(subjects, sizes, strict=True)):
                took = _batch_s(subject, size, clock)
                if took <= 0:
                    raise UsageError(f"{subject.who}: a batch took {took} s; the clock stands still or runs backwards")
                spent[place] += took
                seconds[place].append(took / size)
    return [
        Samples(who=subject.who, seconds=tuple(each), calls_in_batch=size, warm_up_calls=warm_up)
        for subject, each, size, warm_up in zip(subjects, seconds, sizes, warm_ups, strict=True)
    ]


def ratios(one: Samples, other: Samples) -> tuple[float, float | None]:
    """How many times as long ``one`` takes as ``other``: median over pairs of batches, and their interquartile range.

    Neighbouring batches share what the machine does beside them, so a pair's ratio is steadier than either time.

    Raises:
        ValueError: for samples that were not taken in turns.
    """
    pairs = [mine / theirs for mine, theirs in zip(one.seconds, other.seconds, strict=True)]
    return statistics.median(pairs), interquartile_range(pairs)


def interquartile_range(values: Sequence[float]) -> float | None:
    """The distance of the quartiles, interpolated between the values; None for fewer than two of them."""
    if len(values) < 2:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def seconds_of_calls(
    call: Callable[[], object],
    iterations: int,
    *,
    warm_up: int = 0,
    synchronize: Callable[[], object] = _nothing,
    clock: Clock = time.perf_counter,
) -> float:
    """The mean seconds of one of ``iterations`` calls, after ``warm_up`` others; the device is waited for at both ends.

    Raises:
        UsageError: for fewer than one iteration, or a negative warm-up.
    """
    if iterations < 1:
        raise UsageError(f"iterations are {iterations}, but should be 1 or more; zero iterations are no timing")
    if warm_up < 0:
        raise UsageError(f"warm-up is {warm_up} calls, but should be 0 or more")
    for _ in range(warm_up):
        call()
    return _batch_s(Subject(who="the call", call=call, synchronize=synchronize), iterations, clock) / iterations


def _warmed_up(subject: Subject, target_s: float, clock: Clock) -> tuple[int, int]:
    """How many calls make a batch, and how many calls it took to find out."""
    enough_s = max(target_s / _BATCHES, _SHORTEST_BATCH_S)
    began = clock()
    size, made = 1, 0
    while True:
        took = _batch_s(subject, size, clock)
        made += size
        if made > 1 and took >= enough_s and clock() - began >= target_s * _WARM_UP_SHARE:
            return size, made  # the first call alone may compile, allocate or fault pages in
        if took < enough_s:
            most = size * 10  # the first calls are slow
            size = most if took * most <= enough_s * size else int(size * enough_s / took) + 1
        if took <= 0 and size > _MOST_CALLS_IN_NO_TIME:
            raise UsageError(f"{subject.who}: {made} calls took {took} s; the clock stands still or runs backwards")


def _batch_s(subject: Subject, size: int, clock: Clock) -> float:
    call = subject.call
    subject.synchronize()
    began = clock()
    for _ in repeat(None, size):
        call()
    subject.synchronize()
    return clock() - began


@contextmanager
def no_collector() -> Iterator[None]:
    """While inside, Python's collector of cycles frees nothing: it comes when it likes, and belongs to no call."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

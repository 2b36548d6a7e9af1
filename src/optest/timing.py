"""Timing of calls: batches long enough for the clock, alternation between several subjects, medians and spreads.

The clock is an argument; nothing else here depends on the machine.
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

# The target time is divided into so many batches: enough for quartiles.
_BATCHES = 20
_FEWEST_BATCHES = 3
# A thousand times the cost of reading the clock.
_SHORTEST_BATCH_S = 1e-4
_WARM_UP_SHARE = 0.25
_MOST_CALLS_IN_NO_TIME = 1 << 20


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A call to time, called ``who`` in messages; ``synchronize`` waits for all work that it started on a device."""

    who: str
    call: Callable[[], object]
    synchronize: Callable[[], object] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Measured seconds per call of each batch, in the order of the batches."""

    who: str
    seconds: tuple[float, ...]
    calls_in_batch: int
    warm_up_calls: int = 0

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    def call_time(self, *, moved_bytes: int | None = None, operations: int | None = None) -> CallTime:
        """Summarise the samples; ``moved_bytes`` and ``operations`` of one call add rates in GB/s and GFLOP/s."""
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
    """Time the subjects in alternation (A B A B), each for ``target_s`` seconds or more, with as many batches each.

    The warm-up of a subject is a first call, then growing batches until one takes a twentieth of ``target_s`` and the
    warm-up has taken a quarter of it. Every batch starts and ends with ``synchronize``. There are at least three
    batches, so that a call longer than ``target_s`` is timed three times.

    Raises:
        UsageError: if there is no subject, ``target_s`` is not positive and finite, or the clock does not advance.
    """
    if not subjects:
        raise UsageError("no subject to time, expected one or more")
    if not 0 < target_s < float("inf"):
        raise UsageError(f"benchmark time is {target_s} s, expected a finite time of more than 0")
    with no_collector():
        sizes, warm_ups = zip(*(_warm_up(subject, target_s, clock) for subject in subjects), strict=True)
        seconds: list[list[float]] = [[] for _ in subjects]
        spent = [0.0] * len(subjects)
        while len(seconds[0]) < _FEWEST_BATCHES or min(spent) < target_s:
            for index, (subject, size) in enumerate(zip(subjects, sizes, strict=True)):
                took = _time_batch(subject, size, clock)
                if took <= 0:
                    raise UsageError(f"{subject.who}: a batch took {took} s; the clock does not advance")
                spent[index] += took
                seconds[index].append(took / size)
    return [
        Samples(who=subject.who, seconds=tuple(batches), calls_in_batch=size, warm_up_calls=warm_up)
        for subject, batches, size, warm_up in zip(subjects, seconds, sizes, warm_ups, strict=True)
    ]


def ratios(samples: Samples, baseline: Samples) -> tuple[float, float | None]:
    """Return the ratio of ``samples`` to ``baseline``: median over pairs of batches, and their interquartile range.

    Raises:
        ValueError: for samples with different numbers of batches.
    """
    # Neighbouring batches share the load of the machine, so a pair's ratio is steadier than either time.
    pairs = [first / second for first, second in zip(samples.seconds, baseline.seconds, strict=True)]
    return statistics.median(pairs), interquartile_range(pairs)


def interquartile_range(values: Sequence[float]) -> float | None:
    """Return the distance between the quartiles, interpolated between values; None for fewer than two values."""
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
    """Return the mean seconds per call over ``iterations`` calls, after ``warm_up`` untimed calls.

    Raises:
        UsageError: for fewer than one iteration, or a negative warm-up.
    """
    if iterations < 1:
        raise UsageError(f"iterations are {iterations}, expected 1 or more")
    if warm_up < 0:
        raise UsageError(f"warm-up is {warm_up} calls, expected 0 or more")
    for _ in range(warm_up):
        call()
    return _time_batch(Subject(who="the call", call=call, synchronize=synchronize), iterations, clock) / iterations


def _warm_up(subject: Subject, target_s: float, clock: Clock) -> tuple[int, int]:
    """Call the subject in growing batches; return the batch size that takes long enough, and the number of calls.

    Raises:
        UsageError: if over a million calls take no time.
    """
    enough_s = max(target_s / _BATCHES, _SHORTEST_BATCH_S)
    began = clock()
    size, calls = 1, 0
    while True:
        took = _time_batch(subject, size, clock)
        calls += size
        # One call is no warm-up: it may compile, allocate or fault pages in.
        if calls > 1 and took >= enough_s and clock() - began >= target_s * _WARM_UP_SHARE:
            return size, calls
        if took < enough_s:
            # Grow at most tenfold: the first calls are slow, so the estimate is poor.
            most = size * 10
            size = most if took * most <= enough_s * size else int(size * enough_s / took) + 1
        if took <= 0 and size > _MOST_CALLS_IN_NO_TIME:
            raise UsageError(f"{subject.who}: {calls} calls took {took} s; the clock does not advance")


def _time_batch(subject: Subject, size: int, clock: Clock) -> float:
    """Return the seconds of ``size`` calls, with the device synchronised before and after them."""
    call = subject.call
    subject.synchronize()
    began = clock()
    for _ in repeat(None, size):
        call()
    subject.synchronize()
    return clock() - began


@contextmanager
def no_collector() -> Iterator[None]:
    """Disable Python's cyclic garbage collector within the block."""
    # It runs at arbitrary moments, and its time belongs to no call.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

"""Timings under a clock that the test turns by hand: what is counted, what is not, and what is refused."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import refusal

from optest.errors import UsageError
from optest.spec import CallTime
from optest.timing import Samples, Subject, interquartile_range, measure, ratios, seconds_of_calls


class Clock:
    """Time goes by only when something says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, took_s: float, first_s: float | None = None) -> Callable[[], None]:
        left = [first_s] if first_s is not None else []

        def call() -> None:
            self.log.append(name)
            self.now += left.pop() if left else took_s

        return call


def samples_of(clock: Clock, took_s: float, first_s: float | None = None, target_s: float = 0.2) -> Samples:
    (samples,) = measure([Subject(who="it", call=clock.work("it", took_s, first_s))], target_s=target_s, clock=clock)
    return samples


@pytest.mark.parametrize("took_s", [1e-6, 3.3e-4, 0.017, 0.4, 30.0])
def test_a_steady_call_is_timed_exactly(took_s: float) -> None:
    clock = Clock()
    time = samples_of(clock, took_s).call_time()
    assert time.median_s == pytest.approx(took_s, rel=1e-6)
    assert time.spread_s == pytest.approx(0.0, abs=took_s * 1e-6)
    assert time.calls * took_s >= 0.2 * 0.999
    assert time.calls + time.warm_up_calls == len(clock.log)
    assert time.batches >= 3


def test_target_time_decides_how_often() -> None:
    counts = []
    for target_s in (0.02, 0.2, 2.0):
        counts.append(samples_of(Clock(), 1e-5, target_s=target_s).call_time().calls)
        assert target_s <= counts[-1] * 1e-5 <= target_s * 1.2
    assert counts == sorted(counts)


def test_a_slow_first_call_is_warm_up() -> None:
    """A just-in-time compiler: the first call takes seconds, the others microseconds."""
    samples = samples_of(Clock(), 2e-6, first_s=5.0)
    assert max(samples.seconds) == pytest.approx(2e-6, rel=1e-6)
    assert samples.calls_in_batch * 2e-6 >= 1e-4, "a batch should be long enough for the clock"


def test_batches_take_turns() -> None:
    clock = Clock()
    subjects = [Subject(who=name, call=clock.work(name, 0.05)) for name in "AB"]
    one, other = measure(subjects, target_s=0.2, clock=clock)
    timed = "".join(clock.log[one.warm_up_calls + other.warm_up_calls :])
    assert timed == "AB" * len(one.seconds)
    assert len(one.seconds) == len(other.seconds)


def test_turns_go_on_until_the_fastest_has_its_time() -> None:
    clock = Clock()
    slow, fast = measure(
        [Subject(who="slow", call=clock.work("slow", 1.0)), Subject(who="fast", call=clock.work("fast", 1e-4))],
        target_s=0.2,
        clock=clock,
    )
    assert len(slow.seconds) == len(fast.seconds)
    assert sum(fast.seconds) * fast.calls_in_batch >= 0.2


def test_device_is_waited_for_before_and_after_every_batch() -> None:
    """Calls only launch; the device needs a millisecond for each, and that is what is reported."""
    clock = Clock()
    queued = [7]  # another program's work, which is not ours

    def synchronize() -> None:
        clock.now += 1e-3 * queued[0]
        queued[0] = 0

    def launch() -> None:
        queued[0] += 1

    (samples,) = measure([Subject(who="it", call=launch, synchronize=synchronize)], target_s=0.05, clock=clock)
    assert samples.median_s == pytest.approx(1e-3)
    queued[0] = 7
    assert seconds_of_calls(launch, 4, synchronize=synchronize, clock=clock) == pytest.approx(1e-3)


def test_ratio_comes_from_neighbouring_batches() -> None:
    """The machine gets slower all the time: the times spread, their ratio does not."""
    one = Samples(who="one", seconds=(2.0, 4.0, 8.0, 16.0), calls_in_batch=1)
    other = Samples(who="other", seconds=(1.0, 2.0, 4.0, 8.0), calls_in_batch=1)
    assert ratios(one, other) == (2.0, 0.0)
    with pytest.raises(ValueError, match="shorter"):
        ratios(one, Samples(who="other", seconds=(1.0,), calls_in_batch=1))


def test_spread_of_one_batch_is_unknown_not_zero() -> None:
    time = Samples(who="it", seconds=(0.5,), calls_in_batch=3).call_time()
    assert time.spread_s is None
    assert (time.calls, time.batches) == (3, 1)
    with refusal(ValueError, "timing.none_for_single_batch"):
        CallTime(who="it", median_s=0.5, least_s=0.5, spread_s=0.0, calls=3, batches=1)


@given(st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=50))
def test_spread_is_the_middle_half(values: list[float]) -> None:
    spread = interquartile_range(values)
    assert spread is not None
    assert 0 <= spread <= max(values) - min(values)
    assert interquartile_range(list(reversed(values))) == spread
    outlier = [*values, statistics.median(values), 1e9]
    wide = interquartile_range([*outlier, *values, *values, *values])
    assert wide is not None
    assert wide <= max(values) - min(values) + 1e-12, "one disturbed batch should not decide the spread"


def test_rates_follow_from_median_and_declared_work() -> None:
    samples = Samples(who="it", seconds=(1e-3, 2e-3, 9e-3), calls_in_batch=1)
    time = samples.call_time(moved_bytes=4_000_000, operations=8_000_000)
    assert time.gb_per_s == pytest.approx(2.0)
    assert time.gflop_per_s == pytest.approx(4.0)
    assert samples.call_time().gb_per_s is None


def nothing() -> None:
    return None


IT = Subject(who="it", call=nothing)


def test_impossible_timings_are_refused() -> None:
    for iterations in (0, -1):
        with pytest.raises(UsageError, match=f"iterations are {iterations}, expected 1"):
            seconds_of_calls(nothing, iterations)
    with pytest.raises(UsageError, match="warm-up"):
        seconds_of_calls(nothing, 4, warm_up=-1)
    with pytest.raises(UsageError, match=r"benchmark time is 0\.0 s"):
        measure([IT], target_s=0.0)
    with pytest.raises(UsageError, match="no subject"):
        measure([])
    with pytest.raises(UsageError, match="does not advance"):
        measure([IT], clock=lambda: 1.0)
    with pytest.raises(ValueError, match="0 calls"):
        CallTime(who="it", median_s=0.5, least_s=0.5, spread_s=None, calls=0, batches=0)


def test_mean_of_calls_leaves_the_warm_up_out() -> None:
    clock = Clock()
    call = clock.work("it", 0.25, first_s=9.0)
    assert seconds_of_calls(call, 4, warm_up=1, clock=clock) == pytest.approx(0.25)
    assert len(clock.log) == 5


def test_collector_is_put_back_whatever_happens() -> None:
    clock = Clock()
    seen = []

    def call() -> None:
        seen.append(gc.isenabled())
        clock.now += 1.0
        if len(seen) > 3:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        measure([Subject(who="it", call=call)], clock=clock)
    assert not any(seen)
    assert gc.isenabled()


def test_the_real_clock() -> None:
    (samples,) = measure([Subject(who="it", call=lambda: sum(range(1000)))], target_s=0.02)
    assert 1e-7 < samples.median_s < 1e-2

"""Timing of passed cases: timed outputs are compared, too, and a note says what cannot be timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from core_kit import Calls, case_of, spec_of
from texts import refusal, says, says_exactly

from optest.backends import BackendDriver, PreparedCall, backend_manager
from optest.core.benchmarking import BenchOptions, _largest_difference, comparison_called
from optest.core.phases import Phase
from optest.core.runner import ExecutionResult, execute
from optest.core.worker_death import death, overtime
from optest.errors import UnknownName, UsageError
from optest.spec import Benchmark, Reason, Status, TestCase

QUICK = BenchOptions(target_s=1e-4)


class Adder(BackendDriver):
    """Driver that adds; ``spoil`` may change the outputs of the prepared call, given the number of calls."""

    name = "adder"

    def __init__(self, spoil: Callable[[int, Any], Any] = lambda _, out: out) -> None:
        self.calls = 0
        self.prepared_for: list[Sequence[Any]] = []
        self.left = 0
        self._spoil = spoil

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        return [inputs[0] + inputs[1]]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        self.prepared_for.append(inputs)

        def call() -> list[Any]:
            self.calls += 1
            return [self._spoil(self.calls, out) for out in self.run(case, inputs)]

        try:
            yield PreparedCall(call=call, outputs=call)
        finally:
            self.left += 1


class Untimed(Calls):
    name = "untimed"

    def __init__(self) -> None:
        super().__init__(np.add)


def add_case(**layout: Any) -> TestCase:
    spec = spec_of(4, 8, **layout)
    return case_of("add", spec, spec)


def run(driver: BackendDriver, bench: BenchOptions | None = QUICK, case: TestCase | None = None) -> ExecutionResult:
    return execute([case or add_case()], driver, bench=bench)


def timed(driver: BackendDriver, against: str = "", case: TestCase | None = None) -> Benchmark:
    """Return the benchmark of a case that passes and is timed."""
    outcome = run(driver, BenchOptions(target_s=1e-4, against=against), case)
    assert outcome.verdicts[0].status is Status.PASSED
    assert outcome.benchmark is not None
    return outcome.benchmark


def test_passed_case_is_timed() -> None:
    driver = Adder()
    benchmark = timed(driver)
    time = benchmark.time
    assert time is not None
    assert time.who == "adder"
    assert time.calls + time.warm_up_calls == driver.calls - 1, "the outputs of one more call are compared"
    assert benchmark.declared_bytes == 3 * 4 * 8 * 4
    assert time.gb_per_s == pytest.approx(3 * 4 * 8 * 4 / time.median_s / 1e9)
    assert time.gflop_per_s is None, "addition declares no operations"
    assert driver.left == 1


def test_timing_needs_bench_options() -> None:
    driver = Adder()
    assert run(driver, bench=None).benchmark is None
    assert driver.calls == 0


def test_wrong_output_is_not_timed() -> None:
    class Wrong(Adder):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            return [inputs[0] - inputs[1]]

    driver = Wrong()
    outcome = run(driver)
    assert outcome.verdicts[0].reason is Reason.VALUE
    assert outcome.benchmark is None
    assert driver.calls == 0


def test_timed_inputs_are_copies_with_same_strides() -> None:
    driver = Adder()
    run(driver, case=add_case(strides=(1, 4)))
    assert driver.prepared_for[0][0].strides == (4, 16)


def test_broadcast_elements_count_once() -> None:
    assert timed(Adder(), case=add_case(strides=(0, 1))).declared_bytes == (8 + 8 + 32) * 4


def test_wrong_output_after_many_calls_fails() -> None:
    outcome = run(Adder(lambda count, out: out if count < 5 else out + 1))
    verdict = outcome.verdicts[0]
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.STATE)
    assert says(verdict.message, "core.calls_in_row_the")
    assert outcome.benchmark is None


def test_error_after_many_calls_fails() -> None:
    def spoil(count: int, out: Any) -> Any:
        if count == 4:
            raise RuntimeError("out of handles")
        return out

    driver = Adder(spoil)
    outcome = run(driver)
    assert outcome.verdicts[0].reason is Reason.RAISED
    assert says(outcome.verdicts[0].message, "core.while_it_was_timed")
    assert "out of handles" in outcome.verdicts[0].message
    assert driver.left == 1, "the prepared call is released"


def test_driver_without_prepared_call_times_run() -> None:
    benchmark = timed(Untimed())
    assert benchmark.lacks == ()
    assert benchmark.time is not None
    assert says_exactly(benchmark.time.who, "core.untimed_the_whole_of")


def test_comparison_alternates_calls() -> None:
    benchmark = timed(Adder(), "numpy")
    assert benchmark.against is not None
    assert benchmark.time is not None
    assert says_exactly(benchmark.against.who, "core.the_reference_in_numpy")
    assert benchmark.against.batches == benchmark.time.batches
    assert benchmark.ratio is not None
    assert benchmark.ratio_spread is not None


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[BackendDriver], None]:
    """Return a function that registers a driver for one test."""
    monkeypatch.setattr(backend_manager._registry, "_entries", dict(backend_manager._registry._entries))
    monkeypatch.setattr(backend_manager, "_kinds", dict(backend_manager._kinds))
    return backend_manager.register


def test_wrong_comparison_is_not_timed(register: Callable[[BackendDriver], None]) -> None:
    class Rival(Adder):
        name = "rival"

    driver = Rival(lambda _, out: out * 2)
    register(driver)
    benchmark = timed(Adder(), "rival")
    assert (benchmark.time is not None, benchmark.against) == (True, None)
    assert benchmark.lacks[0].startswith("comparison with rival: not timed, since its output is wrong: ")
    assert driver.calls == 1


def test_unsupported_comparison_is_noted(register: Callable[[BackendDriver], None]) -> None:
    class Specialist(Adder):
        name = "specialist"

        def unsupported(self, case: TestCase) -> str | None:
            return "no float32 here"

    register(Specialist())
    benchmark = timed(Adder(), "specialist")
    assert benchmark.time is not None
    assert benchmark.lacks == ("comparison with specialist: not possible, no float32 here",)


def test_comparison_needs_a_timeable_backend(register: Callable[[BackendDriver], None]) -> None:
    class Slow(Untimed):
        name = "slow_one"

    register(Slow())
    with refusal(UsageError, "core.no_call_that_can"):
        comparison_called("slow_one")
    with pytest.raises(UnknownName, match="torch"):
        comparison_called("torhc")
    with pytest.raises(UsageError, match="accepts no device"):
        comparison_called("numpy:cuda")


@pytest.mark.parametrize(("kind", "difference"), [("bool", 1.0), ("uint8", 255.0)])
def test_difference_of_integers_does_not_wrap(kind: str, difference: float) -> None:
    left, right = np.array([0, 1]).astype(kind), np.array([255, 1]).astype(kind)
    assert _largest_difference(left, right) == difference


def test_benchmark_phase_is_announced() -> None:
    phases: list[Phase] = []
    execute([add_case()], Adder(), announce=phases.append, bench=QUICK)
    assert phases[-2:] == [Phase.BENCHMARK, Phase.IDLE]


def test_death_while_timed_blames_backend() -> None:
    dead = death(Phase.BENCHMARK, None, 11, "")
    assert (dead.status, dead.reason) == (Status.CRASHED, Reason.SIGNAL)
    assert says(dead.message, "core.while_it_was_timed")
    late = overtime(Phase.BENCHMARK, 5.0, "")
    assert (late.status, late.reason) == (Status.TIMEOUT, Reason.DEADLINE)


def test_timing_restores_floating_point_modes() -> None:
    def spoil(_: int, out: Any) -> Any:
        np.seterr(all="raise")
        return out

    before = np.geterr()
    run(Adder(spoil))
    assert np.geterr() == before

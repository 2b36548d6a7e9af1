"""Cases that passed are timed: what is timed is judged, and what cannot be timed is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from texts import refusal, says, says_exactly

from optest.backends import BackendDriver, PreparedCall, backend_manager
from optest.core.benchmarking import BenchOptions, comparison_called
from optest.core.phases import Phase
from optest.core.runner import ExecutionResult, execute
from optest.core.worker_death import death, overtime
from optest.errors import UnknownName, UsageError
from optest.operators import operators
from optest.spec import Argument, Fill, Reason, Status, TensorSpec, TestCase, dtype

QUICK = BenchOptions(target_s=1e-4)


class Adder(BackendDriver):
    """Adds; ``spoil`` may change the outputs of the prepared call, by how often it was called."""

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


class Untimed(BackendDriver):
    name = "untimed"

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        return [inputs[0] + inputs[1]]


def add_case(spec: TensorSpec | None = None, *, fill: str = "randn", **further: Any) -> TestCase:
    descriptor = operators.get("add")
    spec = spec or TensorSpec(dtype=dtype("float32"), shape=(4, 8))
    inputs = tuple(
        Argument(name=name, path=f"input{i}", spec=spec, fill=Fill(kind=fill))
        for i, name in enumerate(("input", "other"))
    )
    return TestCase(descriptor=descriptor, inputs=inputs, attributes=descriptor.bind({}), **further)


def run(driver: BackendDriver, bench: BenchOptions | None = QUICK, case: TestCase | None = None) -> ExecutionResult:
    return execute([case or add_case()], driver, bench=bench)


def test_a_pass_is_timed() -> None:
    driver = Adder()
    outcome = run(driver)
    assert outcome.verdicts[0].status is Status.PASSED
    assert outcome.benchmark is not None
    time = outcome.benchmark.time
    assert time is not None
    assert time.who == "adder"
    assert time.calls + time.warm_up_calls == driver.calls - 1, "one call more is judged"
    assert outcome.benchmark.declared_bytes == 3 * 4 * 8 * 4
    assert time.gb_per_s == pytest.approx(3 * 4 * 8 * 4 / time.median_s / 1e9)
    assert time.gflop_per_s is None, "addition declares no operations"
    assert driver.left == 1


def test_nothing_is_timed_unless_asked() -> None:
    driver = Adder()
    assert run(driver, bench=None).benchmark is None
    assert driver.calls == 0


def test_a_wrong_answer_is_not_timed() -> None:
    class Wrong(Adder):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            return [inputs[0] - inputs[1]]

    driver = Wrong()
    outcome = run(driver)
    assert outcome.verdicts[0].reason is Reason.VALUE
    assert outcome.benchmark is None
    assert driver.calls == 0


def test_inputs_of_the_timed_call_are_private_and_laid_out_as_stated() -> None:
    driver = Adder()
    spec = TensorSpec(dtype=dtype("float32"), shape=(4, 8), strides=(1, 4))
    run(driver, case=add_case(spec))
    assert driver.prepared_for[0][0].strides == (4, 16)


def test_elements_that_share_a_place_are_moved_once() -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=(4, 8), strides=(0, 1))
    benchmark = run(Adder(), case=add_case(spec)).benchmark
    assert benchmark is not None
    assert benchmark.declared_bytes == (8 + 8 + 32) * 4


def test_outputs_that_go_wrong_after_many_calls_are_a_failure() -> None:
    outcome = run(Adder(lambda count, out: out if count < 5 else out + 1))
    verdict = outcome.verdicts[0]
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.STATE)
    assert says(verdict.message, "core.calls_in_row_the")
    assert outcome.benchmark is None


def test_an_error_after_many_calls_is_a_failure() -> None:
    def spoil(count: int, out: Any) -> Any:
        if count == 4:
            raise RuntimeError("out of handles")
        return out

    driver = Adder(spoil)
    outcome = run(driver)
    assert outcome.verdicts[0].reason is Reason.RAISED
    assert says(outcome.verdicts[0].message, "core.while_it_was_timed")
    assert "out of handles" in outcome.verdicts[0].message
    assert driver.left == 1, "what was made ready is undone"


def test_a_driver_without_a_call_is_timed_as_a_whole() -> None:
    outcome = run(Untimed())
    assert outcome.verdicts[0].status is Status.PASSED
    assert outcome.benchmark is not None
    assert outcome.benchmark.lacks == ()
    assert outcome.benchmark.time is not None
    assert says_exactly(outcome.benchmark.time.who, "core.untimed_the_whole_of")


def test_comparison_is_timed_in_turns() -> None:
    benchmark = run(Adder(), BenchOptions(target_s=1e-4, against="numpy")).benchmark
    assert benchmark is not None
    assert benchmark.against is not None
    assert benchmark.time is not None
    assert says_exactly(benchmark.against.who, "core.the_reference_in_numpy")
    assert benchmark.against.batches == benchmark.time.batches
    assert benchmark.ratio is not None
    assert benchmark.ratio_spread is not None


@pytest.fixture
def registered() -> Iterator[Callable[[BackendDriver], None]]:
    """Registers for one test, under a name that no other test uses."""
    made: list[str] = []

    def register(driver: BackendDriver) -> None:
        backend_manager.register(driver)
        made.append(driver.name)

    yield register
    for name in made:
        backend_manager._registry._entries.pop(name)
        backend_manager._kinds.pop(name)


def test_a_comparison_that_answers_wrongly_is_not_timed(registered: Callable[[BackendDriver], None]) -> None:
    class Rival(Adder):
        name = "rival"

    driver = Rival(lambda _, out: out * 2)
    registered(driver)
    outcome = run(Adder(), BenchOptions(target_s=1e-4, against="rival"))
    assert outcome.verdicts[0].status is Status.PASSED
    assert outcome.benchmark is not None
    assert outcome.benchmark.time is not None
    assert outcome.benchmark.against is None
    assert outcome.benchmark.lacks[0].startswith("comparison with rival: not timed, since its answer is wrong: ")
    assert driver.calls == 1


def test_a_comparison_that_cannot_do_the_case_is_told(registered: Callable[[BackendDriver], None]) -> None:
    class Specialist(Adder):
        name = "specialist"

        def unsupported(self, case: TestCase) -> str | None:
            return "no float32 here"

    registered(Specialist())
    benchmark = run(Adder(), BenchOptions(target_s=1e-4, against="specialist")).benchmark
    assert benchmark is not None
    assert benchmark.time is not None
    assert benchmark.lacks == ("comparison with specialist: not possible, no float32 here",)


def test_only_who_can_be_timed_is_compared_with(registered: Callable[[BackendDriver], None]) -> None:
    class Slow(Untimed):
        name = "slow_one"

    registered(Slow())
    with refusal(UsageError, "core.no_call_that_can"):
        comparison_called("slow_one")
    with pytest.raises(UnknownName, match="torch"):
        comparison_called("torhc")
    with pytest.raises(UsageError, match="takes no device"):
        comparison_called("numpy:cuda")


def test_the_phase_is_announced() -> None:
    phases: list[Phase] = []
    execute([add_case()], Adder(), announce=phases.append, bench=QUICK)
    assert phases[-2:] == [Phase.BENCHMARK, Phase.IDLE]


def test_whoever_dies_while_being_timed_is_at_fault() -> None:
    dead = death(Phase.BENCHMARK, None, 11, "")
    assert (dead.status, dead.reason) == (Status.CRASHED, Reason.SIGNAL)
    assert says(dead.message, "core.while_it_was_timed")
    late = overtime(Phase.BENCHMARK, 5.0, "")
    assert (late.status, late.reason) == (Status.TIMEOUT, Reason.DEADLINE)


def test_floating_point_mode_and_numpys_errors_stay_as_they_were() -> None:
    def spoil(_: int, out: Any) -> Any:
        np.seterr(all="raise")
        return out

    before = np.geterr()
    run(Adder(spoil))
    assert np.geterr() == before

"""An answer to other inputs than the case's is judged by what the reference expects for these; where nobody knows what
that is, the result says why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.backends import BackendDriver, FurtherAnswer, PreparedCall, backend_manager
from optest.core.benchmarking import BenchOptions
from optest.core.deadlines import PhaseLimits
from optest.core.phases import Phase
from optest.core.runner import execute
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.operators import operators
from optest.settings import environment
from optest.spec import (
    Argument,
    CheckState,
    Fill,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Verdict,
    dtype,
)

ONES, THREES = np.ones(5, np.float32), np.full(5, 3.0, np.float32)
CHANGED_INPUT, CHANGED_OTHER = {"input": THREES}, {"other": THREES}


class Asked(BackendDriver):
    """Doubles, and says that it was asked with other values, too, for which ``answers`` came."""

    name = kind = "asked-again"

    def __init__(
        self, *answers: float, known: Sequence[Any] | None = None, changed: Sequence[Any] = (CHANGED_INPUT,)
    ) -> None:
        self._answers = answers
        self._known = known
        self._changed = changed

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Any:
        return [inputs[0] * inputs[1]]

    def golden(self, case: TestCase) -> Sequence[Any] | None:
        return self._known

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        return [
            FurtherAnswer(outputs=[ONES * answer], how="with threes", reason=Reason.STATE, inputs=changed)
            for answer, changed in zip(self._answers, self._changed, strict=True)
        ]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        yield PreparedCall(call=lambda: self.run(case, inputs), outputs=lambda: self.run(case, inputs))


def register() -> None:
    """What a worker finds when it loads this file as a plug-in."""
    if Asked.name not in backend_manager.names():
        backend_manager.register(Asked(6.0))


register()


def the_case(**further: Any) -> TestCase:
    spec, ones, twos = TensorSpec(dtype=dtype("float32"), shape=(5,)), Fill(kind="ones"), [2.0] * 5
    inputs = (
        Argument(name="input", path="input0", spec=spec, fill=ones),
        Argument(name="other", path="input1", spec=spec, fill=Fill(kind="data", parameters={"values": twos})),
    )
    return TestCase(descriptor=operators.get("mul"), inputs=inputs, **further)


def judged(driver: BackendDriver, **further: Any) -> Verdict:
    return execute([the_case(**further)], driver).verdicts[0]


def told(verdict: Verdict) -> list[tuple[CheckState, str]]:
    return [(check.state, check.detail) for check in verdict.checks if check.name == "other values"]


def test_the_right_answer_to_other_inputs_passes() -> None:
    found = judged(Asked(6.0))
    assert found.status is Status.PASSED
    assert told(found) == [(CheckState.DONE, "of input input")]


def test_the_answer_of_the_cases_own_inputs_is_a_failure_there() -> None:
    found = judged(Asked(2.0))
    assert (found.status, found.reason) == (Status.FAILED, Reason.STATE), found
    assert found.message.startswith("with threes: out: 5 of 5 elements are off")
    assert told(found) == [(CheckState.DONE, "of input input")]


def of_ones_alone(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] != 1:
        raise ValueError("these values alone\nand no others")
    return [inputs[0] * np.float64(1.0) * inputs[1]]


def of_another_shape(inputs: Sequence[Any], attributes: Any) -> Any:
    return [np.full(5 if inputs[0][0] == 1 else 4, 2.0)]


def out_of_memory(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] != 1:
        raise MemoryError
    return [np.full(5, 2.0)]


class Twos:
    """A generator that makes what the case states and knows the products."""

    def generate(self, case: TestCase, rng: Any) -> Any:
        return [ONES.copy(), ONES * np.float32(2)], [ONES * 2.0]


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ({"reference": of_ones_alone}, "input input: the reference raised ValueError: these values alone"),
        (
            {"reference": of_another_shape, "outputs": (TensorSpec(dtype=dtype("float32"), shape=(5,)),)},
            "input input: the reference yields out with the shape [4], but mul declares [5]",
        ),
        ({"reference": out_of_memory}, "input input: the reference ran out of memory: MemoryError"),
        ({"generator": f"{__name__}:Twos"}, "input input: the case's generator knows the values alone that it makes"),
    ],
)
def test_it_is_not_possible_where_nobody_knows_what_is_right(who: dict[str, Any], why: str) -> None:
    found = judged(Asked(-1.0), **who)
    assert found.status is Status.PASSED, found
    assert told(found) == [(CheckState.NOT_POSSIBLE, why)]


def test_it_is_not_possible_by_values_that_a_backend_keeps() -> None:
    found = judged(Asked(-1.0, known=[ONES * np.float32(2)]))
    assert found.status is Status.PASSED, found
    why = "input input: the backend keeps what it expects of the case's own values alone"
    assert told(found) == [(CheckState.NOT_POSSIBLE, why)]


def test_it_is_not_possible_for_an_input_that_the_case_has_not() -> None:
    found = judged(Asked(-1.0, changed=[{"positions": THREES}]))
    assert found.status is Status.PASSED, found
    assert told(found) == [(CheckState.NOT_POSSIBLE, "input positions: the case has none, so no reference gets it")]


def test_each_input_is_told_by_itself() -> None:
    found = judged(Asked(-1.0, 3.0, changed=[CHANGED_INPUT, CHANGED_OTHER]), reference=of_ones_alone)
    assert found.status is Status.PASSED, found
    assert told(found) == [
        (CheckState.DONE, "of input other"),
        (CheckState.NOT_POSSIBLE, "input input: the reference raised ValueError: these values alone"),
    ]


def test_inputs_that_are_not_known_for_one_reason_are_told_together() -> None:
    known = [ONES * np.float32(2)]
    found = judged(Asked(-1.0, -1.0, known=known, changed=[CHANGED_INPUT, CHANGED_OTHER]))
    why = "inputs input, other: the backend keeps what it expects of the case's own values alone"
    assert told(found) == [(CheckState.NOT_POSSIBLE, why)]


def test_a_driver_that_asks_with_no_other_values_says_nothing_of_them() -> None:
    assert told(judged(Asked(2.0, changed=[None]))) == []


def test_whoever_watches_knows_that_it_is_the_references_turn() -> None:
    seen: list[Phase] = []
    execute([the_case()], Asked(6.0), announce=seen.append)
    assert seen[-4:] == [Phase.COMPARE, Phase.REFERENCE, Phase.COMPARE, Phase.IDLE]


def test_a_timed_case_asks_no_second_time() -> None:
    calls = []

    def counted(inputs: Sequence[Any], attributes: Any) -> Any:
        calls.append(inputs[0][0])
        return [inputs[0] * np.float64(1.0) * inputs[1]]

    execution = execute([the_case(reference=counted)], Asked(6.0), bench=BenchOptions(target_s=1e-4))
    assert execution.benchmark is not None
    assert execution.benchmark.time is not None
    assert calls == [1.0, 3.0]


def interrupted_by_others(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] != 1:
        raise KeyboardInterrupt
    return [np.full(5, 2.0)]


def test_a_real_interrupt_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        execute([the_case(reference=interrupted_by_others)], Asked(6.0), interrupted=lambda: True)


def dies_of_others(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] != 1:
        os._exit(9)
    return [np.full(5, 2.0)]


def hangs_with_others(inputs: Sequence[Any], attributes: Any) -> Any:
    while inputs[0][0] != 1:
        time.sleep(3600)
    return [np.full(5, 2.0)]


class Impatient(PhaseLimits):
    """A reference gets two seconds, everybody else as long as it takes."""

    def allowance_s(self, phase: Phase, case: TestCase) -> float:
        return 2.0 if phase is Phase.REFERENCE else 300.0


@pytest.fixture
def in_worker(tmp_path: Path) -> Iterator[Callable[[TestCase], Verdict]]:
    options = WorkerOptions(
        driver=Asked.name,
        scratch=tmp_path,
        environment=environment(),
        plugins=(__name__,),
        limits=Impatient(),
    )
    worker = WorkerProcess(options, "worker")
    yield lambda case: worker.execute([case]).verdicts[0]
    worker.close()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("dies_of_others", "the reference ended its process with exit status 9"),
        ("hangs_with_others", "the reference took more than 2 s and was killed"),
    ],
)
def test_a_reference_that_dies_or_hangs_is_told_as_ever(in_worker: Any, reference: str, message: str) -> None:
    found = in_worker(the_case(reference=f"{__name__}:{reference}", timeout_s=1.0))  # looked after each second
    assert (found.status, found.reason) == (Status.ERROR, Reason.REFERENCE_FAILED), found.message
    assert found.message == message

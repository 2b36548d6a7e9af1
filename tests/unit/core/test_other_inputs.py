"""Outputs for inputs other than the case's are compared with the reference for these; without one, the check
says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_kit import case_of, raising, spec_of, values_of, worker_of
from texts import says_exactly

from optest.backends import BackendDriver, ExtraOutput, PreparedCall, backend_manager
from optest.core.benchmarking import BenchOptions
from optest.core.deadlines import PhaseLimits
from optest.core.phases import Phase
from optest.core.runner import execute
from optest.spec import CheckState, Fill, Reason, Status, TestCase, Verdict

SPEC = spec_of(5)
ONES, THREES = np.ones(5, np.float32), np.full(5, 3.0, np.float32)
CHANGED_INPUT, CHANGED_OTHER = {"input": THREES}, {"other": THREES}


class Doubling(BackendDriver):
    """Driver that doubles its input and has further outputs, ``answers``, for other inputs."""

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

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:
        return [
            ExtraOutput(outputs=[ONES * answer], how="with threes", reason=Reason.STATE, inputs=changed)
            for answer, changed in zip(self._answers, self._changed, strict=True)
        ]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        yield PreparedCall(call=lambda: self.run(case, inputs), outputs=lambda: self.run(case, inputs))


def register() -> None:
    """Register the backend if a worker loads this file as a plug-in."""
    if Doubling.name not in backend_manager.names():
        backend_manager.register(Doubling(6.0))


register()


def the_case(**further: Any) -> TestCase:
    return case_of("mul", SPEC, SPEC, fill=[Fill(kind="ones"), values_of(*[2.0] * 5)], **further)


def verdict_of(driver: BackendDriver, **further: Any) -> Verdict:
    return execute([the_case(**further)], driver).verdicts[0]


def checks_of_inputs(verdict: Verdict) -> list[tuple[CheckState, str]]:
    return [(check.state, check.detail) for check in verdict.checks if check.name == "other values"]


def test_the_right_answer_to_other_inputs_passes() -> None:
    verdict = verdict_of(Doubling(6.0))
    assert verdict.status is Status.PASSED
    assert checks_of_inputs(verdict) == [(CheckState.DONE, "of input input")]


def test_outputs_of_original_inputs_fail_for_others() -> None:
    verdict = verdict_of(Doubling(2.0))
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.STATE), verdict
    assert verdict.message.startswith("with threes: out: 5 of 5 elements are off")
    assert checks_of_inputs(verdict) == [(CheckState.DONE, "of input input")]


def of_ones_alone(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] != 1:
        raise ValueError("these values alone\nand no others")
    return [inputs[0] * np.float64(1.0) * inputs[1]]


def for_ones_only(otherwise: Callable[[], Any]) -> Callable[..., Any]:
    """Return a reference that calls ``otherwise`` for inputs other than ones."""

    def reference(inputs: Sequence[Any], attributes: Any) -> Any:
        return [np.full(5, 2.0)] if inputs[0][0] == 1 else otherwise()

    return reference


of_another_shape = for_ones_only(lambda: [np.full(4, 2.0)])
out_of_memory = for_ones_only(raising(MemoryError()))
dies_of_others = for_ones_only(lambda: os._exit(9))
hangs_with_others = for_ones_only(lambda: time.sleep(3600))


class Twos:
    """Generator with fixed inputs and their products."""

    def generate(self, case: TestCase, rng: Any) -> Any:
        return [ONES.copy(), ONES * np.float32(2)], [ONES * 2.0]


@pytest.mark.parametrize(
    ("driver", "changes", "text"),
    [
        ({}, {"reference": of_ones_alone}, "core.inputs_of_failed_reference"),
        ({}, {"reference": of_another_shape, "outputs": (SPEC,)}, "core.inputs_of_another_shape"),
        ({}, {"reference": out_of_memory}, "core.inputs_without_memory"),
        ({}, {"generator": f"{__name__}:Twos"}, "core.inputs_of_generator"),
        ({"known": [ONES * np.float32(2)]}, {}, "core.inputs_of_golden_outputs"),
        ({"changed": [{"positions": THREES}]}, {}, "core.inputs_of_unknown_name"),
    ],
)
def test_other_inputs_without_expected_outputs(driver: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    verdict = verdict_of(Doubling(-1.0, **driver), **changes)
    assert verdict.status is Status.PASSED, verdict
    ((state, detail),) = checks_of_inputs(verdict)
    assert state is CheckState.NOT_POSSIBLE
    assert says_exactly(detail, text)


def test_each_input_has_its_own_check() -> None:
    verdict = verdict_of(Doubling(-1.0, 3.0, changed=[CHANGED_INPUT, CHANGED_OTHER]), reference=of_ones_alone)
    assert verdict.status is Status.PASSED, verdict
    done, (state, detail) = checks_of_inputs(verdict)
    assert (done, state) == ((CheckState.DONE, "of input other"), CheckState.NOT_POSSIBLE)
    assert says_exactly(detail, "core.inputs_of_failed_reference")


def test_inputs_with_one_reason_share_a_check() -> None:
    known = [ONES * np.float32(2)]
    verdict = verdict_of(Doubling(-1.0, -1.0, known=known, changed=[CHANGED_INPUT, CHANGED_OTHER]))
    ((state, detail),) = checks_of_inputs(verdict)
    assert state is CheckState.NOT_POSSIBLE
    assert detail.startswith("inputs input, other: ")


def test_no_other_inputs_means_no_check() -> None:
    assert checks_of_inputs(verdict_of(Doubling(2.0, changed=[None]))) == []


def test_reference_phase_is_announced() -> None:
    seen: list[Phase] = []
    execute([the_case()], Doubling(6.0), announce=seen.append)
    assert seen[-4:] == [Phase.COMPARE, Phase.REFERENCE, Phase.COMPARE, Phase.IDLE]


def test_a_timed_case_asks_no_second_time() -> None:
    calls = []

    def counted(inputs: Sequence[Any], attributes: Any) -> Any:
        calls.append(inputs[0][0])
        return [inputs[0] * np.float64(1.0) * inputs[1]]

    execution = execute([the_case(reference=counted)], Doubling(6.0), bench=BenchOptions(target_s=1e-4))
    assert execution.benchmark is not None
    assert execution.benchmark.time is not None
    assert calls == [1.0, 3.0]


def test_a_real_interrupt_goes_through() -> None:
    case = the_case(reference=for_ones_only(raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        execute([case], Doubling(6.0), interrupted=lambda: True)


class Impatient(PhaseLimits):
    """Limits of two seconds for a reference and of 300 s for all other phases."""

    def allowance_s(self, phase: Phase, case: TestCase) -> float:
        return 2.0 if phase is Phase.REFERENCE else 300.0


@pytest.fixture
def in_worker(tmp_path: Path) -> Iterator[Callable[[TestCase], Verdict]]:
    with worker_of(Doubling.name, tmp_path, __name__, limits=Impatient()) as worker:
        yield lambda case: worker.execute([case]).verdicts[0]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("dies_of_others", "the reference ended its process with exit status 9"),
        ("hangs_with_others", "the reference took more than 2 s and was killed"),
    ],
)
def test_dead_or_hanging_reference_is_reported(in_worker: Any, reference: str, message: str) -> None:
    verdict = in_worker(the_case(reference=f"{__name__}:{reference}", timeout_s=1.0))  # looked after each second
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.REFERENCE_FAILED), verdict.message
    assert verdict.message == message

"""Executions in forks of this process, with a driver that compares by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from core_kit import case_of, spec_of

from optest.backends import BackendDriver
from optest.core import forked
from optest.core.border import UserInterrupt
from optest.core.executors import InProcess
from optest.core.forked import InForks
from optest.spec import Evidence, Fill, OperatorDescriptor, Reason, Status, TestCase, Verdict

PASS = Verdict(status=Status.PASSED, evidence=Evidence.EXTERNAL_REPORT)


class Local(BackendDriver):
    """Driver that no worker can import; the case names its behaviour."""

    name = "local"

    def __init__(self) -> None:
        self.ran = 0

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self.ran += 1
        match case.attributes["does"]:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                time.sleep(60)
            case "interrupts":
                time.sleep(0.2)  # exceptions in the hooks of the parent's fork are ignored
                os.kill(os.getppid(), signal.SIGALRM)
                raise UserInterrupt
            case "raises":
                raise ValueError("bad")
        return ()

    def own_verdict(self, case: TestCase) -> Verdict:
        return PASS


def executed(does: str, driver: Local | None = None, **more: Any) -> Verdict:
    descriptor = OperatorDescriptor(name="local", signature="-> out", open_attributes=True)
    case = TestCase(descriptor=descriptor, inputs=(), attributes={"does": does}, **more)
    (verdict,) = InForks(InProcess(driver or Local())).execute([case]).verdicts
    return verdict


def test_fork_returns_verdict_from_other_process() -> None:
    driver = Local()
    assert executed("answers", driver) == PASS
    assert driver.ran == 0


def test_fork_death_ends_one_execution() -> None:
    assert executed("dies").reason is Reason.SIGNAL
    assert executed("hangs", timeout_s=0.3).reason is Reason.DEADLINE
    raised = executed("raises")
    assert (raised.reason, raised.message) == (Reason.RAISED, "the backend raised ValueError: bad")


def test_unreadable_result_blames_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "encode", lambda _: b"\xc1")
    assert executed("answers").reason is Reason.STATE


def test_interruption_is_raised_in_parent(capfd: pytest.CaptureFixture[str]) -> None:
    def raise_it(*_: object) -> None:
        raise UserInterrupt

    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        with pytest.raises(UserInterrupt):
            executed("interrupts")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert capfd.readouterr().err == "", "the fork leaves without a traceback"


def test_backend_cannot_judge_expected_outputs() -> None:
    class Praises(BackendDriver):
        name = "praises"

        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            return [np.zeros(case.outputs[0].shape, np.float32)]

        def own_verdict(self, case: TestCase) -> Verdict:
            return PASS

    case = case_of("relu", spec_of(4), outputs=(spec_of(4),), fill=Fill(kind="ones"))
    (verdict,) = InProcess(Praises()).execute([case]).verdicts
    assert verdict.reason is Reason.VALUE

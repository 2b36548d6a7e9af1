"""The deadline of an operator that hangs is shortened, unless the user set it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core_kit import worker_of
from test_every_reason import case_of  # type: ignore[import-not-found]

from optest.backends import BackendDriver
from optest.core import deadlines
from optest.core.deadlines import Deadlines, PhaseLimits
from optest.core.executors import InProcess
from optest.core.phases import Phase
from optest.spec import Evidence, Fault, Reason, Status, TestCase, Verdict

LATE = Verdict(status=Status.TIMEOUT, reason=Reason.DEADLINE)
PASSED = Verdict(status=Status.PASSED, evidence=Evidence.RAISED_AS_EXPECTED)


def of(operator: str = "add", timeout_s: float | None = 300.0) -> TestCase:
    case = case_of(backend="numpy")
    return replace(case, descriptor=replace(case.descriptor, name=operator), timeout_s=timeout_s)


def hung(times: int, **usual: Any) -> Deadlines:
    deadlines = Deadlines(usual_s=300.0, **usual)
    for _ in range(times):
        deadlines.record(of(), LATE, None)
    return deadlines


@pytest.mark.parametrize(("hangs", "longest_s", "expected_s"), [(1, 0.1, 300), (2, 0.1, 10), (3, 4, 40), (2, 90, 300)])
def test_hangs_shorten_deadline(hangs: int, longest_s: float, expected_s: float) -> None:
    deadlines = hung(hangs)
    deadlines.record(of(), PASSED, longest_s)
    deadlines.record(of(), PASSED, longest_s / 2)
    assert deadlines.limit_s(of()) == expected_s
    assert PhaseLimits(deadlines=deadlines).allowance_s(Phase.RUN, of()) == expected_s
    assert bool(deadlines.explanation(of())) == (expected_s < 300)


@pytest.mark.parametrize(("passed", "longest_s", "expected_s"), [(9, 0.1, 300), (10, 0.1, 60), (10, 7, 70)])
def test_passes_shorten_deadline_of_similar_cases(passed: int, longest_s: float, expected_s: float) -> None:
    deadlines, of_a_model = hung(0, alike=True), hung(0)
    for _ in range(passed):
        deadlines.record(of(), PASSED, longest_s)
        of_a_model.record(of(), PASSED, longest_s)
    assert deadlines.limit_s(of()) == expected_s
    assert of_a_model.limit_s(of()) == 300
    assert deadlines.limit_s(of("mul")) == 300


def test_explicit_deadlines_are_not_shortened() -> None:
    deadlines = hung(5)
    assert deadlines.limit_s(of("mul")) == 300
    assert deadlines.limit_s(of(timeout_s=200.0)) == 200
    stated = Deadlines()
    for _ in range(5):
        stated.record(of(), LATE, None)
    assert stated.limit_s(of()) == 300


def test_driver_gets_shortened_deadline() -> None:
    class Slow(BackendDriver):
        name = kind = "slow"
        keeps_deadline = True

        def run(self, case: TestCase, inputs: object) -> list[object]:
            raise Fault(Reason.DEADLINE, f"more than {case.timeout_s:g} s")

    executor = InProcess(Slow(), deadlines=Deadlines(usual_s=300.0))
    found = [executor.execute([of()]).verdicts[0].message.split(";")[0] for _ in range(3)]
    assert found == ["more than 300 s", "more than 300 s", "more than 10 s"]


HANGING = """
import time
from optest.backends import BackendDriver, backend_manager

class Hanging(BackendDriver):
    name = kind = "hanging"

    def run(self, case, inputs):
        time.sleep(600)

backend_manager.register(Hanging(), replace=True)
"""


def test_shortened_deadline_ends_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging_backend.py").write_text(HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(deadlines, "_LEAST_AFTER_HANGS_S", 0.3)
    with worker_of("hanging", tmp_path, "hanging_backend", limits=PhaseLimits(deadlines=hung(2))) as worker:
        verdict = worker.execute([of()]).verdicts[0]
    assert (verdict.reason, verdict.details["timeout_s"]) == (Reason.DEADLINE, 0.3)


@pytest.mark.parametrize(
    ("timeout_s", "own_s"), [(1.0, 60.0), (12.0, 120.0), (30.0, 300.0), (300.0, 300.0), (900.0, 900.0), (None, 300.0)]
)
def test_short_deadline_shortens_other_phases(timeout_s: float | None, own_s: float) -> None:
    case = replace(case_of(), timeout_s=timeout_s)
    for phase in (Phase.GENERATE, Phase.REFERENCE, Phase.COMPARE):
        assert PhaseLimits().allowance_s(phase, case) == own_s
    assert PhaseLimits().allowance_s(Phase.RUN, case) == (timeout_s or 300.0)

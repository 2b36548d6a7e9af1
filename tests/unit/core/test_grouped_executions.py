"""Quick executions in this process share their parts: what comes out is what comes out of each alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from optest.api import cases as cases_of
from optest.backends import BackendDriver, FurtherAnswer
from optest.clib.library.driver import FfiBackend
from optest.core import phases, runner, session
from optest.core.executors import InProcess
from optest.core.session import Policy, Session
from optest.spec import (
    CaseResult,
    Check,
    CheckState,
    ExpectedError,
    Fault,
    Reason,
    RunInfo,
    RunSummary,
    Skip,
    Status,
    TestCase,
    Timings,
    Verdict,
)


class Sum(BackendDriver):
    """Adds, and keeps a diary; what it says of its latest case, it says of no other. Seeds say what it does wrong."""

    __module__ = "optest.tested"  # one of optest's own
    name = kind = "sum"
    answers_stay = True
    guards_memory = True
    wait_s = 0.0

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.latest: TestCase | None = None

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self.latest = case
        self.diary.append(f"run {case.seed}")
        time.sleep(self.wait_s)
        if case.seed == 3 or case.expects_error is not None:
            raise Fault(
                Reason.RAISED, "three", details={"exception": "E: three", "exception_types": ["E", "Exception"]}
            )
        return [inputs[0] + inputs[1] + np.float32(case.seed == 5)]

    def checks(self, case: TestCase) -> Sequence[Check]:
        seed = self.latest.seed if self.latest else "nothing"
        return [Check(name="asked", state=CheckState.NOTE, detail=f"{case.seed} after {seed}")]

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        assert self.latest is case
        if case.seed == 9:
            raise ValueError("nine")
        off = np.full(case.outputs[0].shape, 7.0, np.float32)
        return [FurtherAnswer(outputs={"out": off}, how="again", reason=None)] if case.seed == 7 else ()


class NoReference(Sum):
    """Its expected values are asked for before it is."""

    __module__ = Sum.__module__

    def golden(self, case: TestCase) -> Sequence[Any] | None:
        self.diary.append(f"golden {case.seed}")
        return None


def total(inputs: Sequence[Any], attributes: Any) -> Any:
    return inputs[0].astype(np.float64) + inputs[1]


@dataclass
class Heard:
    """A journal and a listener."""

    results: list[CaseResult] = field(default_factory=list)
    diary: list[str] = field(default_factory=list)

    def start(self, info: RunInfo) -> None: ...
    def end(self, summary: RunSummary) -> None: ...
    def on_start(self, info: RunInfo) -> None: ...
    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None: ...
    def on_case_result(self, result: CaseResult, index: int, total: int) -> None: ...

    def result(self, result: CaseResult) -> None:
        self.results.append(result)
        self.diary.append(f"result {result.seed}")


def adds(count: int, size: int = 40) -> list[TestCase]:
    (case,) = cases_of(op="add", dtype="float32", shape=(f"input0={size}", f"input1={size}"))
    return [replace(case, seed=seed) for seed in range(count)]


def run(driver: Sum, cases: Sequence[TestCase], **policy: Any) -> Heard:
    heard = Heard(diary=driver.diary)
    info = RunInfo(run_id="r", started_at="now", total=len(cases), target="sum", seed=0)
    found = Session(
        info=info,
        cases=cases,
        driver=driver,
        make_executor=lambda _: InProcess(driver),
        journal=heard,
        listener=heard,
        policy=Policy(**policy),
    )
    summary = found.run()
    assert found.failure is None
    assert summary.finished == len(heard.results)
    return heard


def test_every_case_gets_the_verdict_that_it_gets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes, faults, wrong values, other answers, a driver that fails to say, refusals, what is skipped."""
    monkeypatch.setattr(session, "_TOGETHER_S", 10.0)
    cases = adds(40)
    cases[20] = replace(cases[20], skip=Skip(reason="so"))
    cases[22] = replace(cases[22], expects_error=ExpectedError(type="E", match="three"))
    cases[24] = replace(cases[24], reference="nowhere:at_all")
    found = run(Sum(), cases).results
    assert [each.seed for each in found] == list(range(40))

    def alone(case: TestCase) -> Verdict:
        driver = Sum()
        return runner.why_not_run(case, driver) or runner.execute([case], driver).verdicts[0]

    assert [each.verdict for each in found] == [alone(case) for case in cases]
    said = [(each.seed, each.status.value) for each in found if each.status is not Status.PASSED]
    assert [status for _, status in said] == ["error", "failed", "failed", "error", "skipped", "error"]
    assert [check.detail for check in found[2].verdict.checks if check.name == "asked"] == ["2 after 2"]


def test_parts_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TOGETHER_S", 10.0)
    driver = NoReference()
    run(driver, adds(7))
    one = [f"{part} {seed}" for seed in (0,) for part in ("golden", "run", "result")]
    two = [f"{part} {seed}" for part in ("golden", "run", "result") for seed in (1, 2)]
    four = [f"{part} {seed}" for part in ("golden", "run", "result") for seed in (3, 4, 5, 6)]
    told = list(dict.fromkeys(driver.diary))  # what is wrong is looked into, so that its driver is asked more than once
    assert told == one + two + four


def test_timings_are_those_of_the_case_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on while the backend works, and nowhere else."""
    monkeypatch.setattr(session, "_TOGETHER_S", 1e9)
    driver, now = Sum(), [0.0]

    def answer(case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        now[0] += 2.0 + case.seed
        return Sum.run(driver, case, inputs)

    monkeypatch.setattr(driver, "run", answer)
    for module in (runner, phases):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    for each in run(driver, adds(8)).results:
        assert each.timings == Timings(generate_s=0.0, reference_s=0.0, run_s=2.0 + each.seed, compare_s=0.0)


def test_slow_cases_are_reported_one_by_one() -> None:
    driver = Sum()
    driver.wait_s = session._TOGETHER_S
    run(driver, adds(5))
    assert driver.diary == [f"{part} {seed}" for seed in range(5) for part in ("run", "result")]


@pytest.mark.parametrize(
    "how",
    [
        "maxfail",
        "retries",
        "retries of the case",
        "retries of one",
        "large",
        "strange",
        "own",
        "no outputs",
        "reference",
    ],
)
def test_what_cannot_share_its_parts_is_asked_alone(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TOGETHER_S", 10.0)
    driver, policy, cases = Sum(), dict[str, int](), adds(8)[:3]
    if how in ("maxfail", "retries"):
        policy = {how: 100}
    elif how == "retries of the case":
        cases = [replace(case, retries=1) for case in cases]
    elif how == "retries of one":
        cases[1] = replace(cases[1], retries=1)
    elif how == "large":
        cases = adds(3, size=4000)
    elif how == "strange":
        monkeypatch.setattr(Sum, "__module__", "elsewhere")
    elif how == "own":
        monkeypatch.setattr(Sum, "answers_stay", False)
    elif how == "no outputs":
        cases = [replace(case, outputs=()) for case in cases]
    else:
        cases = [replace(case, reference=f"{__name__}:total") for case in cases]
    run(driver, cases, **policy)
    assert driver.diary == [f"{part} {seed}" for seed in range(3) for part in ("run", "result")]


def test_only_drivers_of_ones_own_say_that_their_answers_stay() -> None:
    assert not BackendDriver.answers_stay
    assert FfiBackend.answers_stay
    assert FfiBackend.__module__.startswith("optest.")


@pytest.mark.parametrize(
    ("most", "count", "passed_s", "used_s", "following"),
    [
        (1, 1, 0.0001, 0.0001, 2),
        (64, 64, 0.008, 0.008, 64),  # no more than that
        (64, 64, 0.06, 0.008, 64),  # others had the processor
        (64, 64, 0.32, 0.008, 32),  # nobody has it for so long, so the library waits
        (16, 16, 0.02, 0.02, 16),
        (16, 16, 0.04, 0.04, 8),
        (8, 8, 0.2, 0.001, 1),
    ],
)
def test_a_group_is_as_large_as_its_work_allows(
    most: int, count: int, passed_s: float, used_s: float, following: int
) -> None:
    assert session._next_size(most, count, passed_s, used_s) == following

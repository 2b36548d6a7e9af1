"""The loop of a run with scripted executors: retries, stopping, dedupe, resume, a full disk."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from core_kit import case_of, raising, spec_of

from optest.backends import BackendDriver
from optest.core import runner
from optest.core.executors import Closed
from optest.core.results import resume_key
from optest.core.session import Interruption, Policy, Session
from optest.core.wire import case_from_wire, case_to_wire
from optest.errors import OptestError
from optest.spec import (
    CaseResult,
    Evidence,
    Layer,
    Measure,
    OperatorDescriptor,
    Picture,
    Reason,
    RunInfo,
    RunSummary,
    Skip,
    Status,
    TestCase,
    Timings,
    Tolerance,
    ToleranceLayer,
    Verdict,
    Xfail,
)

COPY = OperatorDescriptor(name="copy", signature="x -> out", reference="nowhere:copy")
PASS = Verdict(
    status=Status.PASSED,
    evidence=Evidence.MEASURED,
    measures=(Measure(output="out", dtype="float32", shape=(3,), compared=3),),
)
FAIL = Verdict(status=Status.FAILED, reason=Reason.VALUE, message="off")
CRASH = Verdict(status=Status.CRASHED, reason=Reason.SIGNAL, message="SIGSEGV")


def case_named(name: str, size: int = 3, **changes: Any) -> TestCase:
    attributes = changes.pop("attributes", {})
    return replace(case_of(COPY, spec_of(size), name=name, **changes), attributes=attributes)


def lettered(letters: str) -> list[TestCase]:
    """Return a case of another size for each letter."""
    return [case_named(letter, size) for size, letter in enumerate(letters, 1)]


@dataclass
class Scripted:
    """Executor that returns the scripted verdicts of each case one after the other, and then the last one.

    It calls ``runs`` with the name of a case before its result, and ``closes`` when it is closed.
    """

    answers: dict[str, list[Verdict]]
    asked: list[list[str]] = field(default_factory=list)
    closed: int = 0
    looks_ahead: bool = False
    attempts: int = 1
    runs: Callable[[str], object] = lambda _: None
    closes: Callable[[], object] = lambda: None

    def execute(self, cases: Sequence[TestCase], following: Any = ()) -> runner.ExecutionResult:
        self.asked.append([case.id for case in cases])
        self.runs(cases[0].id)
        script = self.answers.get(cases[0].id, [PASS])
        verdict = script.pop(0) if len(script) > 1 else script[0]
        verdicts = tuple(verdict for _ in cases)
        return runner.ExecutionResult(verdicts, Timings(run_s=0.1), attempts=self.attempts)

    def close(self) -> None:
        self.closed += 1
        self.closes()


@dataclass
class Heard:
    """Journal and listener that record their calls."""

    lines: list[str] = field(default_factory=list)
    results: list[CaseResult] = field(default_factory=list)
    full_after: int = 1_000
    interrupt_after: int = 1_000

    def start(self, info: RunInfo) -> None:
        self.lines.append("start")

    def result(self, result: CaseResult) -> None:
        if len(self.results) >= self.full_after:
            raise OptestError("no space left on device")
        self.results.append(result)

    def end(self, summary: RunSummary) -> None:
        self.lines.append("end")

    def on_start(self, info: RunInfo) -> None:
        self.lines.append("on_start")

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        self.lines.append(f"{index}/{total} {result.status.value}")
        if index + 1 >= self.interrupt_after:
            raise KeyboardInterrupt

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        self.lines.append("on_complete")


def session_of(
    cases: Sequence[TestCase], executor: Scripted, heard: Heard | None = None, **policy: Any
) -> tuple[Session, Heard]:
    heard = heard or Heard()
    info = RunInfo(run_id="r", started_at="now", total=len(cases), target="numpy", seed=0)
    earlier = policy.pop("earlier", {})
    session = Session(
        info=info,
        cases=cases,
        driver=BackendDriver(),
        make_executor=lambda _: executor,
        journal=heard,
        listener=heard,
        policy=Policy(**policy),
        earlier=earlier,
    )
    return session, heard


def test_results_are_journaled_before_listener() -> None:
    session, heard = session_of(lettered("ab"), Scripted({"b": [FAIL]}))
    summary = session.run()
    assert heard.lines == ["start", "on_start", "0/2 passed", "1/2 failed", "end", "on_complete"]
    assert summary.exit_status == 1
    assert summary.by_reason == {"VALUE": 1}


def test_crashes_are_retried_but_failures_are_not() -> None:
    executor = Scripted({"a": [CRASH, PASS], "b": [FAIL, PASS], "c": [CRASH]})
    session, heard = session_of(lettered("abc"), executor, retries=2)
    session.run()
    statuses = {result.id: (result.status, result.attempts) for result in heard.results}
    assert statuses == {"a": (Status.SUSPECT, 2), "b": (Status.FAILED, 1), "c": (Status.CRASHED, 3)}
    assert "SIGNAL" in heard.results[0].verdict.message


XFAILED = Verdict(status=Status.XFAILED, reason=Reason.VALUE, message="known")
SKIPPED = Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message="no kernel")
UNCHECKED = Verdict(status=Status.UNCHECKED)


@pytest.mark.parametrize("second", [XFAILED, SKIPPED, UNCHECKED])
def test_later_verdict_keeps_earlier_crash(second: Verdict) -> None:
    session, heard = session_of([case_named("a", 1)], Scripted({"a": [CRASH, second]}), retries=1)
    assert session.run().exit_status == 1
    verdict = heard.results[0].verdict
    assert verdict.status is Status.SUSPECT
    assert verdict.message.startswith(f"{second.status.value} at attempt 2, after SIGNAL: ")


def test_failure_after_crash_mentions_crash() -> None:
    executor = Scripted({"a": [CRASH, FAIL], "b": [CRASH]})
    session, heard = session_of(lettered("ab"), executor, retries=1)
    session.run()
    failed, crashed = (result.verdict for result in heard.results)
    assert (failed.status, crashed.status) == (Status.FAILED, Status.CRASHED)
    assert str(failed.details["earlier attempt"]).startswith("SIGNAL: ")
    assert "earlier attempt" not in crashed.details


def picture_of(verdict: Verdict, count: int = 1) -> Verdict:
    picture = Picture(output="out", rows=1, columns=3, cell=(1, 1), levels="")
    return replace(verdict, pictures=(picture,) * count)


def test_journal_limits_pictures() -> None:
    expected = picture_of(Verdict(status=Status.XFAILED, reason=Reason.VALUE))
    operators = [replace(COPY, name=f"copy{number}") for number in range(30)]
    cases = [replace(case_named(f"{item.name}-{n}", n + 1), descriptor=item) for item in operators for n in range(25)]
    answers = {case.id: [picture_of(FAIL)] for case in cases} | {
        "copy0-0": [expected],
        "copy0-1": [picture_of(FAIL, 3)],
    }
    session, heard = session_of(cases, Scripted(answers))
    session.run()
    kept = {case.id: len(result.verdict.pictures) for case, result in zip(cases, heard.results, strict=True)}
    assert [kept[f"copy0-{n}"] for n in range(25)] == [0, 3] + [1] * 17 + [0] * 6
    assert [sum(kept[f"{item.name}-{n}"] for n in range(25)) for item in operators] == [20] * 10 + [0] * 20
    earlier = {resume_key(case, 0): result for case, result in zip(cases, heard.results, strict=True) if kept[case.id]}
    again, heard_again = session_of(cases, Scripted(answers), earlier=earlier)
    again.run()
    assert heard_again.results
    assert not any(result.verdict.pictures for result in heard_again.results)


def test_maxfail_stops_the_run() -> None:
    session, heard = session_of(lettered("abcd"), Scripted({"b": [FAIL]}), maxfail=1)
    summary = session.run()
    assert [result.id for result in heard.results] == ["a", "b"]
    assert (summary.finished, summary.total) == (2, 4)


def test_shared_execution_keeps_verdicts_of_cases() -> None:
    strict = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=0.0))
    cases = [
        case_named("a"),
        case_named("b", tolerances=(strict,)),
        case_named("c", xfail=Xfail(reason="known")),
        case_named("other", 4),
        case_named("left out", skip=Skip(reason="no")),
    ]
    executor = Scripted({})
    session, heard = session_of(cases, executor)
    session.run()
    assert executor.asked == [["a", "b", "c"], ["other"]]
    duplicates = {result.id: result.duplicate_of for result in heard.results}
    assert duplicates == {"a": None, "b": "a", "c": "a", "other": None, "left out": None}


def test_values_of_different_type_share_no_execution() -> None:
    keys = {replace(case_named("a"), attributes={"n": value}).key for value in (1, 1.0, True, "1", None, (1,))}
    assert len(keys) == 6


def test_interruption_keeps_journal_and_reports() -> None:
    session, heard = session_of(lettered("abc"), Scripted({}), Heard(interrupt_after=2))
    assert session.run().exit_status == 130
    assert heard.lines[-2:] == ["end", "on_complete"]
    assert len(heard.results) == 2


class Struck(Heard):
    completed: Sequence[CaseResult] = ()

    def result(self, result: CaseResult) -> None:
        super().result(result)
        if len(self.results) == 2:
            signal.raise_signal(signal.SIGINT)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        self.completed = tuple(results)


def test_result_journaled_during_interrupt_is_counted() -> None:
    session, heard = session_of(lettered("abc"), Scripted({}), Struck())
    summary = session.run()
    assert (summary.finished, summary.interrupted) == (2, True)
    assert isinstance(heard, Struck)
    assert [item.id for item in heard.completed] == [item.id for item in heard.results] == ["a", "b"]


def test_second_ctrl_c_leaves_no_executor_open() -> None:
    # otherwise the process would wait for the cases of the other executors
    executors = [Scripted({}, closes=lambda: signal.raise_signal(signal.SIGINT)) for _ in range(2)]
    session, heard = session_of([case_named("a"), case_named("b", 1)], executors[0], Heard(interrupt_after=1), jobs=2)
    session.make_executor = lambda lane: executors[lane]
    assert session.run().interrupted
    assert [item.closed for item in executors] == [1, 1]
    assert heard.lines[-2:] == ["end", "on_complete"]


def test_one_thread_at_a_time_calls_unsupported() -> None:
    # authors of drivers do not expect threads in `unsupported`
    inside: list[str] = []
    at_once: list[int] = []

    class Slow(BackendDriver):
        def unsupported(self, case: TestCase) -> str | None:
            inside.append(case.name)
            time.sleep(0.01)
            at_once.append(len(inside))
            inside.remove(case.name)
            return None

    session, _ = session_of(lettered("abcdef"), Scripted({}), jobs=3)
    session.driver = Slow()
    assert session.run().finished == 6
    assert at_once == [1] * 6


def test_signal_between_waits_ends_run() -> None:
    # a signal just before a wait, or one that another thread receives, does not end the wait
    closed, in_time = threading.Event(), list[bool]()

    def waits(_: str) -> None:
        time.sleep(0.2)  # the session waits by now
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        in_time.append(closed.wait(20))

    session, _ = session_of([case_named("a"), case_named("b", 1)], Scripted({}, runs=waits, closes=closed.set), jobs=2)
    assert (session.run().exit_status, in_time) == (130, [True, True])


def test_simultaneous_signals_raise_once() -> None:
    interruption = Interruption()
    with interruption.watched():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert interruption.is_cancelled


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_hangup_interrupts_unless_ignored(handler: signal.Handlers) -> None:
    before, interruption = signal.signal(signal.SIGHUP, handler), Interruption()
    interrupts = handler is signal.SIG_DFL
    with interruption.watched(), pytest.raises(KeyboardInterrupt) if interrupts else nullcontext():
        signal.raise_signal(signal.SIGHUP)
    assert signal.signal(signal.SIGHUP, before) is handler
    assert interruption.is_cancelled is interrupts


def test_closed_executor_interrupts_run() -> None:
    executor = Scripted({}, runs=raising(Closed("closed while a case was waiting")))
    session, _ = session_of([case_named("a")], executor)
    assert session.run().exit_status == 130
    assert session.failure is None


def test_executor_registered_after_interruption_is_closed() -> None:
    executor, interruption = Scripted({}), Interruption()
    interruption.cancel()
    interruption.register(executor)
    assert executor.closed == 1


def test_full_disk_keeps_written_results() -> None:
    session, heard = session_of(lettered("abc"), Scripted({}), Heard(full_after=1))
    session.run()
    assert session.failure is not None
    assert len(heard.results) == 1
    assert heard.lines[-1] == "on_complete"


@pytest.mark.parametrize("jobs", [1, 3])
def test_resume_runs_only_missing_cases(jobs: int) -> None:
    cases = lettered("abcd")
    first, heard = session_of(cases, Scripted({"b": [FAIL]}), maxfail=1)
    first.run()
    earlier: dict[object, CaseResult] = {
        (result.id, result.key, result.target, result.round): result for result in heard.results
    }
    assert all(resume_key(case, 0) in earlier for case in cases[:2])
    executor = Scripted({})
    second, again = session_of(cases, executor, earlier=earlier, jobs=jobs)
    summary = second.run()
    assert sorted(result.id for result in again.results) == ["c", "d"]
    assert (summary.finished, summary.by_status) == (4, {"passed": 3, "failed": 1})


def test_worker_slots_run_all_cases_once() -> None:
    cases = [case_named(str(size), size) for size in range(1, 40)]
    executor = Scripted({})
    session, heard = session_of(cases, executor, jobs=4, rounds=2)
    summary = session.run()
    assert summary.finished == 78
    assert sorted(int(result.id) for result in heard.results if result.round == 1) == list(range(1, 40))
    assert executor.closed == 4


def test_idle_worker_slot_releases_resources() -> None:
    # another slot may wait for it, such as for devices of a cluster
    is_closed, begun = threading.Event(), threading.Barrier(2)

    def waits(_: str) -> None:
        begun.wait(20)
        assert is_closed.wait(20)

    executors = [Scripted({}, runs=lambda _: begun.wait(20), closes=is_closed.set), Scripted({}, runs=waits)]
    session, heard = session_of(lettered("ab"), executors[0], jobs=2)
    session.make_executor = lambda lane: executors[lane]
    session.run()
    assert len(heard.results) == 2
    assert [item.closed for item in executors] == [1, 1]


def test_attempts_on_lost_machines_count() -> None:
    cases = [case_named("a"), case_named("b", 4, retries=1)]
    session, heard = session_of(cases, Scripted({"b": [CRASH, PASS]}, attempts=2))
    session.run()
    assert [(result.id, result.attempts, result.status) for result in heard.results] == [
        ("a", 2, Status.PASSED),
        ("b", 4, Status.SUSPECT),
    ]


def test_case_survives_wire_form() -> None:
    spec = spec_of(2, 3, kind="bfloat16", strides=(0, -1), offset=2)
    case = case_named(
        "a",
        tolerances=(ToleranceLayer(layer=Layer.PLAN, tolerance=Tolerance(rtol=1e-3), where="p.yaml:3"),),
        attributes={"dims": (0, 1), "alpha": 2.0, "none": None},
        tags=("x", "y"),
        backend_config={"numpy": {"list": [1, [2]]}},
        timeout_s=3.0,
        outputs=(spec,),
    )
    for status in (Status.CRASHED, None):
        case = replace(case, xfail=Xfail(reason="r", status=status))
        again = case_from_wire(case_to_wire(case), lambda name: COPY)
        assert again == case
        assert again.key == case.key


@pytest.mark.parametrize("jobs", [1, 2])
def test_slow_case_is_reported(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.core.session._SLOW_S", 0.05)
    monkeypatch.setattr("optest.core.session._LOOK_S", 0.01)
    named = threading.Event()

    def hangs(name: str) -> None:
        assert name != "hangs" or named.wait(30)

    class Waits(Heard):
        def on_wait(self, case: str, seconds: float, done: int, total: int) -> None:
            self.lines.append(case)
            assert (seconds >= 0.05, total) == (True, 3)
            named.set()

    cases = [case_named("a", 1), case_named("hangs", 2), case_named("b", 3)]
    session, heard = session_of(cases, Scripted({}, looks_ahead=True, runs=hangs), Waits(), jobs=jobs)
    assert session.run().exit_status == 0
    assert "hangs" in heard.lines

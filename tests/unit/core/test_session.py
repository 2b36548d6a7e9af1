"""The loop, with executors that are dictionaries: retries, stopping, dedupe, resume, a full disk."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from optest.backends import BackendDriver
from optest.core import runner
from optest.core.executors import Closed
from optest.core.session import Interruption, Policy, Session, resume_key
from optest.core.wire import case_from_wire, case_to_wire
from optest.errors import OptestError
from optest.spec import (
    Argument,
    CaseResult,
    Evidence,
    Fill,
    Layer,
    Measure,
    OperatorDescriptor,
    Picture,
    Reason,
    RunInfo,
    RunSummary,
    Skip,
    Status,
    TensorSpec,
    TestCase,
    Timings,
    Tolerance,
    ToleranceLayer,
    Verdict,
    Xfail,
    dtype,
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
    spec = TensorSpec(dtype=dtype("float32"), shape=(size,))
    argument = Argument(name="x", path="input0", spec=spec, fill=Fill(kind="randn"))
    return TestCase(descriptor=COPY, inputs=(argument,), name=name, **changes)


@dataclass
class Scripted:
    """Answers each case with the verdicts that are written for it, the last one for ever."""

    answers: dict[str, list[Verdict]]
    asked: list[list[str]] = field(default_factory=list)
    closed: int = 0
    looks_ahead: bool = False

    def execute(
        self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()
    ) -> runner.ExecutionResult:
        self.asked.append([case.id for case in cases])
        script = self.answers.get(cases[0].id, [PASS])
        verdict = script.pop(0) if len(script) > 1 else script[0]
        return runner.ExecutionResult(tuple(verdict for _ in cases), Timings(run_s=0.1))

    def close(self) -> None:
        self.closed += 1


@dataclass
class Heard:
    """A journal and a listener that remember."""

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
        make_executor=lambda lane: executor,
        journal=heard,
        listener=heard,
        policy=Policy(**policy),
        earlier=earlier,
    )
    return session, heard


def test_every_result_is_journaled_before_it_is_told() -> None:
    session, heard = session_of([case_named("a", 1), case_named("b", 2)], Scripted({"b": [FAIL]}))
    summary = session.run()
    assert heard.lines == ["start", "on_start", "0/2 passed", "1/2 failed", "end", "on_complete"]
    assert summary.exit_status == 1
    assert summary.by_reason == {"VALUE": 1}


def test_a_pass_after_a_crash_is_suspect_and_a_failure_is_not_asked_again() -> None:
    executor = Scripted({"a": [CRASH, PASS], "b": [FAIL, PASS], "c": [CRASH]})
    session, heard = session_of([case_named("a", 1), case_named("b", 2), case_named("c", 3)], executor, retries=2)
    session.run()
    statuses = {result.id: (result.status, result.attempts) for result in heard.results}
    assert statuses == {"a": (Status.SUSPECT, 2), "b": (Status.FAILED, 1), "c": (Status.CRASHED, 3)}
    assert "SIGNAL" in heard.results[0].verdict.message


XFAILED = Verdict(status=Status.XFAILED, reason=Reason.VALUE, message="known")
SKIPPED = Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message="no kernel")
UNCHECKED = Verdict(status=Status.UNCHECKED)


@pytest.mark.parametrize("second", [XFAILED, SKIPPED, UNCHECKED])
def test_no_end_hides_the_crash_of_an_earlier_attempt(second: Verdict) -> None:
    session, heard = session_of([case_named("a", 1)], Scripted({"a": [CRASH, second]}), retries=1)
    assert session.run().exit_status == 1
    verdict = heard.results[0].verdict
    assert verdict.status is Status.SUSPECT
    assert verdict.message.startswith(f"{second.status.value} at attempt 2, after SIGNAL: ")


def test_a_failure_after_a_crash_says_so() -> None:
    executor = Scripted({"a": [CRASH, FAIL], "b": [CRASH]})
    session, heard = session_of([case_named("a", 1), case_named("b", 2)], executor, retries=1)
    session.run()
    failed, crashed = (result.verdict for result in heard.results)
    assert (failed.status, crashed.status) == (Status.FAILED, Status.CRASHED)
    assert str(failed.details["earlier attempt"]).startswith("SIGNAL: ")
    assert "earlier attempt" not in crashed.details


def picture_of(verdict: Verdict, count: int = 1) -> Verdict:
    picture = Picture(output="out", rows=1, columns=3, cell=(1, 1), levels="")
    return replace(verdict, pictures=(picture,) * count)


def test_a_journal_holds_few_pictures() -> None:
    expected = picture_of(Verdict(status=Status.XFAILED, reason=Reason.VALUE))
    operators = [replace(COPY, name=f"copy{number}") for number in range(30)]
    cases = [replace(case_named(f"{each.name}-{n}", n + 1), descriptor=each) for each in operators for n in range(25)]
    answers = {case.id: [picture_of(FAIL)] for case in cases} | {
        "copy0-0": [expected],
        "copy0-1": [picture_of(FAIL, 3)],
    }
    session, heard = session_of(cases, Scripted(answers))
    session.run()
    kept = {case.id: len(result.verdict.pictures) for case, result in zip(cases, heard.results, strict=True)}
    assert [kept[f"copy0-{n}"] for n in range(25)] == [0, 3] + [1] * 17 + [0] * 6
    assert [sum(kept[f"{each.name}-{n}"] for n in range(25)) for each in operators] == [20] * 10 + [0] * 20
    earlier = {resume_key(case, 0): result for case, result in zip(cases, heard.results, strict=True) if kept[case.id]}
    again, heard_again = session_of(cases, Scripted(answers), earlier=earlier)
    again.run()
    assert heard_again.results
    assert not any(result.verdict.pictures for result in heard_again.results)


def test_maxfail_stops_and_the_rest_is_not_run() -> None:
    cases = [case_named(name, size) for size, name in enumerate("abcd", 1)]
    session, heard = session_of(cases, Scripted({"b": [FAIL]}), maxfail=1)
    summary = session.run()
    assert [result.id for result in heard.results] == ["a", "b"]
    assert (summary.finished, summary.total) == (2, 4)


def test_cases_that_compute_the_same_share_an_execution_and_keep_their_own_verdict() -> None:
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
    assert [(result.id, result.duplicate_of) for result in heard.results] == [
        ("a", None),
        ("b", "a"),
        ("c", "a"),
        ("other", None),
        ("left out", None),
    ]


def test_one_and_true_and_text_are_different_signatures() -> None:
    keys = {replace(case_named("a"), attributes={"n": value}).key for value in (1, 1.0, True, "1", None, (1,))}
    assert len(keys) == 6


def test_interruption_leaves_a_whole_journal_and_reports() -> None:
    cases = [case_named(name, size) for size, name in enumerate("abc", 1)]
    heard = Heard(interrupt_after=2)
    session, _ = session_of(cases, Scripted({}), heard)
    summary = session.run()
    assert summary.exit_status == 130
    assert heard.lines[-2:] == ["end", "on_complete"]
    assert len(heard.results) == 2


class Struck(Heard):
    """Somebody presses Ctrl-C while the second result is written."""

    completed: Sequence[CaseResult] = ()

    def result(self, result: CaseResult) -> None:
        super().result(result)
        if len(self.results) == 2:
            signal.raise_signal(signal.SIGINT)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        self.completed = tuple(results)


def test_what_is_journaled_when_ctrl_c_strikes_is_counted_and_reported() -> None:
    cases = [case_named(name, size) for size, name in enumerate("abc", 1)]
    session, heard = session_of(cases, Scripted({}), Struck())
    summary = session.run()
    assert (summary.finished, summary.interrupted) == (2, True)
    assert isinstance(heard, Struck)
    assert [each.id for each in heard.completed] == [each.id for each in heard.results] == ["a", "b"]


def test_a_second_ctrl_c_leaves_no_executor_open() -> None:
    """Who presses it twice would wait for the cases of the others."""

    class Pressed(Scripted):
        def close(self) -> None:
            signal.raise_signal(signal.SIGINT)
            super().close()

    executors = [Pressed({}), Pressed({})]
    session, heard = session_of([case_named("a"), case_named("b", 1)], executors[0], Heard(interrupt_after=1), jobs=2)
    session.make_executor = lambda lane: executors[lane]
    assert session.run().interrupted
    assert [each.closed for each in executors] == [1, 1]
    assert heard.lines[-2:] == ["end", "on_complete"]


def test_a_driver_is_asked_by_one_thread_at_a_time() -> None:
    """Whether it supports a case is asked in this process, and nobody who writes a driver thinks of threads."""
    inside: list[str] = []
    at_once: list[int] = []

    class Slow(BackendDriver):
        def unsupported(self, case: TestCase) -> str | None:
            inside.append(case.name)
            time.sleep(0.01)
            at_once.append(len(inside))
            inside.remove(case.name)
            return None

    session, _ = session_of([case_named(name, size) for size, name in enumerate("abcdef", 1)], Scripted({}), jobs=3)
    session.driver = Slow()
    assert session.run().finished == 6
    assert at_once == [1] * 6


def test_a_signal_that_ends_no_wait_ends_the_run() -> None:
    """One that comes just before the session waits, or that the system gives another thread: only Python is told."""

    class Waits(Scripted):
        def execute(
            self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()
        ) -> runner.ExecutionResult:
            time.sleep(0.2)  # the session waits by now
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            in_time.append(closed.wait(20))
            return runner.ExecutionResult((PASS,), Timings(run_s=0.1))

        def close(self) -> None:
            closed.set()

    closed, in_time = threading.Event(), list[bool]()
    session, _ = session_of([case_named("a"), case_named("b", 1)], Waits({}), jobs=2)
    assert (session.run().exit_status, in_time) == (130, [True, True])


def test_signals_that_come_together_are_one_wish() -> None:
    interruption = Interruption()
    with interruption.watched():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert interruption.happened


def test_a_terminal_that_goes_away_interrupts() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which the tests may run, ignores it
    interruption = Interruption()
    with interruption.watched(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)
    assert interruption.happened


def test_below_nohup_a_run_goes_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interruption().watched():
        signal.raise_signal(signal.SIGHUP)
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


def test_an_executor_that_another_thread_closed_ends_the_run_as_ctrl_c_does() -> None:
    class Ended(Scripted):
        def execute(
            self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()
        ) -> runner.ExecutionResult:
            raise Closed("closed while a case was waiting")

    session, _ = session_of([case_named("a")], Ended({}))
    assert session.run().exit_status == 130
    assert session.failure is None


def test_an_executor_that_comes_after_the_end_was_asked_is_closed() -> None:
    executor, interruption = Scripted({}), Interruption()
    interruption.now()
    interruption.ends(executor)
    assert executor.closed == 1


def test_a_full_disk_ends_the_run_and_keeps_what_was_written() -> None:
    cases = [case_named(name, size) for size, name in enumerate("abc", 1)]
    session, heard = session_of(cases, Scripted({}), Heard(full_after=1))
    session.run()
    assert session.failure is not None
    assert len(heard.results) == 1
    assert heard.lines[-1] == "on_complete"


@pytest.mark.parametrize("jobs", [1, 3])
def test_resume_runs_what_is_missing_and_nothing_twice(jobs: int) -> None:
    cases = [case_named(name, size) for size, name in enumerate("abcd", 1)]
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


def test_lanes_run_everything_once_and_are_closed() -> None:
    cases = [case_named(str(size), size) for size in range(1, 40)]
    executor = Scripted({})
    session, heard = session_of(cases, executor, jobs=4, rounds=2)
    summary = session.run()
    assert summary.finished == 78
    assert sorted(int(result.id) for result in heard.results if result.round == 1) == list(range(1, 40))
    assert executor.closed == 4


def test_a_lane_that_has_nothing_left_gives_back_what_it_holds() -> None:
    """Another one may wait for it: devices of a cluster."""
    is_closed, begun = threading.Event(), threading.Barrier(2)

    class First(Scripted):
        def execute(self, cases: Sequence[TestCase], following: Any = ()) -> runner.ExecutionResult:
            begun.wait(20)
            return Scripted.execute(self, cases, following)

        def close(self) -> None:
            Scripted.close(self)
            is_closed.set()

    class Waits(First):
        def execute(self, cases: Sequence[TestCase], following: Any = ()) -> runner.ExecutionResult:
            result = First.execute(self, cases, following)
            assert is_closed.wait(20)
            return result

    executors = [First({}), Waits({})]
    session, heard = session_of([case_named("a", 1), case_named("b", 2)], executors[0], jobs=2)
    session.make_executor = lambda lane: executors[lane]
    session.run()
    assert len(heard.results) == 2
    assert [each.closed for each in executors] == [1, 1]


def test_attempts_on_machines_that_were_lost_count() -> None:
    class Loses(Scripted):
        def execute(self, cases: Sequence[TestCase], following: Any = ()) -> runner.ExecutionResult:
            return replace(Scripted.execute(self, cases, following), attempts=2)

    crash = Verdict(status=Status.CRASHED, reason=Reason.SIGNAL)
    session, heard = session_of([case_named("a"), case_named("b", 4, retries=1)], Loses({"b": [crash, PASS]}))
    session.run()
    assert [(result.id, result.attempts, result.status) for result in heard.results] == [
        ("a", 2, Status.PASSED),
        ("b", 4, Status.SUSPECT),
    ]


def test_a_case_survives_the_wire() -> None:
    spec = TensorSpec(dtype=dtype("bfloat16"), shape=(2, 3), strides=(0, -1), offset=2)
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
def test_a_case_that_runs_for_long_is_named(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.core.session._SLOW_S", 0.05)
    monkeypatch.setattr("optest.core.session._LOOK_S", 0.01)
    named = threading.Event()

    class Hangs(Scripted):
        def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> Any:
            if cases[0].id == "hangs":
                assert named.wait(30)
            return super().execute(cases, following)

    class Waits(Heard):
        def on_wait(self, case: str, seconds: float, done: int, total: int) -> None:
            self.lines.append(case)
            assert (seconds >= 0.05, total) == (True, 3)
            named.set()

    cases = [case_named("a", 1), case_named("hangs", 2), case_named("b", 3)]
    session, heard = session_of(cases, Hangs({}, looks_ahead=True), Waits(), jobs=jobs)
    assert session.run().exit_status == 0
    assert "hangs" in heard.lines

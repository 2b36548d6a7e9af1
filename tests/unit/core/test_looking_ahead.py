"""Workers that run the next case while the parent records the last one: deaths are blamed on the right case."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core_kit import case_of, plugin_in, spec_of, worker_of
from test_session import session_of  # type: ignore[import-not-found]

from optest.backends import backend_manager
from optest.core import worker_process
from optest.core.worker_process import WorkerProcess
from optest.spec import BackendTarget, CaseResult, Reason, Status, TestCase

_F_SETPIPE_SZ = 1031

PLUGIN = '''
import ctypes, os, threading, time
import numpy as np
from optest.backends import BackendDriver, Fault, Reason, backend_manager

waits = threading.Event()

def kill_when_waiting():
    waits.wait()
    os.kill(os.getpid(), 9)

class Diary(BackendDriver):
    """Driver that writes the name of each case to a file and behaves as the name says."""
    name = kind = "diary"
    reads_inputs = False

    if "DIARY_FORKS" in os.environ:
        def before_fork(self, case):
            pass

    def unsupported(self, case):
        return "not here" if case.name.startswith("unsupported") else None

    def run(self, case, inputs):
        with open(case.backend_config["diary"]["file"], "a") as file:
            file.write(case.name + "\\n")
        what = case.name.rstrip("0123456789")
        if what == "dies":
            os.kill(os.getpid(), 9)
        if what == "speaks":
            os.write(2, b"I speak")
            os.kill(os.getpid(), 9)
        if what == "exits":
            os._exit(7)
        if what == "closes":
            os.closerange(3, 1000)
        if what in ("hangs", "closes"):
            time.sleep(600)
        if what == "lost":
            raise Fault(Reason.DEVICE_LOST, "gone")
        if what == "wrong":
            return [inputs[0] - inputs[1]]
        if what == "later":
            threading.Thread(target=kill_when_waiting).start()
        if what == "waits":
            waits.set()
            time.sleep(600)
        return [inputs[0] + inputs[1]]

def register():
    backend_manager.register(Diary(), replace=True)
'''


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with plugin_in(tmp_path_factory.mktemp("plugin"), "diary_backend", PLUGIN):
        yield


@pytest.fixture
def worker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    """Yield a worker; with the parameter "forks" it runs cases in forks."""
    forks = {"DIARY_FORKS": "1"} if getattr(request, "param", "") == "forks" else {}
    with worker_of("diary", tmp_path, "diary_backend", variables=forks) as executor:
        yield executor


class Kept:
    """Executor around a worker that stays open after a session and may get no following cases."""

    def __init__(self, worker: WorkerProcess, *, looks_ahead: bool = True) -> None:
        self.execute: Callable[..., Any] = worker.execute
        self.looks_ahead = looks_ahead

    def close(self) -> None:
        return None


def cases_of(diary: Path, names: Sequence[str], **config: Any) -> list[TestCase]:
    case = case_of(
        "add",
        *[spec_of(3)] * 2,
        outputs=(spec_of(3),),
        backend=BackendTarget(name="diary", kind="diary"),
        backend_config={"diary": {"file": str(diary), **config}},
        timeout_s=200.0,
    )
    return [replace(case, name=name, seed=seed) for seed, name in enumerate(names)]


def run(executor: Any, cases: Sequence[TestCase], **policy: Any) -> list[CaseResult]:
    session, heard = session_of(cases, executor, **policy)
    session.driver = backend_manager.get("diary")
    session.run()
    assert session.failure is None
    return heard.results  # type: ignore[no-any-return]


def seen(results: Sequence[CaseResult]) -> list[tuple[str, str, Reason | None, Status]]:
    return [(result.id, result.key, result.reason, result.status) for result in results]


HOSTILE = [
    "right0", "dies1", "right2", "wrong3", "exits4", "dies5", "unsupported6", "right7", "lost8", "right9", "dies10",
]  # fmt: skip


@pytest.mark.parametrize("worker", [pytest.param("itself", marks=pytest.mark.heavy), "forks"], indirect=True)
def test_deaths_are_blamed_on_their_cases(tmp_path: Path, worker: WorkerProcess) -> None:
    diary = tmp_path / "diary"
    results = run(Kept(worker), cases_of(diary, HOSTILE))
    reason_of = {
        "right": None,
        "wrong": Reason.VALUE,
        "dies": Reason.SIGNAL,
        "exits": Reason.EXIT_CODE,
        "unsupported": Reason.UNSUPPORTED,
        "lost": Reason.DEVICE_LOST,
    }
    assert [(result.id, result.reason) for result in results] == [
        (name, reason_of[name.rstrip("0123456789")]) for name in HOSTILE
    ]
    assert diary.read_text().split() == [name for name in HOSTILE if not name.startswith("unsupported")]
    alone = run(Kept(worker, looks_ahead=False), cases_of(tmp_path / "diary", HOSTILE))
    assert seen(results) == seen(alone)


@pytest.mark.parametrize("worker", ["forks"], indirect=True)
def test_dead_fork_keeps_its_worker(tmp_path: Path, worker: WorkerProcess) -> None:
    results = run(Kept(worker), cases_of(tmp_path / "diary", ["dies0", "right1", "exits2", "speaks3", "right4"]))
    assert [result.reason for result in results] == [Reason.SIGNAL, None, Reason.EXIT_CODE, Reason.SIGNAL, None]
    assert [result.verdict.details.get("stderr_tail") for result in results if result.reason] == ["", "", "I speak"]
    assert worker._started == 1


@pytest.mark.parametrize("worker", ["itself", "forks"], indirect=True)
@pytest.mark.parametrize("hangs", ["hangs1", pytest.param("closes1", marks=pytest.mark.heavy)])
def test_hang_is_blamed_on_its_case(
    tmp_path: Path, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    # closed pipes, as daemons have, are not the end of the worker
    monkeypatch.setattr(worker_process, "_DYING_S", 0.1)
    diary = tmp_path / "diary"
    cases = cases_of(diary, ["right0", hangs, "right2", "right3"])
    cases[1] = replace(cases[1], timeout_s=1.0)
    results = run(worker, cases)
    assert [result.reason for result in results] == [None, Reason.DEADLINE, None, None]
    assert diary.read_text().split() == ["right0", hangs, "right2", "right3"]


@pytest.mark.parametrize("worker", ["itself", "forks"], indirect=True)
def test_later_kill_is_blamed_on_running_case(tmp_path: Path, worker: WorkerProcess) -> None:
    results = run(worker, cases_of(tmp_path / "diary", ["later0", "waits1", "right2"]))
    assert [result.reason for result in results] == [None, Reason.SIGNAL, None]


def test_nothing_runs_after_maxfail(tmp_path: Path, worker: WorkerProcess) -> None:
    diary = tmp_path / "diary"
    run(worker, cases_of(diary, ["right0", "wrong1", "right2", "right3"]), maxfail=1)
    worker.close()
    assert diary.read_text().split() == ["right0", "wrong1"]


def test_retry_repeats_failed_case(tmp_path: Path, worker: WorkerProcess) -> None:
    diary = tmp_path / "diary"
    results = run(worker, cases_of(diary, ["right0", "lost1", "right2"]), retries=1)
    assert [result.attempts for result in results] == [1, 2, 1]
    assert diary.read_text().split() == ["right0", "lost1", "lost1", "right2"]


def test_worker_stops_after_lost_device(tmp_path: Path, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    # the parent ends it slowly, so that a worker that goes on would be noticed
    drop = worker._drop

    def slowly(*running: Any) -> None:
        time.sleep(0.5)
        drop(*running)

    monkeypatch.setattr(worker, "_drop", slowly)
    diary = tmp_path / "diary"
    results = run(Kept(worker), cases_of(diary, ["lost0", "right1"]))
    assert [result.reason for result in results] == [Reason.DEVICE_LOST, None]
    assert diary.read_text().split() == ["lost0", "right1"]


def test_long_request_waits_for_previous_result(tmp_path: Path, worker: WorkerProcess) -> None:
    long = {"padding": "x" * (2 * worker_process._MOST_BYTES_AHEAD)}
    cases = cases_of(tmp_path / "diary", ["right0", "right1", "right2"], **long)
    assert worker.execute(cases[:1], [cases[1:2]]).verdicts[0].status is Status.PASSED
    assert not worker._ahead
    assert [result.status for result in run(worker, cases)] == [Status.PASSED] * 3


def test_unannounced_case_gets_its_own_result(tmp_path: Path, worker: WorkerProcess) -> None:
    right, promised, wrong = ((case,) for case in cases_of(tmp_path / "diary", ["right0", "right1", "wrong2"]))
    worker.execute(right, [promised])
    assert worker.execute(wrong).verdicts[0].reason is Reason.VALUE
    assert worker.execute(right).verdicts[0].status is Status.PASSED


def test_unneeded_results_are_discarded(tmp_path: Path, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_CATCH_UP_S", 200.0)  # a busy machine keeps a worker waiting
    cases = cases_of(tmp_path / "diary", ["right0", "right1", "wrong2", "right3", "wrong4"])
    first, *promised = [(case,) for case in cases]
    worker.execute(first, promised)
    assert worker.execute(promised[2]).verdicts[0].status is Status.PASSED
    assert worker.execute(promised[3]).verdicts[0].reason is Reason.VALUE
    assert worker.execute(promised[1]).verdicts[0].reason is Reason.VALUE
    assert worker._started == 1


def test_hang_in_unneeded_request_drops_worker(
    tmp_path: Path, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_CATCH_UP_S", 0.2)
    first, hanging, other = [(case,) for case in cases_of(tmp_path / "diary", ["right0", "hangs1", "wrong2"])]
    worker.execute(first, [hanging])
    assert worker.execute(other).verdicts[0].reason is Reason.VALUE
    assert worker._started == 2


def test_requests_ahead_fit_into_pipe(tmp_path: Path, worker: WorkerProcess) -> None:
    some = {"padding": "x" * (worker_process._MOST_BYTES_AHEAD // 4)}
    first, *promised = [(case,) for case in cases_of(tmp_path / "diary", [f"right{n}" for n in range(9)], **some)]
    worker.execute(first, promised)
    assert 1 < len(worker._ahead) < 4
    assert sum(item.nbytes for item in worker._ahead) <= worker_process._MOST_BYTES_AHEAD
    for place, cases in enumerate(promised, 1):
        assert worker.execute(cases, promised[place:]).verdicts[0].status is Status.PASSED


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can set the size of a pipe")
def test_small_pipe_gets_fewer_requests(tmp_path: Path, worker: WorkerProcess) -> None:
    # the system gives a user with many pipes small ones, and a blocked write would delay deadlines
    first, *promised = [(case,) for case in cases_of(tmp_path / "diary", [f"right{n}" for n in range(12)])]
    worker.start()
    assert worker._running is not None
    held = fcntl.fcntl(worker._running[0]._channel._out, _F_SETPIPE_SZ, 4096)
    worker.execute(first, promised)
    assert len(worker._ahead) < len(promised)
    assert sum(item.nbytes for item in worker._ahead) <= held // 2
    for place, cases in enumerate(promised, 1):
        assert worker.execute(cases, promised[place:]).verdicts[0].status is Status.PASSED

"""Workers that another thread closes, as a run does that stops early."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from core_kit import case_of, spec_of

from optest.core import worker_process
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import InternalError
from optest.process import Child, start_child
from optest.settings import environment
from optest.spec import BackendTarget, Reason, Status

_LOADS_SLOWLY = "import time\ntime.sleep(600)\n"


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
    """Return a worker whose backend does not finish loading."""
    tmp_path.joinpath("loads_slowly.py").write_text(_LOADS_SLOWLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = WorkerOptions(driver="numpy", scratch=tmp_path, environment=environment(), plugins=("loads_slowly",))
    return WorkerProcess(options, "worker")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """Return a list to which every started child is added."""
    children: list[Child] = []

    def remembered(*args: object, **keywords: object) -> Child:
        children.append(start_child(*args, **keywords))  # type: ignore[arg-type]
        return children[-1]

    monkeypatch.setattr(worker_process, "start_child", remembered)
    yield children
    for item in children:
        item.close()


def start_in_thread(worker: WorkerProcess) -> tuple[threading.Thread, list[BaseException]]:
    """Return a thread that starts the worker, and a list for its error."""
    failures: list[BaseException] = []

    def start() -> None:
        try:
            worker.start()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    return thread, failures


def until(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + 200
    while not is_so() and time.monotonic() < ends:
        time.sleep(0.01)
    assert is_so()


def test_loading_worker_ends_at_once(slow: WorkerProcess, started: list[Child]) -> None:
    thread, failures = start_in_thread(slow)
    until(lambda: slow._running)
    slow.close()
    thread.join(timeout=200)
    assert [str(error) for error in failures] == ["worker worker was closed while a case was waiting for it"]
    assert isinstance(failures[0], InternalError)
    assert [item.wait(0)[1] for item in started] == [9]


def test_one_thread_at_a_time_closes_pipes(
    slow: WorkerProcess, started: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    # closing a file descriptor twice may close the file of another thread
    thread, _ = start_in_thread(slow)
    until(lambda: slow._running)
    [child] = started
    inside: list[int] = []
    at_once: list[int] = []
    close = child.close

    def slowly() -> None:
        inside.append(1)
        at_once.append(len(inside))
        time.sleep(0.1)
        close()
        inside.pop()

    monkeypatch.setattr(child, "close", slowly)
    slow.close()
    thread.join(timeout=200)
    assert at_once == [1] * len(at_once)


def test_worker_closed_during_start_ends(
    slow: WorkerProcess, started: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed_meanwhile(*args: object, **keywords: object) -> Child:
        started.append(start_child(*args, **keywords))  # type: ignore[arg-type]
        slow.close()
        return started[-1]

    monkeypatch.setattr(worker_process, "start_child", closed_meanwhile)
    with pytest.raises(InternalError, match="was closed"):
        slow.start()
    assert [item.wait(0)[1] for item in started] == [9]
    slow.close()


@pytest.mark.parametrize(("deaths", "status", "reason"), [(1, Status.PASSED, None), (2, Status.CRASHED, Reason.SIGNAL)])
def test_worker_killed_before_case_is_replaced_once(
    tmp_path: Path, started: list[Child], deaths: int, status: Status, reason: Reason | None
) -> None:
    class Killed(WorkerProcess):
        def _greet(self, child: Child) -> None:
            super()._greet(child)
            if len(started) <= deaths:
                os.kill(child.pid, signal.SIGKILL)

    worker = Killed(WorkerOptions(driver="numpy", scratch=tmp_path, environment=environment()), "worker")
    (verdict,) = worker.execute([case_of("relu", spec_of(2), backend=BackendTarget(name="numpy"))]).verdicts
    worker.close()
    assert len(started) == 2
    assert (verdict.status, verdict.reason) == (status, reason), verdict
    assert reason is None or verdict.message == "optest's worker died of SIGKILL"

"""The child process that runs cases: ``optest.core.worker PHASE_PAGE FD_IN FD_OUT``, run as a module.

It loads the same plug-ins as its parent and finds the driver by name. Foreign code may end it at any moment; the
parent reads the phase page to know whose code was running.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from optest.backends import BackendDriver, backend_manager
from optest.backends.worker_abilities import RunsInForks
from optest.core.extensions import load_extensions
from optest.core.forked import prepare_fork, warm_up
from optest.core.messages import (
    Broken,
    Died,
    Hello,
    Ran,
    Ready,
    Request,
    ToParent,
    decode_for_worker,
    encode,
    end_mark,
    is_last,
)
from optest.core.monkeypatches import PatchWatch, patch_watch
from optest.core.phases import Phase, PhasePage
from optest.core.runner import execute
from optest.core.side_effects import SideEffects, refuse_earlier_patches, refuse_patches, runs_foreign_code
from optest.core.wire import case_from_wire
from optest.errors import OptestError, Unavailable, UnknownName
from optest.operators import operators
from optest.process import (
    TRACEBACK_SIGNAL,
    Channel,
    ForkedServer,
    adopt_orphans,
    directory_kept,
    end_children,
    fork_server,
)
from optest.spec import Fault, TestCase

_LONG_S = 3600.0
# A fork whose pipes are closed may take this long to end: the system may have much memory to free.
_DYING_S = 5.0
_LOOK_S = 0.0002
# After these cases modules and libraries are loaded, and the garbage collector need not visit them any more. A probe
# for leaks collects garbage with every case, which was half of the time of a C library's check.
_CASES_BEFORE_FREEZE = 4


def main(arguments: list[str]) -> None:
    """Load the driver named by the greeting, report Ready or Broken to the parent, and run its requests."""
    page, fd_in, fd_out = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    channel = Channel(fd_in, fd_out)
    faulthandler.enable()  # a fatal signal leaves the Python frames in the log
    faulthandler.register(TRACEBACK_SIGNAL)
    with PhasePage(page) as phases:
        hello = decode_for_worker(channel.receive() or b"")
        assert isinstance(hello, Hello)
        try:
            serving = _Serving(hello, phases, *_load(hello))
            in_forks = hello.fresh or (isinstance(serving.driver, RunsInForks) and threading.active_count() == 1)
            if in_forks:
                adopt_orphans()
                warm_up()
                refuse_patches(serving.patches, "a plug-in")  # adds newly imported modules to the watch
                gc.collect()
                gc.freeze()
        except OptestError as error:
            channel.send(encode(broken(0, error)))
            return
        channel.send(encode(Ready()))
        (_serve_in_forks if in_forks else _serve)(serving, channel)


def _serve(serving: _Serving, channel: Channel) -> None:
    """Run requests in this process and send their results, until the pipe closes; only one with ``fresh``."""
    phases, finished = serving.phases, 0
    while (message := channel.receive()) is not None:
        result = _run_request(message, serving)
        phases.write(Phase.ANSWER)
        channel.send(encode(result))
        phases.write(Phase.IDLE)
        if serving.hello.fresh:
            return
        # After a taint or a lost device a request that was sent ahead is for another worker: wait for the parent.
        while isinstance(result, Ran) and is_last(result):
            time.sleep(_LONG_S)
        finished += 1
        if finished == _CASES_BEFORE_FREEZE:
            gc.collect()
            gc.freeze()


def _serve_in_forks(serving: _Serving, channel: Channel) -> None:
    """Run requests in a fork, which is replaced when it dies, and after each request with ``fresh``; report a death."""

    def serve(inside: Channel) -> None:
        channel.close()
        faulthandler.register(TRACEBACK_SIGNAL)
        fresh = serving.hello.fresh
        side_effects = SideEffects(serving.patches, in_worker=not fresh, for_one_case=fresh)
        _serve(serving._replace(side_effects=side_effects), inside)

    fork: ForkedServer | None = None

    def write_traceback(*_: object) -> None:
        if fork is not None:
            os.kill(fork.pid, TRACEBACK_SIGNAL)

    # the fork runs the case, so that its frames are those to write
    faulthandler.unregister(TRACEBACK_SIGNAL)
    signal.signal(TRACEBACK_SIGNAL, write_traceback)
    while (message := channel.receive()) is not None:
        if fork is not None and fork.is_over():  # it died after it had sent its result
            _end(fork)
            fork = None
        if fork is None:
            with suppress(OptestError, Fault):  # the fork raises the same and reports it
                for case in cases_of(_decoded(message)):
                    if isinstance(serving.driver, RunsInForks):
                        serving.driver.before_fork(case)
                    prepare_fork(case, serving.driver)
            fork = fork_server(serve)
        result: bytes | None = None
        spoilt = ""
        try:
            result = fork.ask(message)
        except ValueError as error:
            spoilt = str(error)
        if result is None and not spoilt and not _ends_soon(fork):
            # Foreign code closed the fork's pipes, but the fork runs on: the parent kills both at the deadline.
            channel.close()
            os.waitpid(fork.pid, 0)
            os._exit(0)
        if result is None:
            result = _report_death(message, serving, *_end(fork), spoilt)
            fork = None
        channel.send(result)
        if fork is not None and serving.hello.fresh:
            _ends_soon(fork)
            _end(fork)
            fork = None


def _end(fork: ForkedServer) -> tuple[int, int | None]:
    """End the fork and the processes that it started; return its exit status and signal."""
    ended = fork.end()
    end_children()
    return ended


def _report_death(message: bytes, serving: _Serving, returncode: int, signal_number: int | None, spoilt: str) -> bytes:
    """Return the Died message for the request, after writing its end mark to standard error."""
    phase = serving.phases.of_a_death()
    serving.phases.write(Phase.IDLE)
    number = _decoded(message).number
    sys.stderr.write(f"\n{end_mark(number)}\n")
    sys.stderr.flush()
    return encode(Died(number, phase, returncode, signal_number, spoilt))


def _ends_soon(fork: ForkedServer) -> bool:
    """Wait at most `_DYING_S` seconds for the end of the fork; return whether it ended."""
    ends = time.monotonic() + _DYING_S
    while not (is_over := fork.is_over()) and time.monotonic() < ends:
        time.sleep(_LOOK_S)
    return is_over


class _Serving(NamedTuple):
    """State with which a worker runs requests."""

    hello: Hello
    phases: PhasePage
    driver: BackendDriver
    patches: PatchWatch
    side_effects: SideEffects


def _load(hello: Hello) -> tuple[BackendDriver, PatchWatch, SideEffects]:
    """Load plug-ins and driver; return it and the watches over this process; raise OptestError if it cannot be used."""
    sys.path[:] = [*hello.import_path, *(entry for entry in sys.path if entry not in hello.import_path)]
    refuse_earlier_patches()
    patches = patch_watch()
    load_extensions(hello.plugins)
    driver = backend_manager.get(hello.driver)
    driver.configure(hello.options)
    refuse_patches(patches, f"backend {hello.driver!r}")
    return driver, patches, SideEffects(patches, in_worker=not hello.fresh)


def broken(number: int, error: OptestError) -> Broken:
    """Convert an error to a message for the parent; :func:`optest.core.messages.refusal` restores it there."""
    match error:
        case Unavailable():
            return Broken(number, "unavailable", str(error))
        case UnknownName():
            return Broken(number, "unknown", str(error))
    return Broken(number, "error", str(error))


def _decoded(message: bytes) -> Request:
    request = decode_for_worker(message)
    assert isinstance(request, Request)
    return request


def cases_of(request: Request) -> list[TestCase]:
    """Build the cases of a request.

    Raises:
        OptestError: if a case cannot be built here, such as one of an unknown operator.
    """
    return [case_from_wire(wire, operators.get, key) for wire, key in zip(request.cases, request.keys, strict=True)]


def _run_request(message: bytes, serving: _Serving) -> ToParent:
    """Run a request and return its result as Ran, or Broken if a case cannot be built here."""
    request, hello = _decoded(message), serving.hello
    try:
        cases = cases_of(request)
    except OptestError as error:
        return broken(request.number, error)
    side_effects = serving.side_effects if runs_foreign_code(serving.driver, cases[0]) else None
    if side_effects is not None:
        side_effects.is_last = request.is_last and not hello.fresh
    with directory_kept():
        execution = execute(
            cases,
            serving.driver,
            announce=serving.phases.write,
            every_measure=hello.every_measure,
            bench=hello.bench,
            side_effects=side_effects,
            keep=Path(hello.keep) if hello.keep else None,
        )
    is_tainted = execution.is_tainted and not hello.fresh
    return Ran(request.number, list(execution.verdicts), execution.timings, execution.benchmark, is_tainted)


if __name__ == "__main__":
    main(sys.argv[1:])

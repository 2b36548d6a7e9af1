"""The child process that runs cases: ``optest.core.worker PHASE_PAGE FD_IN FD_OUT``, run as a module.

It loads the same plug-ins as its parent and finds the driver by name. Foreign code may end it at any moment; the
parent reads the phase page to know whose fault that was.
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
from optest.backends.command_abilities import configure
from optest.backends.worker_abilities import RunsInForks
from optest.core.extensions import load_extensions
from optest.core.forked import prepare_fork, warm_up
from optest.core.messages import (
    Asked,
    Broken,
    Died,
    Hello,
    Ran,
    Ready,
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
_DYING_S = 5.0
"""How long a fork whose pipes are gone may take to end: the system may have much to take back."""
_LOOK_S = 0.0002
_CASES_BEFORE_FREEZE = 4
"""By then modules and libraries are loaded: the collector need not walk over them again, as a probe for leaks makes it
do with every case (half of the time of a C library's check)."""


def main(arguments: list[str]) -> None:
    page, fd_in, fd_out = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    channel = Channel(fd_in, fd_out)
    faulthandler.enable()  # a signal that kills leaves the Python frames in the log
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
                refuse_patches(serving.patches, "a plug-in")  # watches what was imported
                gc.collect()
                gc.freeze()
        except OptestError as error:
            channel.send(encode(broken(0, error)))
            return
        channel.send(encode(Ready()))
        (_serve_in_forks if in_forks else _serve)(serving, channel)


def _serve(serving: _Serving, channel: Channel) -> None:
    """Answer in this process, as long as there are questions."""
    phases, answered = serving.phases, 0
    while (message := channel.receive()) is not None:
        answer = _answer(message, serving)
        phases.write(Phase.ANSWER)
        channel.send(encode(answer))
        phases.write(Phase.IDLE)
        if serving.hello.fresh:
            return
        while isinstance(answer, Ran) and is_last(answer):  # the next question may be here, but is for another worker
            time.sleep(_LONG_S)  # until the parent ends this process
        answered += 1
        if answered == _CASES_BEFORE_FREEZE:
            gc.collect()
            gc.freeze()


def _serve_in_forks(serving: _Serving, channel: Channel) -> None:
    """Have a fork of this process answer, and another one after its death; each question has its own if they are to be
    fresh. Nothing foreign runs in this process.
    """

    def serve(inside: Channel) -> None:
        channel.close()
        faulthandler.register(TRACEBACK_SIGNAL)
        _serve(serving._replace(side_effects=SideEffects(serving.patches, in_worker=not serving.hello.fresh)), inside)

    fork: ForkedServer | None = None

    def write_traceback(*_: object) -> None:
        if fork is not None:
            os.kill(fork.pid, TRACEBACK_SIGNAL)

    faulthandler.unregister(TRACEBACK_SIGNAL)
    signal.signal(TRACEBACK_SIGNAL, write_traceback)
    while (message := channel.receive()) is not None:
        if fork is not None and fork.is_over():  # after its answer
            _end(fork)
            fork = None
        if fork is None:
            with suppress(OptestError, Fault):
                for case in cases_of(_asked(message)):
                    if isinstance(serving.driver, RunsInForks):
                        serving.driver.before_fork(case)
                    prepare_fork(case, serving.driver)
            fork = fork_server(serve)
        answer: bytes | None = None
        spoilt = ""
        try:
            answer = fork.ask(message)
        except ValueError as error:
            spoilt = str(error)
        if answer is None and not spoilt and not _ends_soon(fork):
            channel.close()  # foreign code closed the fork's: the parent keeps the deadline, and ends both
            os.waitpid(fork.pid, 0)
            os._exit(0)
        if answer is None:
            answer = _died(message, serving, *_end(fork), spoilt)
            fork = None
        channel.send(answer)
        if fork is not None and serving.hello.fresh:
            _ends_soon(fork)
            _end(fork)
            fork = None


def _end(fork: ForkedServer) -> tuple[int, int | None]:
    ended = fork.end()
    end_children()
    return ended


def _died(message: bytes, serving: _Serving, returncode: int, signal_number: int | None, spoilt: str) -> bytes:
    phase = serving.phases.of_a_death()
    serving.phases.write(Phase.IDLE)
    asked = _asked(message)
    sys.stderr.write(f"\n{end_mark(asked.number)}\n")
    sys.stderr.flush()
    return encode(Died(asked.number, phase, returncode, signal_number, spoilt))


def _ends_soon(fork: ForkedServer) -> bool:
    ends = time.monotonic() + _DYING_S
    while not (is_over := fork.is_over()) and time.monotonic() < ends:
        time.sleep(_LOOK_S)
    return is_over


class _Serving(NamedTuple):
    """What a worker has to answer with."""

    hello: Hello
    phases: PhasePage
    driver: BackendDriver
    patches: PatchWatch
    side_effects: SideEffects


def _load(hello: Hello) -> tuple[BackendDriver, PatchWatch, SideEffects]:
    """The driver, and the watches over what it does to this process.

    Raises:
        OptestError: if it cannot be loaded, or replaces what verdicts rest on.
    """
    sys.path[:] = [*hello.import_path, *(entry for entry in sys.path if entry not in hello.import_path)]
    refuse_earlier_patches()
    patches = patch_watch()
    load_extensions(hello.plugins)
    driver = backend_manager.get(hello.driver)
    configure(driver, hello.options)
    refuse_patches(patches, f"backend {hello.driver!r}")
    return driver, patches, SideEffects(patches, in_worker=not hello.fresh)


def broken(number: int, error: OptestError) -> Broken:
    """The answer that hands an error to the parent, which :func:`optest.core.messages.refusal` makes one again."""
    match error:
        case Unavailable():
            return Broken(number, "unavailable", str(error))
        case UnknownName():
            return Broken(number, "unknown", str(error))
    return Broken(number, "error", str(error))


def _asked(message: bytes) -> Asked:
    asked = decode_for_worker(message)
    assert isinstance(asked, Asked)
    return asked


def cases_of(asked: Asked) -> list[TestCase]:
    """The cases of a question.

    Raises:
        OptestError: for one that cannot be built here.
    """
    return [case_from_wire(wire, operators.get, key) for wire, key in zip(asked.cases, asked.keys, strict=True)]


def _answer(message: bytes, serving: _Serving) -> ToParent:
    request, hello = _asked(message), serving.hello
    try:
        cases = cases_of(request)
    except OptestError as error:
        return broken(request.number, error)
    side_effects = serving.side_effects if runs_foreign_code(serving.driver, cases[0]) else None
    if side_effects is not None:
        side_effects.is_last = request.is_last
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

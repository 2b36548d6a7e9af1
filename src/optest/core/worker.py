"""The child process that runs cases: ``python -m optest.core.worker PHASE_PAGE FD_IN FD_OUT``.

It loads the same plug-ins as its parent and finds the driver by name. Foreign code may end it at any moment; the
parent reads the phase page to know whose fault that was.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

from optest.backends import BackendDriver, backend_manager
from optest.backends.abilities import configure
from optest.core.extensions import load_extensions
from optest.core.messages import (
    Asked,
    Broken,
    Hello,
    Ran,
    Ready,
    ToParent,
    decode_for_worker,
    encode,
)
from optest.core.monkeypatches import patch_watch
from optest.core.phases import Phase, PhasePage
from optest.core.runner import execute
from optest.core.side_effects import SideEffects, refuse_earlier_patches, refuse_patches, runs_foreign_code
from optest.core.wire import case_from_wire
from optest.errors import OptestError, Unavailable, UnknownName
from optest.operators import operators
from optest.process import TRACEBACK_SIGNAL, Channel, adopt_orphans, directory_kept, end_children, fork_and_run
from optest.spec import Argument, Fill, Reason, TensorSpec, TestCase, Timings, dtype

__all__ = ["main"]

_LONG_S = 3600.0
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
        except OptestError as error:
            channel.send(encode(_broken(0, error)))
            return
        channel.send(encode(Ready()))
        if hello.fresh:
            adopt_orphans()
            _warm_up()
        answered = 0
        while (message := channel.receive()) is not None:
            if hello.fresh:
                _answer_in_fresh_process(message, serving, channel)
            else:
                answer = _answer(message, serving)
                phases.write(Phase.ANSWER)
                channel.send(encode(answer))
                phases.write(Phase.IDLE)
                if _is_last(answer):
                    _wait_to_be_ended()
                answered += 1
                if answered == _CASES_BEFORE_FREEZE:
                    gc.collect()
                    gc.freeze()


class _Serving(NamedTuple):
    """What a worker has to answer with."""

    hello: Hello
    phases: PhasePage
    driver: BackendDriver
    side_effects: SideEffects


def _load(hello: Hello) -> tuple[BackendDriver, SideEffects]:
    """The driver, and the watch over what it does to this process.

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
    return driver, SideEffects(patches, in_worker=not hello.fresh)


def _warm_up() -> None:
    """Do once, before the first fork, what every fork would do again: imports, tables, caches of one small case."""
    spec = TensorSpec(dtype=dtype("float32"), shape=(4,))
    descriptor = operators.get("add")
    arguments = tuple(
        Argument(name=name, path=f"input{index}", spec=spec, fill=Fill(kind="randn"))
        for index, name in enumerate(("input", "other"))
    )
    case = TestCase(descriptor=descriptor, inputs=arguments, outputs=(spec,), attributes=descriptor.bind({}))
    encode(Ran(0, list(execute([case], backend_manager.get("numpy")).verdicts), Timings()))
    gc.collect()
    gc.freeze()


def _broken(number: int, error: OptestError) -> Broken:
    match error:
        case Unavailable():
            return Broken(number, "unavailable", str(error))
        case UnknownName():
            return Broken(number, "unknown", str(error))
    return Broken(number, "error", str(error))


def _answer(message: bytes, serving: _Serving) -> ToParent:
    request, hello = decode_for_worker(message), serving.hello
    assert isinstance(request, Asked)
    try:
        cases = [
            case_from_wire(wire, operators.get, key) for wire, key in zip(request.cases, request.keys, strict=True)
        ]
    except OptestError as error:
        return _broken(request.number, error)
    side_effects = serving.side_effects if runs_foreign_code(serving.driver, cases[0]) else None
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


def _answer_in_fresh_process(message: bytes, serving: _Serving, channel: Channel) -> None:
    """Fork, let the child answer, and end the way that it ended if it did not."""

    def answer_in_the_fork() -> bytes:
        made = _answer(message, serving)
        serving.phases.write(Phase.ANSWER)
        return bytes([_is_last(made)]) + encode(made)

    child = fork_and_run(answer_in_the_fork)
    answer = child.read()
    returncode, signal = child.end()
    end_children()
    if returncode == 0 and answer:
        channel.send(answer[1:])
        if answer[0]:
            _wait_to_be_ended()
        return
    _end_like(returncode or 0, signal)


def _is_last(answer: ToParent) -> bool:
    """Whether the parent gives this worker up: the next question, which may be here already, is for another one."""
    if not isinstance(answer, Ran):
        return False
    return answer.is_tainted or any(verdict.reason is Reason.DEVICE_LOST for verdict in answer.verdicts)


def _wait_to_be_ended() -> NoReturn:
    while True:
        time.sleep(_LONG_S)


def _end_like(returncode: int, signal: int | None) -> None:
    """End this process as the child ended, so that the parent sees one kind of death."""
    if signal is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal)
    os._exit(returncode)


if __name__ == "__main__":
    main(sys.argv[1:])

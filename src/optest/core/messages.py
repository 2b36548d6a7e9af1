"""MessagePack messages between a parent and its worker, and their conversion to results and errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from optest.core.benchmarking import BenchOptions
from optest.core.runner import ExecutionResult
from optest.errors import Unavailable, UsageError
from optest.spec import Benchmark, Reason, Status, TestCase, Timings, Verdict


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """First message to a worker: the driver to load, and how to run cases.

    ``fresh`` forks a process for each execution. ``keep`` is the folder for the tensors of every execution, "" for
    none. With ``bench`` passed cases are timed.
    """

    driver: str
    options: dict[str, Any]
    plugins: list[str]
    import_path: list[str]
    every_measure: bool = False
    fresh: bool = False
    keep: str = ""
    bench: BenchOptions | None = None


class Request(msgspec.Struct, tag="asked", frozen=True):
    """Request to run cases as one execution, given in wire form and by keys.

    ``is_last`` is true if no further request is known to follow.
    """

    number: int
    keys: list[str]
    cases: list[dict[str, Any]]
    is_last: bool = False


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Report that the driver is loaded."""


class Ran(msgspec.Struct, tag="ran", frozen=True):
    """Verdicts of the request ``number``, in the order of its cases.

    ``is_tainted`` is true if foreign code changed the worker, which then waits for its end.
    """

    number: int
    verdicts: list[Verdict]
    timings: Timings
    benchmark: Benchmark | None = None
    is_tainted: bool = False


class Broken(msgspec.Struct, tag="broken", frozen=True):
    """Error of a worker that cannot run request ``number``; 0 is the greeting.

    ``kind`` is ``unavailable``, ``unknown`` or ``error``.
    """

    number: int
    kind: str
    message: str


class Died(msgspec.Struct, tag="died", frozen=True):
    """Report that the worker's fork died in ``phase`` of request ``number``; the worker goes on with a new fork.

    The worker's output ends with :func:`end_mark` of the request. ``spoilt`` describes an unreadable result, for which
    the worker killed the fork.
    """

    number: int
    phase: int
    returncode: int
    signal: int | None
    spoilt: str = ""


END_MARK = re.compile(r"^-- end of the process of question [0-9]+ --$", re.MULTILINE)


def end_mark(number: int) -> str:
    """Return the line that ends the output of the fork that died in request ``number``; it matches END_MARK."""
    return f"-- end of the process of question {number} --"


ToWorker = Hello | Request
ToParent = Ready | Ran | Broken | Died

encode = msgspec.msgpack.Encoder().encode
_for_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_for_parent: msgspec.msgpack.Decoder[ToParent] = msgspec.msgpack.Decoder(ToParent)
decode_for_worker = _for_worker.decode
decode_for_parent = _for_parent.decode


def refusal(kind: str, message: str) -> Exception:
    """Return the exception for a :class:`Broken` greeting: Unavailable, NotInWorker or UsageError."""
    if kind == "unavailable":
        subject, _, remedy = message.partition(" is unavailable: ")
        return Unavailable(subject, remedy)
    if kind == "unknown":
        return NotInWorker(message)
    return UsageError(message)


class NotInWorker(UsageError):
    """A driver or operator that was registered by hand in this process, so that no worker finds it by name."""


def is_last(result: Ran | ExecutionResult) -> bool:
    """Return whether the worker must end after this result: it is tainted, or its device is lost."""
    return result.is_tainted or any(verdict.reason is Reason.DEVICE_LOST for verdict in result.verdicts)


def result_of_message(message: Ran | Broken, cases: Sequence[TestCase]) -> ExecutionResult:
    """Convert a worker's message to a result; Broken becomes ERROR/BAD_CASE for every case."""
    match message:
        case Ran(_, verdicts, timings, benchmark, is_tainted):
            return ExecutionResult(tuple(verdicts), timings, benchmark, is_tainted)
        case Broken(_, _, error):
            verdict = Verdict(
                status=Status.ERROR,
                reason=Reason.BAD_CASE,
                message=f"the worker cannot build the case: {error}; "
                "register it in a plug-in (OPTEST_PLUGINS) or run with --isolate none",
            )
            return ExecutionResult.for_all(cases, verdict)

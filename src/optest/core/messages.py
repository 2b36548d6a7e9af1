"""What a parent and its worker say to each other, as MessagePack, and what an answer means."""

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
    """The first message to a worker: whom to load and how to run. ``fresh`` forks a process for each execution.

    ``keep`` is the folder where the tensors of every execution are kept, empty for nowhere. ``bench`` asks for timings.
    """

    driver: str
    options: dict[str, Any]
    plugins: list[str]
    import_path: list[str]
    every_measure: bool = False
    fresh: bool = False
    keep: str = ""
    bench: BenchOptions | None = None


class Asked(msgspec.Struct, tag="asked", frozen=True):
    """Run these cases, in wire form and with their keys, as one execution. No request is known to follow the last."""

    number: int
    keys: list[str]
    cases: list[dict[str, Any]]
    is_last: bool = False


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The driver is loaded."""


class Ran(msgspec.Struct, tag="ran", frozen=True):
    """The verdicts in the order of the cases; ``number`` is that of the question."""

    number: int
    verdicts: list[Verdict]
    timings: Timings
    benchmark: Benchmark | None = None
    is_tainted: bool = False
    """Whether foreign code changed the worker, which waits to be ended."""


class Broken(msgspec.Struct, tag="broken", frozen=True):
    """The worker cannot do what it was asked: ``kind`` is ``unavailable``, ``unknown`` or ``error``.

    ``number`` is that of the question, 0 for the greeting.
    """

    number: int
    kind: str
    message: str


class Died(msgspec.Struct, tag="died", frozen=True):
    """The fork of the worker that ran the question ended in ``phase``, and the worker goes on with another one.

    The worker's output ends with :func:`end_mark` of the question. ``spoilt`` is what is wrong with an answer that
    cannot be read; the fork was killed for it.
    """

    number: int
    phase: int
    returncode: int
    signal: int | None
    spoilt: str = ""


END_MARK = re.compile(r"^-- end of the process of question [0-9]+ --$", re.MULTILINE)


def end_mark(number: int) -> str:
    """The line in a worker's output behind what a fork that died wrote there, an :data:`END_MARK`."""
    return f"-- end of the process of question {number} --"


ToWorker = Hello | Asked
ToParent = Ready | Ran | Broken | Died

_encoder = msgspec.msgpack.Encoder()
_for_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_for_parent: msgspec.msgpack.Decoder[ToParent] = msgspec.msgpack.Decoder(ToParent)

encode = _encoder.encode
decode_for_worker = _for_worker.decode
decode_for_parent = _for_parent.decode


def refusal(kind: str, message: str) -> Exception:
    if kind == "unavailable":
        what, _, remedy = message.partition(" is unavailable: ")
        return Unavailable(what, remedy)
    if kind == "unknown":
        return NotInWorker(message)
    return UsageError(message)


class NotAnAnswer(Exception):
    """Bytes that came from a worker and are not its answer to what it was asked last."""


class NotInWorker(UsageError):
    """A driver or operator that was registered by hand in this process, which no worker can find by name."""


def is_last(answer: Ran | ExecutionResult) -> bool:
    """Return whether a worker runs nothing more after it."""
    return answer.is_tainted or any(verdict.reason is Reason.DEVICE_LOST for verdict in answer.verdicts)


def as_execution(answer: Ran | Broken, cases: Sequence[TestCase]) -> ExecutionResult:
    match answer:
        case Ran(_, verdicts, timings, benchmark, is_tainted):
            return ExecutionResult(tuple(verdicts), timings, benchmark, is_tainted)
        case Broken(_, _, message):
            verdict = Verdict(
                status=Status.ERROR,
                reason=Reason.BAD_CASE,
                message=f"the worker cannot build the case: {message}; "
                "register it in a plug-in (OPTEST_PLUGINS) or run with --isolate none",
            )
            return ExecutionResult.for_all(cases, verdict)

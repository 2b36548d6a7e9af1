"""What a worker answered: executions, or why it cannot serve."""

from __future__ import annotations

from collections.abc import Sequence

from optest.core import runner
from optest.core.expectations import excused
from optest.core.messages import Broken, Ran
from optest.errors import Unavailable, UsageError
from optest.spec import Reason, Status, TestCase, Timings, Verdict

__all__ = ["NotAnAnswer", "NotInWorker", "as_execution", "refusal"]


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


def as_execution(answer: Ran | Broken, cases: Sequence[TestCase]) -> runner.Execution:
    match answer:
        case Ran(_, verdicts, timings, benchmark, is_tainted):
            return runner.Execution(tuple(verdicts), timings, benchmark, is_tainted)
        case Broken(_, _, message):
            verdict = Verdict(
                status=Status.ERROR,
                reason=Reason.BAD_CASE,
                message=f"the worker cannot build the case: {message}; "
                "register it in a plug-in (OPTEST_PLUGINS) or run with --isolate none",
            )
            return runner.Execution(tuple(excused(case, verdict) for case in cases), Timings())

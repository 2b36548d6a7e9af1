"""Verdicts of cases whose worker was killed or died, and reports in the last lines of its standard error.

A signal says little; a line of an optest driver names the memory, a sanitizer's report the position in the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optest.core.phases import Phase
from optest.process import signal_name
from optest.spec import Reason, Status, Verdict

_CULPRIT = {
    Phase.IDLE: "optest's worker",
    Phase.GENERATE: "the generator",
    Phase.REFERENCE: "the reference",
    Phase.RUN: "the backend",
    Phase.COMPARE: "the comparison",
    Phase.BENCHMARK: "the backend, while it was timed,",
    Phase.ANSWER: "optest's worker, while it sent its result,",
}
_BACKEND_PHASES = (Phase.RUN, Phase.BENCHMARK)
_OTHER_REASONS = {
    Phase.IDLE: Reason.INTERNAL,
    Phase.GENERATE: Reason.BAD_CASE,
    Phase.REFERENCE: Reason.REFERENCE_FAILED,
    Phase.COMPARE: Reason.INTERNAL,
    Phase.ANSWER: Reason.INTERNAL,
}

# A line that an optest driver writes in its signal handler.
_DRIVER_REPORT = re.compile(r"^optest: (?:\[(?P<reason>[A-Z_]+)\] )?(?P<words>.*)$", re.MULTILINE)
_ADDRESS_SANITIZER = re.compile(r"^==\d+==\s*ERROR: (?P<kind>\w+Sanitizer: .*)$", re.MULTILINE)
_UNDEFINED_BEHAVIOUR = re.compile(r"^(?P<kind>\S+:\d+(?::\d+)?: runtime error: .*)$", re.MULTILINE)
_FRAME = re.compile(r"^\s*(?P<frame>#\d+ .*)$", re.MULTILINE)
# Messages of glibc before it aborts; only native code that a case called can have corrupted the heap.
_HEAP = re.compile(
    r"^(?P<kind>(?:malloc|free|realloc|calloc|munmap_chunk)\(\): .*|corrupted .*|double free .*)$", re.MULTILINE
)
_MEMORY_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT")
_FRAMES = 3
# From this frame on, a stack shows how Python called the library.
_CALLER = re.compile(r"libffi|ffi_call|_ctypes|Py")


@dataclass(frozen=True, slots=True, kw_only=True)
class StderrReport:
    """Report found in a worker's standard error; ``reason`` None keeps the reason of the signal or exit status."""

    words: str
    reason: Reason | None = None


def overtime(phase: Phase, allowance_s: float, tail: str, why: str = "") -> Verdict:
    """Return the verdict of a worker that was killed for exceeding its time limit: TIMEOUT if the backend was running.

    In any other phase it is ERROR. ``why`` is appended to the message of a TIMEOUT.
    """
    details = {"phase": phase.name.lower(), "timeout_s": allowance_s, "stderr_tail": tail}
    if phase in _BACKEND_PHASES:
        message = f"{_CULPRIT[phase]} did not return within {allowance_s:g} s and was killed{why}"
        return Verdict(status=Status.TIMEOUT, reason=Reason.DEADLINE, message=message, details=details)
    message = f"{_CULPRIT[phase]} took more than {allowance_s:g} s and was killed"
    return Verdict(status=Status.ERROR, reason=_OTHER_REASONS[phase], message=message, details=details)


def death(
    phase: Phase,
    returncode: int | None,
    signal: int | None,
    tail: str,
    report: StderrReport | None = None,
    *,
    native: bool = False,
) -> Verdict:
    """Return the verdict of a worker that died in ``phase``.

    CRASHED if the backend was running, or if it corrupted memory before: malloc reports that in ``tail``, or a memory
    signal follows a call of ``native`` code. In other phases the verdict is ERROR with the reason of the phase; FAILED
    if the worker exited by itself while it sent its result.
    """
    how, details = _describe_end(returncode, signal, tail)
    how += f": {report.words}" if report else ""
    details = {"phase": phase.name.lower(), **details}
    if phase is Phase.ANSWER and not signal:
        return descriptors_spoilt("it could not send its result", details)
    is_later = phase in (Phase.COMPARE, Phase.ANSWER)
    heap = heap_was_broken(signal, tail) if is_later else None
    if heap or (is_later and native and signal and signal_name(signal) in _MEMORY_SIGNALS):
        noticed = f"the backend corrupted {'the heap' if heap else 'memory'}, which was noticed after its call"
        message = f"{noticed}: {heap}; the process {how}" if heap else f"{noticed}: {_CULPRIT[phase]} {how}"
        return Verdict(status=Status.CRASHED, reason=Reason.SIGNAL, message=message, details=details)
    # a signal between two cases came from outside, such as the out-of-memory killer
    if phase in _BACKEND_PHASES or (signal and phase is Phase.IDLE):
        reason = (report and report.reason) or (Reason.SIGNAL if signal else Reason.EXIT_CODE)
        status = Status.CRASHED
    else:
        reason, status = _OTHER_REASONS[phase], Status.ERROR
    return Verdict(status=status, reason=reason, message=f"{_CULPRIT[phase]} {how}", details=details)


def heap_was_broken(signal: int | None, tail: str) -> str | None:
    """Return glibc's message about a corrupted heap from ``tail``; None unless it aborted the process by SIGABRT."""
    match = _HEAP.search(tail) if signal is not None and signal_name(signal) == "SIGABRT" else None
    return None if match is None else match["kind"]


def descriptors_spoilt(how: str, details: Mapping[str, Any]) -> Verdict:
    """Return the verdict FAILED/STATE of a worker whose pipes or result foreign code broke, as ``how`` describes."""
    return Verdict(
        status=Status.FAILED,
        reason=Reason.STATE,
        message=f"the backend closed or wrote to file descriptors that it did not open, or forked the worker: {how}",
        details=details,
    )


def death_at_load(driver: str, returncode: int, signal: int | None, tail: str, times: int) -> Verdict:
    """Return the verdict CRASHED of a backend whose workers died ``times`` times in a row while they loaded it."""
    how, details = _describe_end(returncode, signal, tail)
    return Verdict(
        status=Status.CRASHED,
        reason=Reason.SIGNAL if signal else Reason.EXIT_CODE,
        message=f"the worker of backend {driver} {how} while it loaded the backend, {times} times in a row",
        details=details,
    )


def _describe_end(returncode: int | None, signal: int | None, tail: str) -> tuple[str, dict[str, Any]]:
    """Return how a process ended, as the predicate of a sentence and as details of a verdict."""
    if signal:
        return f"died of {signal_name(signal)}", {"stderr_tail": tail, "signal": signal_name(signal)}
    return f"ended its process with exit status {returncode}", {"stderr_tail": tail, "exit_code": returncode}


def stderr_report(tail: str) -> StderrReport | None:
    """Parse the last report in a worker's output: a sanitizer's if there is one, else a driver's line; None if neither.

    A sanitizer's report has the reason SANITIZER and its first frames.
    """
    reports = [*_ADDRESS_SANITIZER.finditer(tail), *_UNDEFINED_BEHAVIOUR.finditer(tail)]
    if reports:
        report = max(reports, key=lambda match: match.start())
        frames: list[str] = []  # the first ones of the library's own code
        for frame in _FRAME.finditer(tail[report.end() :]):
            if _CALLER.search(frame["frame"]) or len(frames) == _FRAMES:
                break
            frames.append(frame["frame"])
        words = "\n  ".join([report["kind"], *frames])
        return StderrReport(words=words, reason=Reason.SANITIZER)
    lines = list(_DRIVER_REPORT.finditer(tail))
    if not lines:
        return None
    name = lines[-1]["reason"]
    return StderrReport(words=lines[-1]["words"], reason=Reason(name) if name in Reason.__members__ else None)

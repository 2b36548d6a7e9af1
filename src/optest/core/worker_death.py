"""What is said of a case whose worker was killed or died: whose fault that was, and what the end of stderr tells.

A signal alone says little; a driver of ours names the memory in a line of its own, a sanitizer the place in the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optest.core.phases import Phase
from optest.process import signal_name
from optest.spec import Reason, Status, Verdict

_WHOSE = {
    Phase.IDLE: "optest's worker",
    Phase.GENERATE: "the generator",
    Phase.REFERENCE: "the reference",
    Phase.RUN: "the backend",
    Phase.COMPARE: "the comparison",
    Phase.BENCHMARK: "the backend, while it was timed,",
    Phase.ANSWER: "optest's worker, while it handed over its answer,",
}
_BY_BACKEND = (Phase.RUN, Phase.BENCHMARK)
_REASON_ELSEWHERE = {
    Phase.IDLE: Reason.INTERNAL,
    Phase.GENERATE: Reason.BAD_CASE,
    Phase.REFERENCE: Reason.REFERENCE_FAILED,
    Phase.COMPARE: Reason.INTERNAL,
    Phase.ANSWER: Reason.INTERNAL,
}


_OURS = re.compile(r"^optest: (?:\[(?P<reason>[A-Z_]+)\] )?(?P<words>.*)$", re.MULTILINE)
"""A line that a driver of ours wrote when the signal came."""

_ADDRESS_SANITIZER = re.compile(r"^==\d+==\s*ERROR: (?P<kind>\w+Sanitizer: .*)$", re.MULTILINE)
_UNDEFINED_BEHAVIOUR = re.compile(r"^(?P<kind>\S+:\d+(?::\d+)?: runtime error: .*)$", re.MULTILINE)
_FRAME = re.compile(r"^\s*(?P<frame>#\d+ .*)$", re.MULTILINE)
_HEAP = re.compile(
    r"^(?P<kind>(?:malloc|free|realloc|calloc|munmap_chunk)\(\): .*|corrupted .*|double free .*)$", re.MULTILINE
)
"""What glibc says before it aborts; only native code that a case called can have done that."""
_FAULTS_OF_MEMORY = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT")
_FRAMES = 3
_CALLER = re.compile(r"libffi|ffi_call|_ctypes|Py")
"""From here on a stack tells how Python came to call the library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StderrReport:
    """``reason`` None leaves the reason that the way of dying has."""

    words: str
    reason: Reason | None = None


def overtime(phase: Phase, allowance_s: float, tail: str, why: str = "") -> Verdict:
    """``why`` is said of a deadline that is not the stated one."""
    details = {"phase": phase.name.lower(), "timeout_s": allowance_s, "stderr_tail": tail}
    if phase in _BY_BACKEND:
        message = f"{_WHOSE[phase]} did not answer within {allowance_s:g} s and was killed{why}"
        return Verdict(status=Status.TIMEOUT, reason=Reason.DEADLINE, message=message, details=details)
    message = f"{_WHOSE[phase]} took more than {allowance_s:g} s and was killed"
    return Verdict(status=Status.ERROR, reason=_REASON_ELSEWHERE[phase], message=message, details=details)


def death(
    phase: Phase,
    returncode: int | None,
    signal: int | None,
    tail: str,
    report: StderrReport | None = None,
    *,
    native: bool = False,
) -> Verdict:
    """Return the verdict of a worker that died: the backend killed it while it ran, elsewhere the phase did, unless
    memory was broken before: malloc says so, or a fault of memory follows a call of ``native`` code."""
    how, details = _end(returncode, signal, tail)
    how += f": {report.words}" if report else ""
    details = {"phase": phase.name.lower(), **details}
    if phase is Phase.ANSWER and not signal:
        return descriptors_spoilt("it could not hand over its answer", details)
    is_later = phase in (Phase.COMPARE, Phase.ANSWER)
    heap = heap_was_broken(signal, tail) if is_later else None
    if heap or (is_later and native and signal and signal_name(signal) in _FAULTS_OF_MEMORY):
        noticed = f"the backend corrupted {'the heap' if heap else 'memory'}, which was noticed after its call"
        message = f"{noticed}: {heap}; the process {how}" if heap else f"{noticed}: {_WHOSE[phase]} {how}"
        return Verdict(status=Status.CRASHED, reason=Reason.SIGNAL, message=message, details=details)
    if phase not in _BY_BACKEND and not (signal and phase is Phase.IDLE):  # before a case somebody else killed it
        reason, status = _REASON_ELSEWHERE[phase], Status.ERROR
    else:
        reason = (report and report.reason) or (Reason.SIGNAL if signal else Reason.EXIT_CODE)
        status = Status.CRASHED
    return Verdict(status=status, reason=reason, message=f"{_WHOSE[phase]} {how}", details=details)


def heap_was_broken(signal: int | None, tail: str) -> str | None:
    """What malloc said before it aborted, None of any other death."""
    found = _HEAP.search(tail) if signal is not None and signal_name(signal) == "SIGABRT" else None
    return None if found is None else found["kind"]


def descriptors_spoilt(how: str, details: Mapping[str, Any]) -> Verdict:
    """The worker runs, but its pipes are not what they were."""
    return Verdict(
        status=Status.FAILED,
        reason=Reason.STATE,
        message=f"the backend closed, or wrote to, file descriptors that were not its own, or forked the worker: {how}",
        details=details,
    )


def death_at_load(driver: str, returncode: int, signal: int | None, tail: str, times: int) -> Verdict:
    """A worker that dies before the first case, so often one after the other."""
    how, details = _end(returncode, signal, tail)
    return Verdict(
        status=Status.CRASHED,
        reason=Reason.SIGNAL if signal else Reason.EXIT_CODE,
        message=f"the worker of backend {driver} {how} while it loaded the backend, {times} times one after the other",
        details=details,
    )


def _end(returncode: int | None, signal: int | None, tail: str) -> tuple[str, dict[str, Any]]:
    """How a process ended, in words and as details."""
    if signal:
        return f"died of {signal_name(signal)}", {"stderr_tail": tail, "signal": signal_name(signal)}
    return f"ended its process with exit status {returncode}", {"stderr_tail": tail, "exit_code": returncode}


def stderr_report(tail: str) -> StderrReport | None:
    """What the end of a worker's output says; None if it says nothing of its own.

    A sanitizer's report is preferred: it names the line.
    """
    reports = [*_ADDRESS_SANITIZER.finditer(tail), *_UNDEFINED_BEHAVIOUR.finditer(tail)]
    if reports:
        report = max(reports, key=lambda match: match.start())
        # The first line of the report and the first frames of the library's own code below it.
        frames: list[str] = []
        for frame in _FRAME.finditer(tail[report.end() :]):
            if _CALLER.search(frame["frame"]) or len(frames) == _FRAMES:
                break
            frames.append(frame["frame"])
        words = "\n  ".join([report["kind"], *frames])
        return StderrReport(words=words, reason=Reason.SANITIZER)
    ours = list(_OURS.finditer(tail))
    if not ours:
        return None
    named = ours[-1]["reason"]
    return StderrReport(words=ours[-1]["words"], reason=Reason(named) if named in Reason.__members__ else None)

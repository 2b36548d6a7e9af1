"""What a worker that died said at its end, as far as it tells more than the signal: which memory, which sanitizer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from optest.spec import Reason

__all__ = ["LastWords", "last_words"]

_OURS = re.compile(r"^optest: (?:\[(?P<reason>[A-Z_]+)\] )?(?P<words>.*)$", re.MULTILINE)
"""A line that a driver of ours wrote when the signal came."""

_ADDRESS_SANITIZER = re.compile(r"^==\d+==\s*ERROR: (?P<kind>\w+Sanitizer: .*)$", re.MULTILINE)
_UNDEFINED_BEHAVIOUR = re.compile(r"^(?P<kind>\S+:\d+(?::\d+)?: runtime error: .*)$", re.MULTILINE)
_FRAME = re.compile(r"^\s*(?P<frame>#\d+ .*)$", re.MULTILINE)
_FRAMES = 3
_CALLER = re.compile(r"libffi|ffi_call|_ctypes|Py")
"""From here on a stack tells how Python came to call the library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """``reason`` None leaves the reason that the way of dying has."""

    words: str
    reason: Reason | None = None


def last_words(tail: str) -> LastWords | None:
    """What the end of a worker's output says; None if it says nothing of its own.

    A sanitizer's report is preferred: it names the line.
    """
    reports = [*_ADDRESS_SANITIZER.finditer(tail), *_UNDEFINED_BEHAVIOUR.finditer(tail)]
    if reports:
        report = max(reports, key=lambda found: found.start())
        return LastWords(words=_with_frames(report["kind"], tail[report.end() :]), reason=Reason.SANITIZER)
    ours = list(_OURS.finditer(tail))
    if not ours:
        return None
    named = ours[-1]["reason"]
    return LastWords(words=ours[-1]["words"], reason=Reason(named) if named in Reason.__members__ else None)


def _with_frames(kind: str, rest: str) -> str:
    """The first line of a report and the first frames of the library's own code below it."""
    frames: list[str] = []
    for found in _FRAME.finditer(rest):
        if _CALLER.search(found["frame"]) or len(frames) == _FRAMES:
            break
        frames.append(found["frame"])
    return "\n  ".join([kind, *frames])

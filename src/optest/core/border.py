"""Conversion of exceptions that foreign code raises to faults with a reason."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from optest.errors import Unavailable
from optest.spec import Fault, Reason, Verdict

# Files whose frames are left out of tracebacks; the others of optest are shown.
_OWN_FRAMES = (
    "optest/core/",
    "optest/backends/function.py",
    "optest/torch/driver.py",
    "optest/torch/guarded_memory.py",
)
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_FILE = re.compile(r'^ *File "(.*)", line \d+', re.M)


class UserInterrupt(KeyboardInterrupt):
    """Ctrl-C or a request to terminate, which ends the run wherever it is raised.

    A plain KeyboardInterrupt within a :class:`Border` was raised by foreign code.
    """


class Border:
    """Context manager that converts exceptions to :class:`Fault`: ``with Border("the backend", Reason.RAISED): …``.

    ``who`` and ``reason`` may be set within the block, when other code begins to run.

    A Fault passes unchanged, a MemoryError becomes OUT_OF_MEMORY and ``Unavailable`` UNAVAILABLE. SystemExit and
    KeyboardInterrupt are converted too, since foreign code raises them. A :class:`UserInterrupt` passes, and so does a
    KeyboardInterrupt while ``let_through()`` is true: the user's.
    """

    __slots__ = ("_let_through", "reason", "who")

    def __init__(self, who: str, reason: Reason, let_through: Callable[[], bool] | None = None) -> None:
        self.who = who
        self.reason = reason
        self._let_through = let_through

    def __enter__(self) -> Border:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, (Fault, UserInterrupt)):
            return
        if isinstance(error, KeyboardInterrupt) and self._let_through is not None and self._let_through():
            return
        if isinstance(error, Unavailable):
            raise Fault(Reason.UNAVAILABLE, text_of(error)) from None
        if isinstance(error, MemoryError):
            raise _fault(error, Reason.OUT_OF_MEMORY, f"{self.who} ran out of memory:") from None
        raise _fault(error, self.reason, f"{self.who} raised") from None


def _fault(error: BaseException, reason: Reason, subject: str) -> Fault:
    """Build a fault with the message "``subject`` TYPE: TEXT" and the last traceback frames outside of optest."""
    frames = traceback.extract_tb(error.__traceback__)
    if error.__cause__ is not None:  # Triton's interpreter raises its own exception from that of the kernel
        frames += traceback.extract_tb(error.__cause__.__traceback__)
    foreign = [frame for frame in frames if not any(part in frame.filename for part in _OWN_FRAMES)]
    # Show 4 frames, among them the last one of the user's code: a framework's own frames below it may be more.
    shown, of_user = foreign[-4:], [frame for frame in foreign if "-packages" not in frame.filename]
    if of_user and of_user[-1] not in shown:
        shown[0] = of_user[-1]
    traceback_tail = "".join(traceback.format_list(shown)).rstrip()
    text = text_of(error)
    exception = f"{type(error).__name__}: {text}" if text else type(error).__name__
    details: dict[str, Any] = {
        "exception": exception,
        "exception_types": [base.__name__ for base in type(error).__mro__],
        "traceback_tail": traceback_tail,
    }
    # set by a driver that knows a remedy; not `__notes__`, which JAX uses
    if hint := getattr(error, "optest_hint", ""):
        details["hint"] = hint
    return Fault(reason, f"{subject} {exception}", details=details)


def raised_by_optest(verdict: Verdict) -> bool:
    """Return whether optest's own code failed: reason INTERNAL, or an exception whose last frame is in the package.

    Foreign code that wrote over optest's memory may be the cause.
    """
    files = _FILE.findall(str(verdict.details.get("traceback_tail") or ""))
    is_raised = verdict.reason is Reason.RAISED and any(file.startswith(_PACKAGE) for file in files[-1:])
    return is_raised or verdict.reason is Reason.INTERNAL


def text_of(error: BaseException, most: int = 4000) -> str:
    """Return the text of an exception, cut to ``most`` characters; a note instead if its ``__str__`` raises."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - `__str__` is foreign code, too
        return f"(its __str__ raised {type(second).__name__})"
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"

"""The border that exceptions of foreign code do not cross: they become faults with a reason."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from optest.errors import Unavailable
from optest.spec import Fault, Reason, Verdict

_OWN_FRAMES = (
    "optest/core/",
    "optest/backends/function.py",
    "optest/torch/driver.py",
    "optest/torch/guarded_memory.py",
)
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_FILE = re.compile(r'^ *File "(.*)", line \d+', re.M)


class UserInterrupt(KeyboardInterrupt):
    """Ctrl-C, or a request to terminate: it comes from the user and ends the run, wherever it strikes.

    A plain KeyboardInterrupt inside a border was raised by foreign code.
    """


class Border:
    """``with Border("the backend", Reason.RAISED): ...`` turns whatever is raised inside into a :class:`Fault`.

    A Fault passes as it is, a MemoryError becomes OUT_OF_MEMORY and ``Unavailable`` UNAVAILABLE. SystemExit and
    KeyboardInterrupt are caught too, since foreign code raises them. A :class:`UserInterrupt` is not, nor a
    KeyboardInterrupt that is the user's own by what ``let_through`` says.
    """

    __slots__ = ("_let_through", "_reason", "_who")

    def __init__(self, who: str, reason: Reason, let_through: Callable[[], bool] | None = None) -> None:
        self._who = who
        self._reason = reason
        self._let_through = let_through

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None or isinstance(error, Fault) or error is None:
            return
        if isinstance(error, UserInterrupt):
            return
        if isinstance(error, KeyboardInterrupt) and self._let_through is not None and self._let_through():
            return
        if isinstance(error, Unavailable):
            raise Fault(Reason.UNAVAILABLE, text_of(error)) from None
        if isinstance(error, MemoryError):
            raise _fault(error, Reason.OUT_OF_MEMORY, f"{self._who} ran out of memory:") from None
        raise _fault(error, self._reason, f"{self._who} raised") from None


def _fault(error: BaseException, reason: Reason, what: str) -> Fault:
    """A fault that names the exception and shows the last frames of the code that raised it."""
    # The last 4 frames outside of optest, among them the last one that is of no installed package: frameworks call
    # through more of their own than are shown.
    frames = traceback.extract_tb(error.__traceback__)
    if error.__cause__ is not None:  # as a kernel's own exception is to Triton's interpreter
        frames += traceback.extract_tb(error.__cause__.__traceback__)
    foreign = [frame for frame in frames if not any(own in frame.filename for own in _OWN_FRAMES)]
    shown, own = foreign[-4:], [frame for frame in foreign if "-packages" not in frame.filename]
    if own and own[-1] not in shown:
        shown[0] = own[-1]
    traceback_tail = "".join(traceback.format_list(shown)).rstrip()
    text = text_of(error)
    exception = f"{type(error).__name__}: {text}" if text else type(error).__name__
    details: dict[str, Any] = {
        "exception": exception,
        "exception_types": [each.__name__ for each in type(error).__mro__],
        "traceback_tail": traceback_tail,
    }
    if hint := getattr(error, "optest_hint", ""):  # from a driver that knows a remedy; not __notes__, which JAX uses
        details["hint"] = hint
    return Fault(reason, f"{what} {exception}", details=details)


def raised_by_optest(verdict: Verdict) -> bool:
    """Return whether a verdict is an exception of optest's own code, which foreign code may have written over."""
    frames = _FILE.findall(str(verdict.details.get("traceback_tail") or ""))
    is_raised = verdict.reason is Reason.RAISED and any(each.startswith(_PACKAGE) for each in frames[-1:])
    return is_raised or verdict.reason is Reason.INTERNAL


def text_of(error: BaseException, most: int = 4000) -> str:
    """What an exception says, cut to ``most`` characters; its own ``__str__`` is foreign code too."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - border: an exception that cannot be shown is still one
        return f"(its __str__ raised {type(second).__name__})"
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"

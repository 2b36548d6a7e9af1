"""Names of signals, and protection of this process from ``os._exit`` and ``os.chdir`` in foreign code."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, ClassVar, NoReturn

from optest.spec import Fault, Reason, Status

_CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})

# The original `os._exit`, which foreign code or `exits_refused` may replace.
leave = os._exit


class exits_refused:  # noqa: N801 - a verb, as in `with exits_refused():`
    """Context in which ``os._exit`` raises a fault, except in forks of this process; an ``exit`` in C is not caught."""

    # Exit status 0 in the middle of a run would mean that all cases passed.
    __slots__ = ("_owner",)
    _lock: ClassVar[Any] = threading.Lock()
    # The original `os._exit`, once for each active context: several threads may be inside at once.
    _before: ClassVar[list[Any]] = []

    def __enter__(self) -> None:
        self._owner = os.getpid()
        with self._lock:
            self._before.append(self._before[0] if self._before else os._exit)
            if len(self._before) == 1:
                os._exit = self._refuse

    def __exit__(self, *_: object) -> None:
        with self._lock:
            before = self._before.pop()
            if not self._before:
                os._exit = before

    def _refuse(self, status: int) -> NoReturn:
        if os.getpid() != self._owner:
            leave(status)
        raise Fault(
            Reason.EXIT_CODE,
            f"the code called os._exit({status}), which would end optest in the middle of the run",
            status=Status.CRASHED,
            details={"exit_code": status},
        )


class directory_kept:  # noqa: N801 - a verb, as in `with directory_kept():`
    """Context that restores the working directory at its end."""

    # Relative paths of a plan and of reports start from it.
    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = os.getcwd()

    def __exit__(self, *_: object) -> None:
        os.chdir(self._before)


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGSEGV`` for 11, ``signal 77`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def crash_below_a_shell(status: int) -> str | None:
    """Return the name of the crash signal for the exit status 128 + N of a shell, else None.

    Signals that are sent to end a program, such as SIGTERM, do not count.
    """
    # Statuses such as 129 have other meanings as well.
    name = signal_name(status - 128)
    return name if name in _CRASHES else None

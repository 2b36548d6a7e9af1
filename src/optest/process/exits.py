"""How processes end, in names of signals; and what foreign code may not do to this one: end it as if optest were done,
or leave it in another directory."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, ClassVar, NoReturn

from optest.spec import Fault, Reason, Status

_CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})

leave = os._exit
"""End this process at once, whatever foreign code made of ``os._exit``."""


class exits_refused:  # noqa: N801 - a verb, as in `with exits_refused():`
    """While this lasts, ``os._exit`` raises a fault: exit status 0 in the middle of a run would say that all is well.

    Copies of this process that foreign code forks may still leave by it. An ``exit`` in C cannot be refused.
    """

    __slots__ = ("_owner",)
    _lock: ClassVar[Any] = threading.Lock()
    _before: ClassVar[list[Any]] = []
    """What ``os._exit`` was, once for each that lasts."""

    def __enter__(self) -> None:
        """Several threads may be inside at once."""
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
            f"the process was to end with exit status {status} (os._exit), in the middle of the run",
            status=Status.CRASHED,
            details={"exit_code": status},
        )


class directory_kept:  # noqa: N801 - a verb, as in `with directory_kept():`
    """Come back to the working directory afterwards; relative paths of a plan and of reports start from it."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = os.getcwd()

    def __exit__(self, *_: object) -> None:
        os.chdir(self._before)


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11, ``signal 77`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def crash_below_a_shell(status: int) -> str | None:
    """The signal of which a program died whose shell then ended with *status*, which is 128 more than its number.

    Signals that somebody sends to end a program are none: statuses such as 129 have other meanings as well.
    """
    name = signal_name(status - 128)
    return name if name in _CRASHES else None

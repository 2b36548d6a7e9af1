"""Names of signals, and what a shell makes of them."""

from __future__ import annotations

import signal

__all__ = ["crash_below_a_shell", "signal_name"]

_CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})


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

"""Forks of a warm process: a function runs in a copy of this process, and its bytes come back over a pipe."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from optest.process.channel import ReadEnd
from optest.process.guard_program import write_all

__all__ = ["Forked", "fork_and_run"]

_LOOK_S = 0.005
_READ_BYTES = 1 << 20


class Forked(NamedTuple):
    """A fork at work, and the pipe on which its bytes come."""

    pid: int
    read_fd: int

    def read(self, timeout_s: float | None = None) -> bytes:
        """Return all that the fork writes until it ends, which a child of its own that holds the pipe cannot delay.

        Raises:
            TimeoutError: if it did not end in ``timeout_s``; the fork goes on until :meth:`end`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        parts: list[bytes] = []
        pipe = ReadEnd(self.read_fd)
        while True:
            over = self._is_over()
            if pipe.has_news(0.0 if over else _LOOK_S):
                parts.append(os.read(self.read_fd, _READ_BYTES))
                if not parts[-1]:
                    return b"".join(parts)
            elif over:
                return b"".join(parts)
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the fork did not end in {timeout_s:g} s")

    def end(self) -> tuple[int, int | None]:
        """Kill the fork if it still runs, reap it, close the pipe; returns ``(returncode, signal)`` as in ``Finished``.

        What the fork left behind comes up as children of this process if that called ``adopt_orphans``; then
        ``end_children`` ends it.
        """
        if not self._is_over():
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.read_fd)
        return status, (-status if status < 0 else None)

    def _is_over(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def fork_and_run(function: Callable[[], bytes]) -> Forked:
    """Run ``function`` in a fork of this process, which writes what it returns to a pipe and exits with 0.

    If it raises, the traceback goes to standard error and the exit status is 1. The fork runs no ``atexit`` functions.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_and_exit(function, write_fd)
    os.close(write_fd)
    return Forked(pid, read_fd)


def _run_and_exit(function: Callable[[], bytes], write_fd: int) -> None:
    status = 1
    try:
        write_all(write_fd, function())
        status = 0
    finally:
        if status:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

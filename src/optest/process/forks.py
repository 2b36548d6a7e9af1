"""Forks of a warm process: a function runs in a copy of this process, and its bytes come back over a pipe, at its end
or message by message.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from optest.process.channel import Channel, ReadEnd
from optest.process.guard_program import write_all

__all__ = ["Forked", "ForkedServer", "fork_and_run", "fork_server"]

_LOOK_S = 0.005
_LOOK_AT_SERVER_S = 0.05
"""An end shows at once in the pipe, unless a child of the fork holds it."""
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
            over = _is_over(self.pid)
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
        ended = _end(self.pid)
        os.close(self.read_fd)
        return ended


class ForkedServer(NamedTuple):
    """A fork that answers messages, and the channel to it."""

    pid: int
    channel: Channel

    def ask(self, message: bytes) -> bytes | None:
        """Return its answer, None if it ended without one or closed its end of the channel.

        Raises:
            ValueError: if what came back does not begin as a message does.
        """
        with suppress(BrokenPipeError):
            self.channel.send(message)
        while True:
            over = self.is_over()
            try:
                return self.channel.receive(0.0 if over else _LOOK_AT_SERVER_S)
            except TimeoutError:
                if over:
                    return None

    def is_over(self) -> bool:
        return _is_over(self.pid)

    def end(self) -> tuple[int, int | None]:
        """As :meth:`Forked.end`."""
        self.channel.close()
        return _end(self.pid)


def _is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(pid: int) -> tuple[int, int | None]:
    if not _is_over(pid):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, (-status if status < 0 else None)


def fork_and_run(function: Callable[[], bytes]) -> Forked:
    """Run ``function`` in a fork of this process, which writes what it returns to a pipe and exits with 0.

    If it raises, the traceback goes to standard error and the exit status is 1. The fork runs no ``atexit`` functions.
    """
    read_fd, write_fd = os.pipe()
    pid = _fork(lambda: write_all(write_fd, function()))
    os.close(write_fd)
    return Forked(pid, read_fd)


def fork_server(serve: Callable[[Channel], None]) -> ForkedServer:
    """The same, but ``serve`` reads messages and answers each, until there are no more."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()

    def run() -> None:
        os.close(our_in)
        os.close(our_out)
        serve(Channel(their_in, their_out))

    pid = _fork(run)
    os.close(their_in)
    os.close(their_out)
    return ForkedServer(pid, Channel(our_in, our_out))


def _fork(run: Callable[[], None]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run_and_exit(run)
    return pid


def _run_and_exit(run: Callable[[], None]) -> None:
    status = 1
    try:
        run()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

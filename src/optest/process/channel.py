"""Messages between two processes over a pair of pipes: the length, its complement, then the bytes.

:class:`ReadEnd` waits for a pipe of any number, however long.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from contextlib import suppress

from optest.process.guard_program import write_all

_READ_BYTES = 1 << 16
_MOST_BYTES = 1 << 24
"""Of one read: a length that foreign code wrote into the pipe is not believed."""
_LENGTH_BYTES = 4
_HEAD_BYTES = 2 * _LENGTH_BYTES
_ALL_ONES = (1 << 8 * _LENGTH_BYTES) - 1
_F_GETPIPE_SZ = 1032
_USUAL_PIPE_BYTES = 1 << 16


class Channel:
    """One end: reads messages from ``fd_in``, writes them to ``fd_out``; programs started later inherit neither."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        for fd in (fd_in, fd_out):
            os.set_inheritable(fd, False)
        self._in = fd_in
        self._out = fd_out
        self._buffer = b""
        self._waiting = ReadEnd(fd_in)

    def send(self, *messages: bytes) -> None:
        """Write messages at once; blocks while the other end does not read.

        Raises:
            BrokenPipeError: if the other end is gone.
        """
        write_all(self._out, b"".join([_head_of(len(each)) + each for each in messages]))

    def holds_bytes(self) -> int:
        """How much can be sent before anybody reads; on Linux less than usual for a user who has many pipes."""
        if sys.platform == "linux":
            with suppress(OSError):
                return fcntl.fcntl(self._out, _F_GETPIPE_SZ)
        return _USUAL_PIPE_BYTES

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """Return the next message, None when the other end is gone (also in the middle of a message).

        Raises:
            TimeoutError: if no whole message came in ``timeout_s``; what came is kept for the next call.
            ValueError: if what came does not begin as a message does, since someone else wrote into the pipe.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (count := self._wanted()) > len(self._buffer):
            if deadline is not None and not self._waiting.has_news(deadline - time.monotonic()):
                raise TimeoutError(f"no message came in {timeout_s:g} s")
            part = os.read(self._in, min(_MOST_BYTES, max(_READ_BYTES, count - len(self._buffer))))
            if not part:
                return None
            self._buffer += part
        message, self._buffer = self._buffer[_HEAD_BYTES:count], self._buffer[count:]
        return message

    def _wanted(self) -> int:
        """Bytes of the next message with its head, as far as that is known."""
        if len(self._buffer) < _HEAD_BYTES:
            return _HEAD_BYTES
        nbytes = int.from_bytes(self._buffer[:_LENGTH_BYTES], "little")
        if self._buffer[:_HEAD_BYTES] != _head_of(nbytes):
            raise ValueError("what came through the pipe is no message")
        return _HEAD_BYTES + nbytes

    def close(self) -> None:
        """Close both pipes; harmless when repeated."""
        for fd in {self._in, self._out} - {-1}:
            os.close(fd)
        self._in = self._out = -1


def _head_of(nbytes: int) -> bytes:
    """Bytes that somebody else writes into the pipe are not waited for as if they were a length."""
    return nbytes.to_bytes(_LENGTH_BYTES, "little") + (nbytes ^ _ALL_ONES).to_bytes(_LENGTH_BYTES, "little")


_LONGEST_MS = 1e9
"""Of one wait: the system's counter of milliseconds has 31 bits."""


class ReadEnd:
    """The end of a pipe that is read; its number may be any, where ``select`` takes those below 1024 alone."""

    def __init__(self, fd: int) -> None:
        self._poller = select.poll()
        self._poller.register(fd, select.POLLIN)

    def has_news(self, timeout_s: float) -> bool:
        """Whether there is something to read, or the other end is gone, at the latest after ``timeout_s``."""
        ends = time.monotonic() + timeout_s
        left_ms = max(0.0, timeout_s * 1000)
        while not self._poller.poll(min(left_ms, _LONGEST_MS)):
            if left_ms <= _LONGEST_MS:
                return False
            left_ms = max(0.0, (ends - time.monotonic()) * 1000)
        return True

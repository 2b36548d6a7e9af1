"""Messages between two processes over a pair of pipes: the length, its complement, then the bytes."""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from contextlib import suppress

from optest.process.guard_program import write_all

_READ_BYTES = 1 << 16
# Largest read: the length in a header may have been written by foreign code.
_MOST_BYTES = 1 << 24
_LENGTH_BYTES = 4
_HEAD_BYTES = 2 * _LENGTH_BYTES
_ALL_ONES = (1 << 8 * _LENGTH_BYTES) - 1
_F_GETPIPE_SZ = 1032
_USUAL_PIPE_BYTES = 1 << 16


class Channel:
    """One end of a connection, which reads messages from ``fd_in`` and writes messages to ``fd_out``."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        # Programs that are started later must not inherit the pipes.
        for fd in (fd_in, fd_out):
            os.set_inheritable(fd, False)
        self._in = fd_in
        self._out = fd_out
        self._buffer = b""
        self._waiting = ReadEnd(fd_in)

    def send(self, *messages: bytes) -> None:
        """Write messages in one piece; block while the pipe is full.

        Raises:
            BrokenPipeError: if the other end is gone.
        """
        write_all(self._out, b"".join([_head_of(len(message)) + message for message in messages]))

    def holds_bytes(self) -> int:
        """Return the capacity of the outgoing pipe in bytes."""
        # On Linux it is smaller than usual if the user has many pipes.
        if sys.platform == "linux":
            with suppress(OSError):
                return fcntl.fcntl(self._out, _F_GETPIPE_SZ)
        return _USUAL_PIPE_BYTES

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """Return the next message, or None if the other end is closed (also in the middle of a message).

        Raises:
            TimeoutError: if no complete message came in ``timeout_s``; the received part is kept for the next call.
            ValueError: if the received bytes are no message header: foreign code wrote into the pipe.
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
        """Return the size of the next message with its header; that of the header if it has not come yet.

        Raises:
            ValueError: if the received bytes are no message header.
        """
        if len(self._buffer) < _HEAD_BYTES:
            return _HEAD_BYTES
        nbytes = int.from_bytes(self._buffer[:_LENGTH_BYTES], "little")
        if self._buffer[:_HEAD_BYTES] != _head_of(nbytes):
            raise ValueError(
                "the bytes from the worker are no message: the tested code wrote into a file descriptor of optest"
            )
        return _HEAD_BYTES + nbytes

    def close(self) -> None:
        """Close both pipes; harmless when repeated."""
        for fd in {self._in, self._out} - {-1}:
            os.close(fd)
        self._in = self._out = -1


def _head_of(nbytes: int) -> bytes:
    """Return the header of a message of ``nbytes``: the length and its complement."""
    # The complement reveals bytes of foreign code, which would otherwise be taken for a length.
    return nbytes.to_bytes(_LENGTH_BYTES, "little") + (nbytes ^ _ALL_ONES).to_bytes(_LENGTH_BYTES, "little")


# Longest single wait: the system's counter of milliseconds has 31 bits.
_LONGEST_MS = 1e9


class ReadEnd:
    """Read end of a pipe, to wait for its data."""

    # `poll`, because `select` accepts only descriptors below 1024.
    def __init__(self, fd: int) -> None:
        self._poller = select.poll()
        self._poller.register(fd, select.POLLIN)

    def has_news(self, timeout_s: float) -> bool:
        """Wait for data or the end of the stream; return False if neither came within ``timeout_s``."""
        ends = time.monotonic() + timeout_s
        left_ms = max(0.0, timeout_s * 1000)
        while not self._poller.poll(min(left_ms, _LONGEST_MS)):
            if left_ms <= _LONGEST_MS:
                return False
            left_ms = max(0.0, (ends - time.monotonic()) * 1000)
        return True

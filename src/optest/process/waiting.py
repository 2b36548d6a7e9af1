"""Waiting for a pipe, whatever its number and however long."""

from __future__ import annotations

import select
import time

__all__ = ["ReadEnd"]

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

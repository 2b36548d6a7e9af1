"""The ways to interrupt a run: Ctrl-C, SIGTERM and SIGHUP, or a call from another thread."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn, Protocol

from optest.core.border import UserInterrupt


class Closable(Protocol):
    """An executor, or an object that holds executors."""

    def close(self) -> None: ...


# Signals within this time are one request: a second exception would strike while the first one is handled.
_SAME_REQUEST_S = 1.0


@dataclass(slots=True)
class Interruption:
    """Whether the user pressed Ctrl-C or the process received a request to terminate, and the executors to close."""

    is_cancelled: bool = False
    running: list[Closable] = field(default_factory=list)
    _is_deferred: bool = False
    _is_pending: bool = False
    _raised_at: float = -math.inf

    def __call__(self) -> bool:
        """Return whether the run was interrupted."""
        return self.is_cancelled

    def register(self, executor: Closable) -> None:
        """Register an executor that :meth:`cancel` closes; close it at once if the run is interrupted already."""
        self.running.append(executor)
        if self.is_cancelled:
            executor.close()

    def close_all(self) -> None:
        """Close all registered executors, such as the worker of a run that could not begin."""
        for executor in self.running:
            executor.close()

    def cancel(self) -> None:
        """Interrupt a run in another thread: close its executors, which kills workers; running cases get no result."""
        self.is_cancelled = True
        self.close_all()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise UserInterrupt on SIGINT, SIGTERM and SIGHUP within the block, and set ``is_cancelled``.

        Restore the signal handlers afterwards. Do nothing in any thread but the main one, and leave an ignored SIGHUP.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def remember(_number: int, _frame: FrameType | None) -> None:
            self.is_cancelled = True
            if self._is_deferred:
                self._is_pending = True
            elif time.monotonic() > self._raised_at + _SAME_REQUEST_S:
                self._raise()

        numbers = [signal.SIGINT, signal.SIGTERM]
        # nohup ignores SIGHUP for its command, which is to go on
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        handlers = {number: signal.signal(number, remember) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def after_this(self) -> Iterator[None]:
        """Defer signals within the block and raise UserInterrupt after it, for steps that must not be separated."""
        with self.deferred():
            yield
        if self._is_pending:
            self._raise()

    def _raise(self) -> NoReturn:
        self._is_pending = False
        self._raised_at = time.monotonic()
        raise UserInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Record signals within the block without raising: for closing workers, which takes no longer than killing.

        Without it a second Ctrl-C would leave workers alive, and the process would wait for their cases.
        """
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False

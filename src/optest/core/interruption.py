"""How a user ends a run: Ctrl-C, SIGTERM and SIGHUP, or a call from another thread."""

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
    """An executor, or whoever has some."""

    def close(self) -> None: ...


_SAME_WISH_S = 1.0
"""Signals that follow each other so fast mean one thing: the second would strike while the first is obeyed."""


@dataclass(slots=True)
class Interruption:
    """Whether the user pressed Ctrl-C or the process was asked to terminate."""

    happened: bool = False
    running: list[Closable] = field(default_factory=list)
    """What :meth:`now` ends."""
    _is_put_off: bool = False
    _waits: bool = False
    _raised_at: float = -math.inf

    def __call__(self) -> bool:
        return self.happened

    def ends(self, executor: Closable) -> None:
        """Let :meth:`now` end it, at once if that was asked already."""
        self.running.append(executor)
        if self.happened:
            executor.close()

    def done(self) -> None:
        """Close what is still open: the worker of a run that could not begin."""
        for executor in self.running:
            executor.close()

    def now(self) -> None:
        """End a run in another thread: its workers are killed, and what they were doing has no result."""
        self.happened = True
        self.done()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While inside, SIGINT, SIGTERM and SIGHUP raise UserInterrupt here and are remembered."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def remember(_number: int, _frame: FrameType | None) -> None:
            self.happened = True
            if self._is_put_off:
                self._waits = True
            elif time.monotonic() > self._raised_at + _SAME_WISH_S:
                self._raise()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not below nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, remember) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def after_this(self) -> Iterator[None]:
        """A signal that comes while inside is raised afterwards: for steps that only make sense together."""
        with self.put_off():
            yield
        if self._waits:
            self._raise()

    def _raise(self) -> NoReturn:
        self._waits = False
        self._raised_at = time.monotonic()
        raise UserInterrupt

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """While inside, signals are only remembered: for ending what runs, which takes no longer than killing it.

        Somebody who presses Ctrl-C twice would otherwise wait for the cases of all the workers that were left alive.
        """
        self._is_put_off = True
        try:
            yield
        finally:
            self._is_put_off = False

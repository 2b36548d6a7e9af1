"""What a process does for a case, announced as it begins and counted in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from time import perf_counter

from optest.spec import Timings
from optest.spec.construct import constructor

__all__ = ["ANSWER", "BENCHMARK", "COMPARE", "GENERATE", "IDLE", "REFERENCE", "RUN", "Clock", "Phase"]

new_timings = constructor(Timings)


class Phase(IntEnum):
    """What a process is doing for a case; a parent reads it to know whose fault a death or a hang is."""

    IDLE = 0
    GENERATE = 1
    REFERENCE = 2
    RUN = 3
    COMPARE = 4
    BENCHMARK = 5
    ANSWER = 6
    """The case is done, and the worker hands over what came of it."""


IDLE, GENERATE, REFERENCE, RUN, COMPARE, BENCHMARK, ANSWER = Phase
"""Members by themselves: asking an enumeration for one costs as much as calling a function."""
_PHASES = len(Phase)


class Clock:
    """Announces each phase as it begins and keeps how many seconds each of them took."""

    __slots__ = ("_announce", "_phase", "_seconds", "_since", "compile_s")

    def __init__(self, announce: Callable[[Phase], None] | None) -> None:
        self._announce = announce
        self._seconds: list[float | None] = [None] * _PHASES
        self._phase = IDLE
        self._since = 0.0
        self.compile_s: float | None = None

    def enter(self, phase: Phase) -> None:
        now = perf_counter()
        self._seconds[self._phase] = now - self._since
        self._phase, self._since = phase, now
        if self._announce is not None:
            self._announce(phase)

    @contextmanager
    def announced(self, phase: Phase) -> Iterator[None]:
        """While inside, it is that phase for whoever watches; the time stays that of the one that goes on."""
        if self._announce is not None:
            self._announce(phase)
        try:
            yield
        finally:
            if self._announce is not None:
                self._announce(self._phase)

    def timings(self) -> Timings:
        _, generate_s, reference_s, run_s, compare_s, *_ = self._seconds
        compile_s = self.compile_s
        if compile_s is not None and run_s is not None:
            run_s = max(run_s - compile_s, 0.0)
        return new_timings(
            generate_s=generate_s, reference_s=reference_s, run_s=run_s, compare_s=compare_s, compile_s=compile_s
        )

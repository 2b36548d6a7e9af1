"""Phases of running a case: announced as they begin, timed in seconds, and shared with the parent process."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from time import perf_counter
from types import TracebackType

from optest.spec import Timings
from optest.spec.construct import constructor

new_timings = constructor(Timings)


class Phase(IntEnum):
    """Step of running a case; the parent reads it to know whose fault a death or a hang is.

    In ANSWER the case is done, and the worker sends its result.
    """

    IDLE = 0
    GENERATE = 1
    REFERENCE = 2
    RUN = 3
    COMPARE = 4
    BENCHMARK = 5
    ANSWER = 6


# Members as module constants: the lookup of an enumeration's member costs as much as a function call.
IDLE, GENERATE, REFERENCE, RUN, COMPARE, BENCHMARK, ANSWER = Phase
_PHASES = len(Phase)


class Clock:
    """Clock that announces each phase as it begins and records the seconds of each.

    ``compile_s`` is the part of RUN that the backend spent compiling, set by the caller.
    """

    __slots__ = ("_announce", "_phase", "_seconds", "_since", "compile_s")

    def __init__(self, announce: Callable[[Phase], None] | None) -> None:
        self._announce = announce
        self._seconds: list[float | None] = [None] * _PHASES
        self._phase = IDLE
        self._since = 0.0
        self.compile_s: float | None = None

    def enter(self, phase: Phase) -> None:
        """End the current phase, record its seconds, and begin and announce ``phase``."""
        now = perf_counter()
        self._seconds[self._phase] = now - self._since
        self._phase, self._since = phase, now
        if self._announce is not None:
            self._announce(phase)

    @contextmanager
    def announced(self, phase: Phase) -> Iterator[None]:
        """Announce ``phase`` within the block, but count its time to the current phase."""
        if self._announce is not None:
            self._announce(phase)
        try:
            yield
        finally:
            if self._announce is not None:
                self._announce(self._phase)

    def timings(self) -> Timings:
        """Return the seconds of the ended phases; ``compile_s`` is subtracted from those of RUN."""
        _, generate_s, reference_s, run_s, compare_s, *_ = self._seconds
        compile_s = self.compile_s
        if compile_s is not None and run_s is not None:
            run_s = max(run_s - compile_s, 0.0)
        return new_timings(
            generate_s=generate_s, reference_s=reference_s, run_s=run_s, compare_s=compare_s, compile_s=compile_s
        )


_BYTES = 8
_PHASE_BITS = 4
# The other 60 bits hold nanoseconds of the monotonic clock, enough for 36 years.
_PHASE_MASK = (1 << _PHASE_BITS) - 1


class PhasePage:
    """Memory-mapped file that a worker writes and its parent reads: the current phase and the time at which it began.

    It survives the death of the worker and costs no message. Times are those of the system-wide monotonic clock.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            # the worker of a killed and resumed run may still write to the old file
            path.unlink(missing_ok=True)
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self._word = memoryview(self._map).cast("Q")
        if create:
            self.write(Phase.IDLE)

    def write(self, phase: Phase) -> None:
        """Set the phase, with the present time as its beginning."""
        # One aligned word is stored at once, so that a reader never sees the phase of one write with the time of
        # another. `struct.pack_into` clears the bytes first; a reader in between would see time 0.
        self._word[0] = time.monotonic_ns() << _PHASE_BITS | phase

    def read(self) -> tuple[Phase, float]:
        """Return the phase and the monotonic second at which it began.

        Raises:
            ValueError: if foreign code wrote over the page.
        """
        word = self._word[0]
        return Phase(word & _PHASE_MASK), (word >> _PHASE_BITS) / 1e9

    def of_a_death(self) -> Phase:
        """Return the phase in which the worker died; RUN if foreign code wrote over the page."""
        try:
            return self.read()[0]
        except ValueError:
            return Phase.RUN

    def close(self) -> None:
        self._word.release()
        self._map.close()

    def __enter__(self) -> PhasePage:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

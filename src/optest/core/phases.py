"""What a process does for a case: phases, announced as they begin, counted in seconds, and told to a parent."""

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


_BYTES = 8
_PHASE_BITS = 4
_PHASE_MASK = (1 << _PHASE_BITS) - 1
"""The other 60 bits hold nanoseconds of the monotonic clock, enough for 36 years."""


class PhasePage:
    """A page of memory that a worker writes and its parent reads: what the worker is doing, and since when.

    It survives the death of the worker, costs no message, and uses the system-wide monotonic clock: phase, and the
    monotonic second at which it began, in a file that both sides map.

    Both lie in one aligned word, which is stored at once: whoever reads sees one phase with its own beginning, never
    a half of each. (``struct.pack_into`` clears its place first, and a reader in between would see the year dot.)
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.unlink(missing_ok=True)  # the worker of a run that was killed and is resumed may still write to it
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self._word = memoryview(self._map).cast("Q")
        if create:
            self.write(Phase.IDLE)

    def write(self, phase: Phase) -> None:
        self._word[0] = time.monotonic_ns() << _PHASE_BITS | phase

    def read(self) -> tuple[Phase, float]:
        """
        Raises:
            ValueError: if foreign code wrote over the page.
        """
        word = self._word[0]
        return Phase(word & _PHASE_MASK), (word >> _PHASE_BITS) / 1e9

    def of_a_death(self) -> Phase:
        """The phase in which the worker died: that of foreign code if it wrote over the page."""
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

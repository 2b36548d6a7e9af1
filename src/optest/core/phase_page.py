"""A page of memory that a worker writes and its parent reads: what the worker is doing, and since when.

It survives the death of the worker, costs no message, and uses the system-wide monotonic clock.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from types import TracebackType

from optest.core.phases import Phase

__all__ = ["PhasePage"]

_BYTES = 8
_PHASE_BITS = 4
_PHASE_MASK = (1 << _PHASE_BITS) - 1
"""The other 60 bits hold nanoseconds of the monotonic clock, enough for 36 years."""


class PhasePage:
    """Phase, and the monotonic second at which it began, in a file that both sides map.

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
        word = self._word[0]
        return Phase(word & _PHASE_MASK), (word >> _PHASE_BITS) / 1e9

    def close(self) -> None:
        self._word.release()
        self._map.close()

    def __enter__(self) -> PhasePage:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

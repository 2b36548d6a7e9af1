"""A page of memory that a worker writes and its parent reads: what the worker is doing, and since when.

It survives the death of the worker, costs no message, and uses the system-wide monotonic clock.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from types import TracebackType

from optest.core.phases import Phase

__all__ = ["MOST_PLACES", "PhasePage"]

_BYTES = 8
_PHASE_BITS = 4
_PHASE_MASK = (1 << _PHASE_BITS) - 1
_PLACE_BITS = 6
MOST_PLACES = 1 << _PLACE_BITS
_PLACE_MASK = MOST_PLACES - 1
_BELOW = _PHASE_BITS + _PLACE_BITS
_TICK_BITS = 6
_TICKS_PER_S = 1e9 / (1 << _TICK_BITS)
"""Time counts in 64 ns, so that 54 bits hold what the clock says for 36 years."""


class PhasePage:
    """Phase, the case's place among those that are asked together, and the monotonic second at which the phase began,
    in a file that both sides map.

    All lie in one aligned word, which is stored at once: whoever reads sees one phase with its own beginning, never
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

    def write(self, phase: Phase, place: int = 0) -> None:
        """``place`` is less than :data:`MOST_PLACES`."""
        self._word[0] = (time.monotonic_ns() >> _TICK_BITS) << _BELOW | place << _PHASE_BITS | phase

    def read(self) -> tuple[Phase, float]:
        word = self._word[0]
        return Phase(word & _PHASE_MASK), (word >> _BELOW) / _TICKS_PER_S

    def place(self) -> int:
        """Whose phase it is."""
        return self._word[0] >> _PHASE_BITS & _PLACE_MASK

    def close(self) -> None:
        self._word.release()
        self._map.close()

    def __enter__(self) -> PhasePage:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

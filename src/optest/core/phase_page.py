"""A page of memory that a worker writes and its parent reads: what the worker is doing, and since when.

It survives the death of the worker, costs no message, and uses the system-wide monotonic clock.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from types import TracebackType

from optest.core.runner import Phase

__all__ = ["PhasePage"]

_LAYOUT = struct.Struct("=qd")


class PhasePage:
    """Phase and the monotonic second at which it began, in a file that both sides map."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.write_bytes(_LAYOUT.pack(Phase.IDLE, time.monotonic()))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)

    def write(self, phase: Phase) -> None:
        _LAYOUT.pack_into(self._map, 0, phase, time.monotonic())

    def read(self) -> tuple[Phase, float]:
        phase, since = _LAYOUT.unpack_from(self._map, 0)
        return Phase(phase), since

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> PhasePage:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

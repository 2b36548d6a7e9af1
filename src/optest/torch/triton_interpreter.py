"""Detect out-of-bounds loads of kernels in Triton's interpreter, also of values that a kernel does not use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from optest.spec import Fault, Reason


class Region(NamedTuple):
    """Addresses of a tensor's elements, ``first`` to ``end``, and of its memory, ``lowest`` to ``highest``."""

    name: str
    lowest: int
    first: int
    end: int
    highest: int


@contextmanager
def watched_loads(regions: Sequence[Region]) -> Iterator[None]:
    """Check within the block that loads in Triton's interpreter are within the elements of the regions.

    Regions may be added meanwhile; loads from other memory are ignored. Without the interpreter nothing is checked.

    Raises:
        Fault: READ_OUT_OF_BOUNDS at the end, for the first load outside a tensor's elements in its region.
    """
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    memory = getattr(interpreter, "_interpreter", None)
    if not callable(getattr(memory, "load", None)):
        yield
        return
    watched = _WatchedMemory(memory, regions)
    interpreter._interpreter = watched
    try:
        yield
    finally:
        interpreter._interpreter = memory
    if watched.problem:
        raise Fault(Reason.READ_OUT_OF_BOUNDS, watched.problem)


class _WatchedMemory:
    """Replacement of the interpreter's memory functions that checks loads; ``problem`` describes the first bad one."""

    def __init__(self, memory: Any, regions: Sequence[Region]) -> None:
        self._memory, self._regions = memory, regions
        self.problem = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        if not self.problem:
            addresses = np.broadcast_to(pointers, np.shape(mask))[np.asarray(mask, np.bool_)].astype(np.int64)
            if addresses.size:
                self.problem = self._problem_of(addresses, np.dtype(dtype).itemsize)
        return self._memory.load(pointers, mask, other, dtype)

    def _problem_of(self, addresses: Any, size: int) -> str:
        """Describe the loads of ``size`` bytes next to a region's elements; return "" if there are none."""
        low, high = int(addresses.min()), int(addresses.max()) + size
        if any(region.first <= low and high <= region.end for region in self._regions):
            return ""
        for region in self._regions:
            inside = addresses[(addresses >= region.lowest) & (addresses < region.highest)]
            outside = inside[(inside < region.first) | (inside + size > region.end)]
            if not outside.size:
                continue
            before = outside[outside < region.first]
            if before.size:
                offset = f"{region.first - int(before.max())} bytes before the start"
            else:
                offset = f"{int(outside.min()) - region.end} bytes behind the end"
            return f"memory was read {offset} of {region.name} ({outside.size} addresses in one load)"
        return ""

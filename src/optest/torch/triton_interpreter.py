"""What kernels load in Triton's interpreter: each address of a load is looked at, also where its value is not used."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from optest.spec import Fault, Reason


class Region(NamedTuple):
    """The addresses of a tensor's elements, ``first`` to ``end``, in memory of its own, ``lowest`` to ``highest``."""

    name: str
    lowest: int
    first: int
    end: int
    highest: int


@contextmanager
def watched_loads(regions: Sequence[Region]) -> Iterator[None]:
    """While inside, loads in the interpreter are held to the regions, which may become more; what lies in none of them
    is nobody's business here. Without the interpreter nothing is done.

    Raises:
        Fault: READ_OUT_OF_BOUNDS at the end, for the first load beside the elements of a tensor.
    """
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    memory = getattr(interpreter, "_interpreter", None)
    if not callable(getattr(memory, "load", None)):
        yield
        return
    watched = _Loads(memory, regions)
    interpreter._interpreter = watched
    try:
        yield
    finally:
        interpreter._interpreter = memory
    if watched.beyond:
        raise Fault(Reason.READ_OUT_OF_BOUNDS, watched.beyond)


class _Loads:
    """In the place of the interpreter's functions of memory."""

    def __init__(self, memory: Any, regions: Sequence[Region]) -> None:
        self._memory, self._regions = memory, regions
        self.beyond = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        if not self.beyond:
            addresses = np.broadcast_to(pointers, np.shape(mask))[np.asarray(mask, np.bool_)].astype(np.int64)
            if addresses.size:
                self._look_at(addresses, np.dtype(dtype).itemsize)
        return self._memory.load(pointers, mask, other, dtype)

    def _look_at(self, addresses: Any, size: int) -> None:
        low, high = int(addresses.min()), int(addresses.max()) + size
        if any(each.first <= low and high <= each.end for each in self._regions):
            return
        for each in self._regions:
            beside = addresses[(addresses >= each.lowest) & (addresses < each.highest)]
            beside = beside[(beside < each.first) | (beside + size > each.end)]
            if beside.size:
                before = beside[beside < each.first]
                at = int(before.max() if before.size else beside.min())
                distance, side = (
                    (each.first - at, "before the start") if before.size else (at - each.end, "behind the end")
                )
                self.beyond = (
                    f"memory was read {distance} bytes {side} of {each.name} ({beside.size} places in one load)"
                )
                return

"""Where buffers lie: aligned heap memory, or whole pages between pages that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from optest.errors import Unavailable
from optest.numerics import Array

__all__ = ["Placement", "Region", "heap_region", "page_region"]


class Placement(Enum):
    """HEAP: guard zones on both sides. PAGES_END and PAGES_START: the last or first byte touches a forbidden page."""

    HEAP = "heap"
    PAGES_END = "pages-end"
    PAGES_START = "pages-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Writeable bytes and where in them the storage begins; forbidden pages lie beyond ``memory`` if at all.

    ``address`` is that of the first byte of ``memory``, ``forbidden`` the size of each forbidden side in bytes;
    ``owner`` keeps the mapping alive.
    """

    memory: Array
    address: int
    start: int
    size: int
    forbidden: int = 0
    owner: Any = field(default=None, repr=False)

    @property
    def end(self) -> int:
        """Where in ``memory`` the storage ends."""
        return self.start + self.size


def heap_region(size: int, *, guard: int, alignment: int, pointer: int, shift: int) -> Region:
    """``size`` bytes between two guard zones of ``guard`` bytes.

    The byte ``pointer`` of the storage, the one that is handed over, lies ``shift`` bytes behind a multiple of
    ``alignment``.
    """
    whole = np.empty(size + 2 * guard + 2 * alignment, np.uint8)
    address = _address(whole)
    first = -(address + guard + pointer - shift) % alignment
    memory = whole[first : first + size + 2 * guard]
    return Region(memory=memory, address=address + first, start=guard, size=size)


def _address(array: Array) -> int:
    """``array.ctypes.data`` at a fifth of its cost."""
    return int(array.__array_interface__["data"][0])


def page_region(size: int, *, at_end: bool) -> Region:
    """``size`` bytes at the very end or start of fresh pages, with a page on each side that traps.

    Raises:
        Unavailable: where the system has no ``mprotect``.
    """
    page = mmap.PAGESIZE
    length = max(-(-size // page), 1) * page
    protect = _mprotect()
    mapping = mmap.mmap(-1, length + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(mapping, np.uint8)
    address = _address(whole)
    for forbidden in (address, address + page + length):
        if protect(forbidden, page, 0) != 0:
            raise Unavailable("--guard pages", f"mprotect failed with errno {ctypes.get_errno()}")
    memory = whole[page : page + length]
    start = length - size if at_end else 0
    return Region(memory=memory, address=address + page, start=start, size=size, forbidden=page, owner=mapping)


@cache
def _mprotect() -> Callable[[int, int, int], int]:
    if sys.platform == "win32":
        raise Unavailable("--guard pages", "it needs mprotect, which this system does not have")
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    protect: Callable[[int, int, int], int] = function
    return protect

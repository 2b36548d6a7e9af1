"""Where buffers lie: aligned heap memory, or whole pages between pages that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from optest.errors import Unavailable
from optest.numerics import Array

_HUGE_PAGES_FROM_BYTES = 1 << 22


_READ, _WRITE = 1, 2
"""PROT_READ and PROT_WRITE, the same numbers on Linux and macOS."""

_MOST_KEPT_BYTES = 1 << 28


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

    @property
    def is_protectable(self) -> bool:
        """Whether it lies on pages of its own."""
        return self.forbidden > 0

    def protect(self, *, writeable: bool) -> None:
        """Let the pages be read alone, or written again; a write into them is a SIGSEGV otherwise.

        Raises:
            Unavailable: if the system refuses.
        """
        _protect(self.address, self.memory.size, _READ | _WRITE if writeable else _READ)


def heap_region(size: int, *, guard: int, alignment: int, pointer: int, shift: int) -> Region:
    """``size`` bytes between two guard zones of ``guard`` bytes.

    The byte ``pointer`` of the storage, the one that is handed over, lies ``shift`` bytes behind a multiple of
    ``alignment``.
    """
    whole = np.empty(size + 2 * guard + 2 * alignment, np.uint8)
    address = address_of(whole)
    first = -(address + guard + pointer - shift) % alignment
    memory = whole[first : first + size + 2 * guard]
    return Region(memory=memory, address=address + first, start=guard, size=size)


def address_of(array: Array) -> int:
    """Return ``array.ctypes.data``, at a fifth of its cost."""
    return int(array.__array_interface__["data"][0])


def page_region(size: int, *, at_end: bool, alignment: int = 1) -> Region:
    """``size`` bytes at the very end or start of fresh pages, with a page on each side that traps.

    At the end they begin at a multiple of ``alignment`` bytes, a power of two no larger than a page.

    Raises:
        Unavailable: where the system has no ``mprotect``.
    """
    page = mmap.PAGESIZE
    length = max(-(-size // page), 1) * page
    _mprotect()  # raises before anything is mapped
    mapping = _used_mappings.take(length) or mmap.mmap(
        -1, length + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    if length >= _HUGE_PAGES_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        # Touching 64 MB for the first time costs 16,000 page faults otherwise, more than a kernel that adds them.
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(mapping, np.uint8)
    address = address_of(whole)
    if length >= _HUGE_PAGES_FROM_BYTES:
        _used_mappings.keep_when_gone(whole, mapping, length)
        _protect(address + page, length, _READ | _WRITE)
    for forbidden in (address, address + page + length):
        _protect(forbidden, page, 0)
    memory = whole[page : page + length]
    start = (length - size) & -alignment if at_end else 0
    return Region(memory=memory, address=address + page, start=start, size=size, forbidden=page, owner=mapping)


class _UsedMappings:
    """Large mappings that nobody looks at any more: their pages are there already, which half of filling them costs."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}
        self._bytes = 0

    def take(self, length: int) -> mmap.mmap | None:
        """One of ``length`` bytes between two pages, whatever they hold."""
        waiting = self._free.get(length)
        if not waiting:
            return None
        self._bytes -= length
        return waiting.pop()

    def keep_when_gone(self, whole: Array, mapping: mmap.mmap, length: int) -> None:
        """Have it back when ``whole`` and all views of it are gone."""
        weakref.finalize(whole, self._keep, mapping, length).atexit = False

    def _keep(self, mapping: mmap.mmap, length: int) -> None:
        if self._bytes + length > _MOST_KEPT_BYTES:
            self._free.clear()
            self._bytes = 0
        if length <= _MOST_KEPT_BYTES:
            self._free.setdefault(length, []).append(mapping)
            self._bytes += length


_used_mappings = _UsedMappings()


def _protect(address: int, size: int, access: int) -> None:
    if _mprotect()(address, size, access) != 0:
        raise Unavailable("--guard pages", f"mprotect failed with errno {ctypes.get_errno()}")


@cache
def _mprotect() -> Callable[[int, int, int], int]:
    if sys.platform == "win32":
        raise Unavailable("--guard pages", "it needs mprotect, which this system does not have")
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    protect: Callable[[int, int, int], int] = function
    return protect

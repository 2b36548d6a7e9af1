"""Memory regions for buffers: aligned heap memory, or whole pages between forbidden pages."""

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


# PROT_READ and PROT_WRITE, the same numbers on Linux and macOS.
_READ, _WRITE = 1, 2

_MOST_KEPT_BYTES = 1 << 28


class Placement(Enum):
    """Placement of a buffer: between guard zones (HEAP), or with its end or start next to a forbidden page."""

    HEAP = "heap"
    PAGES_END = "pages-end"
    PAGES_START = "pages-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Writeable bytes that contain a storage of ``size`` bytes from ``start`` on.

    ``address`` is that of the first byte of ``memory``; ``forbidden`` is the size in bytes of the forbidden pages on
    each side of ``memory``, 0 on the heap; ``owner`` keeps the mapping alive.
    """

    memory: Array
    address: int
    start: int
    size: int
    forbidden: int = 0
    owner: Any = field(default=None, repr=False)

    @property
    def end(self) -> int:
        """Index in ``memory`` of the byte after the storage."""
        return self.start + self.size

    @property
    def is_protectable(self) -> bool:
        """True if the region consists of whole pages, which :meth:`protect` needs."""
        return self.forbidden > 0

    def protect(self, *, writeable: bool) -> None:
        """Make the pages read-only, so that a write is a SIGSEGV, or writeable again.

        Raises:
            Unavailable: if the system refuses.
        """
        _protect(self.address, self.memory.size, _READ | _WRITE if writeable else _READ)


def heap_region(size: int, *, guard: int, alignment: int, pointer: int, shift: int) -> Region:
    """Allocate ``size`` bytes between two guard zones of ``guard`` bytes.

    The byte ``pointer`` of the storage is ``shift`` bytes behind a multiple of ``alignment``.
    """
    block = np.empty(size + 2 * guard + 2 * alignment, np.uint8)
    address = address_of(block)
    first = -(address + guard + pointer - shift) % alignment
    memory = block[first : first + size + 2 * guard]
    return Region(memory=memory, address=address + first, start=guard, size=size)


def address_of(array: Array) -> int:
    """Return the address of the array's data."""
    # A fifth of the time of `array.ctypes.data`.
    return int(array.__array_interface__["data"][0])


def page_region(size: int, *, at_end: bool, alignment: int = 1) -> Region:
    """Map pages for ``size`` bytes, at their end or start, with a forbidden page on each side.

    At the end the bytes begin at a multiple of ``alignment``, a power of two no larger than a page. A large mapping may
    be a used one, with old content.

    Raises:
        Unavailable: if the system has no ``mprotect``.
    """
    page = mmap.PAGESIZE
    length = max(-(-size // page), 1) * page
    # raises before anything is mapped
    _mprotect()
    mapping = _used_mappings.take(length) or mmap.mmap(
        -1, length + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    if length >= _HUGE_PAGES_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        # With small pages the first access to 64 MB costs 16,000 page faults, more than a kernel that adds the numbers.
        # Linux without huge pages raises OSError.
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(mapping, np.uint8)
    address = address_of(block)
    if length >= _HUGE_PAGES_FROM_BYTES:
        _used_mappings.keep_when_gone(block, mapping, length)
        # a used mapping may be read-only
        _protect(address + page, length, _READ | _WRITE)
    for forbidden in (address, address + page + length):
        _protect(forbidden, page, 0)
    memory = block[page : page + length]
    start = (length - size) & -alignment if at_end else 0
    return Region(memory=memory, address=address + page, start=start, size=size, forbidden=page, owner=mapping)


class _UsedMappings:
    """Pool of released large mappings, at most 256 MiB."""

    # Their pages are mapped already, which is half of the time to fill new ones.

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}
        self._bytes = 0

    def take(self, length: int) -> mmap.mmap | None:
        """Remove and return a mapping of ``length`` bytes and two pages, or None if the pool has none."""
        mappings = self._free.get(length)
        if not mappings:
            return None
        self._bytes -= length
        return mappings.pop()

    def keep_when_gone(self, array: Array, mapping: mmap.mmap, length: int) -> None:
        """Add ``mapping`` to the pool when ``array`` and all views of it are freed."""
        weakref.finalize(array, self._keep, mapping, length).atexit = False

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
    """Return libc's mprotect; raise Unavailable on Windows."""
    if sys.platform == "win32":
        raise Unavailable("--guard pages", "this system has no mprotect; use --guard heap")
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    protect: Callable[[int, int, int], int] = function
    return protect

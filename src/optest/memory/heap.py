"""Size of the allocated C heap, from glibc's ``mallinfo2`` (all arenas and large blocks) or a sanitizer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from optest.memory.glibc import has_glibc_malloc
from optest.settings import environment

_BLOCKS_KEPT = 7
_TUNABLE = "glibc.malloc.tcache_count"
# Largest accepted number of free blocks per size that count as allocated: among more of them a leak is not visible.
_MOST_KEPT = 255


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int | None:
    """Return the bytes that ``malloc`` has allocated in this process, or None if they are unknown or inconclusive.

    They are inconclusive if Python allocates its objects by malloc, or hundreds of free blocks count as allocated.
    """
    count = _counter()
    return None if count is None else count()


@cache
def blocks_kept() -> int:
    """Return how many free blocks per size glibc caches for a thread; they count as allocated.

    It is the value in GLIBC_TUNABLES, else 7.
    """
    count = _BLOCKS_KEPT
    for tunable in environment().get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = tunable.partition("=")
        if name == _TUNABLE and value.isascii() and value.isdecimal():
            count = int(value)
    return count


@cache
def _counter() -> Callable[[], int] | None:
    """Return a function that returns the allocated bytes, or None if there is no reliable one."""
    if environment().get("PYTHONMALLOC", "").startswith("malloc"):
        return None
    process = ctypes.CDLL(None)
    sanitized = getattr(process, "__sanitizer_get_current_allocated_bytes", None)
    # A sanitizer replaces glibc's malloc.
    if sanitized is not None:
        sanitized.restype = ctypes.c_size_t
        return lambda: int(sanitized())
    mallinfo2 = getattr(process, "mallinfo2", None)
    if mallinfo2 is None or not has_glibc_malloc() or blocks_kept() > _MOST_KEPT:
        return None
    mallinfo2.restype = _MallInfo

    def allocated_bytes() -> int:
        info = mallinfo2()
        return int(info.uordblks + info.hblkhd)

    return allocated_bytes

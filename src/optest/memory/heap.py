"""How much of the C heap is taken: glibc's ``mallinfo2``, which counts what every arena has handed out, large blocks
included, or what a sanitizer counts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from optest.memory.glibc import has_glibc_malloc
from optest.settings import environment

_BLOCKS_KEPT = 7
_TUNABLE = "glibc.malloc.tcache_count"
_MOST_KEPT = 255
"""Free blocks of a size that may count as used: among more of them no leak shows in any time."""


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int | None:
    """Bytes that ``malloc`` has handed out in all of the process; None where that is not known, where Python takes its
    own objects from there, which come and go with every call, or where hundreds of free blocks count as used."""
    count = _counter()
    return None if count is None else count()


@cache
def blocks_kept() -> int:
    """How many free blocks of a size glibc's malloc keeps for a thread, which count as used: what GLIBC_TUNABLES
    states."""
    found = _BLOCKS_KEPT
    for each in environment().get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = each.partition("=")
        if name == _TUNABLE and value.isascii() and value.isdecimal():
            found = int(value)
    return found


@cache
def _counter() -> Callable[[], int] | None:
    if environment().get("PYTHONMALLOC", "").startswith("malloc"):
        return None
    process = ctypes.CDLL(None)
    sanitized = getattr(process, "__sanitizer_get_current_allocated_bytes", None)
    if sanitized is not None:  # its malloc has taken the place of glibc's
        sanitized.restype = ctypes.c_size_t
        return lambda: int(sanitized())
    mallinfo2 = getattr(process, "mallinfo2", None)
    if mallinfo2 is None or not has_glibc_malloc() or blocks_kept() > _MOST_KEPT:
        return None
    mallinfo2.restype = _MallInfo

    def of_glibc() -> int:
        info = mallinfo2()
        return int(info.uordblks + info.hblkhd)

    return of_glibc

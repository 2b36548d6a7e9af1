"""Whether this process's malloc is glibc's, whose inner workings are known; a sanitizer's or a preloaded one is not.

And how many free blocks it keeps for a thread."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from optest.settings import environment

__all__ = ["blocks_kept", "has_glibc_malloc"]

_BLOCKS_KEPT = 7
_TUNABLE = "glibc.malloc.tcache_count"


@cache
def has_glibc_malloc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        glibc = ctypes.CDLL("libc.so.6")
    except OSError:
        return False
    process = ctypes.CDLL(None)
    is_sanitized = hasattr(process, "__sanitizer_get_current_allocated_bytes")
    return hasattr(glibc, "gnu_get_libc_version") and not is_sanitized and _measure(process) == _measure(glibc)


def _measure(library: ctypes.CDLL) -> int | None:
    """Where malloc_usable_size lies, which whoever replaces malloc replaces too. Malloc's own address tells nothing: in
    a program that is not position-independent, as Debian's Python, it is that of a stub in the program."""
    return ctypes.cast(library.malloc_usable_size, ctypes.c_void_p).value


@cache
def blocks_kept() -> int:
    """How many free blocks of a size malloc keeps for a thread, which count as used: what GLIBC_TUNABLES states."""
    found = _BLOCKS_KEPT
    for each in environment().get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = each.partition("=")
        if name == _TUNABLE and value.isascii() and value.isdecimal():
            found = int(value)
    return found

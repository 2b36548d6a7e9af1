"""Whether this process's malloc is glibc's, whose inner workings are known; a sanitizer's or a preloaded one is not."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

__all__ = ["has_glibc_malloc"]


@cache
def has_glibc_malloc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        glibc = ctypes.CDLL("libc.so.6")
    except OSError:
        return False
    return hasattr(glibc, "gnu_get_libc_version") and _address_of_malloc(ctypes.CDLL(None)) == _address_of_malloc(glibc)


def _address_of_malloc(library: ctypes.CDLL) -> int | None:
    return ctypes.cast(library.malloc, ctypes.c_void_p).value

"""Whether this process's malloc is glibc's, whose inner workings are known; a sanitizer's or a preloaded one is not."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


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

"""Detection of glibc's malloc, whose internals optest relies on; a sanitizer or a preloaded library may replace it."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


@cache
def has_glibc_malloc() -> bool:
    """Return whether ``malloc`` of this process is glibc's, not that of a sanitizer or a preloaded library."""
    if sys.platform != "linux":
        return False
    try:
        glibc = ctypes.CDLL("libc.so.6")
    except OSError:
        return False
    process = ctypes.CDLL(None)
    is_sanitized = hasattr(process, "__sanitizer_get_current_allocated_bytes")
    return (
        hasattr(glibc, "gnu_get_libc_version") and not is_sanitized and _probe_address(process) == _probe_address(glibc)
    )


def _probe_address(library: ctypes.CDLL) -> int | None:
    """Return the address of malloc_usable_size, which every replacement of malloc replaces, too."""
    # The address of malloc itself is no evidence: in a program that is not position-independent, such as Debian's
    # Python, it is that of a stub in the program.
    return ctypes.cast(library.malloc_usable_size, ctypes.c_void_p).value

"""What fresh and freed heap memory holds: bytes of our choice, so that a result that depends on them shows it.

glibc has ``M_PERTURB`` for this (mallopt(3)), which does not reach the small blocks that each thread keeps for itself
(glibc 2.26 and later). Those are taken, written and freed again, a few of each size; both are this thread's alone.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

__all__ = ["HeapGarbage"]

_M_PERTURB = -6
_SIZES = (*range(24, 264, 16), *range(24, 264, 16), *range(264, 1033, 16))
"""Usable sizes of the blocks that a thread keeps: several of the small ones, of which descriptors are made."""


class HeapGarbage:
    """Says what blocks of malloc hold that nobody has written yet, and those that were freed."""

    @staticmethod
    def is_possible() -> bool:
        return _malloc() is not None

    @staticmethod
    def scribble(byte: int) -> None:
        """From now on it is ``byte``, also in the blocks that are free already."""
        functions = _malloc()
        if functions is None:
            return
        mallopt, take, copy, write, free = functions
        mallopt(_M_PERTURB, byte ^ 0xFF or 1)  # fresh blocks get the complement; 0 would end it
        if byte:  # a copy of a text takes and writes in one call
            for block in [copy(text) for text in _texts(byte)]:
                free(block)
            return
        for block, size in [(take(size), size) for size in _SIZES]:
            write(block, byte, size)
            free(block)

    @staticmethod
    def end() -> None:
        """Fresh blocks hold what they hold again."""
        functions = _malloc()
        if functions is not None:
            functions[0](_M_PERTURB, 0)


@cache
def _texts(byte: int) -> tuple[ctypes.c_char_p, ...]:
    """One that fills each block up to its last byte, the end of the text."""
    return tuple(ctypes.c_char_p(bytes([byte]) * (size - 1)) for size in _SIZES)


@cache
def _malloc() -> tuple[Any, Any, Any, Any, Any] | None:
    """mallopt, malloc, strdup, memset and free of glibc; None under another malloc, a sanitizer's among them."""
    if sys.platform != "linux":
        return None
    process = ctypes.PyDLL(None)
    if not hasattr(process, "gnu_get_libc_version") or hasattr(process, "__sanitizer_get_current_allocated_bytes"):
        return None
    mallopt, take, copy = process.mallopt, process.malloc, process.strdup
    write, free = process.memset, process.free
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    take.argtypes, take.restype = (ctypes.c_size_t,), ctypes.c_void_p
    copy.argtypes, copy.restype = (ctypes.c_char_p,), ctypes.c_void_p
    write.argtypes, write.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), None
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    return mallopt, take, copy, write, free

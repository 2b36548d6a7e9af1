"""The processor's floating-point control words, as C code left them: rounding, subnormals, traps, x87 precision.

Layout of fenv_t: glibc and musl on x86-64 (fnstenv, 28 bytes, then MXCSR) and on aarch64 (FPCR, FPSR).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
from functools import cache
from typing import Any

__all__ = ["FloatControl"]

_SIZE = 64
_FLAGS = 0x3F
"""Bits of MXCSR that operations set; the others are the caller's."""
_ROUNDING, _FLUSH, _DENORMALS_ARE_ZERO, _MASKS = 0x6000, 0x8000, 0x40, 0x1F80
_ROUNDINGS = ("to nearest", "downward", "upward", "toward zero")


class FloatControl:
    """What the control words are now, to be compared with what they are later."""

    __slots__ = ("_environment", "_scratch", "_words")

    def __init__(self) -> None:
        """Read them; on another processor nothing is known, and nothing ever differs."""
        self._environment = (ctypes.c_char * _SIZE)()
        self._scratch = (ctypes.c_char * _SIZE)()
        self._words = _read(self._environment)

    @staticmethod
    def is_possible() -> bool:
        return _get_and_set()[0] is not None

    def changed(self) -> str:
        """What is not as it was, in words, and put back; empty if nothing is."""
        now = _read(self._scratch)
        if now == self._words:
            return ""
        _get_and_set()[1](self._environment)
        return _told(self._words, now)


def _read(environment: Any) -> tuple[int, ...]:
    get = _get_and_set()[0]
    if get is None:
        return ()
    get(environment)
    return _words_of(environment.raw)


def _of_x86(held: bytes) -> tuple[int, ...]:
    return (held[0] | held[1] << 8, held[28] & ~_FLAGS | held[29] << 8 | held[30] << 16)


def _of_aarch64(held: bytes) -> tuple[int, ...]:
    return (int.from_bytes(held[:4], "little"),)


def _told(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """The difference in words, then in numbers."""
    numbers = " ".join(
        f"{was:#x} became {is_now:#x}" for was, is_now in zip(before, after, strict=True) if was != is_now
    )
    if not _IS_X86 or before[1] == after[1]:
        return f"another floating-point control word ({numbers})"
    found = []
    changed = before[1] ^ after[1]
    if changed & _ROUNDING:
        found.append(f"rounding {_ROUNDINGS[(after[1] & _ROUNDING) >> 13]}")
    if changed & _FLUSH:
        found.append("flush-to-zero" if after[1] & _FLUSH else "no flush-to-zero")
    if changed & _DENORMALS_ARE_ZERO:
        found.append("denormals-are-zero" if after[1] & _DENORMALS_ARE_ZERO else "no denormals-are-zero")
    if changed & _MASKS:
        found.append("floating-point traps")
    return f"{' and '.join(found)} ({numbers})"


_IS_X86 = platform.machine() == "x86_64"
_words_of = _of_x86 if _IS_X86 else _of_aarch64


@cache
def _get_and_set() -> tuple[Any, Any]:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None, None
    found = ctypes.util.find_library("m")
    library = ctypes.CDLL(found)
    return library.fegetenv, library.fesetenv

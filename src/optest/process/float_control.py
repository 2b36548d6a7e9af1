"""The processor's floating-point control words (rounding, subnormals, traps, x87 precision), which C code can change.

Layout of fenv_t: glibc and musl on x86-64 (fnstenv, 28 bytes, then MXCSR) and on aarch64 (FPCR, FPSR).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
from functools import cache
from typing import Any

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
        numbers = " ".join(
            f"{was:#x} became {is_now:#x}" for was, is_now in zip(self._words, now, strict=True) if was != is_now
        )
        if not _IS_X86 or self._words[1] == now[1]:
            return f"another floating-point control word ({numbers})"
        changed, control = self._words[1] ^ now[1], now[1]
        words = {
            _ROUNDING: f"rounding {_ROUNDINGS[(control & _ROUNDING) >> 13]}",
            _FLUSH: "flush-to-zero" if control & _FLUSH else "no flush-to-zero",
            _DENORMALS_ARE_ZERO: "denormals-are-zero" if control & _DENORMALS_ARE_ZERO else "no denormals-are-zero",
            _MASKS: "floating-point traps",
        }
        return f"{' and '.join(word for mask, word in words.items() if changed & mask)} ({numbers})"


def _read(environment: Any) -> tuple[int, ...]:
    get = _get_and_set()[0]
    if get is None:
        return ()
    get(environment)
    held: bytes = environment.raw
    if not _IS_X86:
        return (int.from_bytes(held[:4], "little"),)
    return int.from_bytes(held[:2], "little"), int.from_bytes(held[28:31], "little") & ~_FLAGS


_IS_X86 = platform.machine() == "x86_64"


@cache
def _get_and_set() -> tuple[Any, Any]:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None, None
    found = ctypes.util.find_library("m")
    library = ctypes.CDLL(found)
    return library.fegetenv, library.fesetenv

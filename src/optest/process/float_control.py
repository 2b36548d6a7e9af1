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
# Bits of MXCSR that operations set; the others are the caller's.
_FLAGS = 0x3F
_ROUNDING, _FLUSH, _DENORMALS_ARE_ZERO, _MASKS = 0x6000, 0x8000, 0x40, 0x1F80
_ROUNDINGS = ("to nearest", "downward", "upward", "toward zero")


class FloatControl:
    """Snapshot of the control words, to compare and restore later."""

    __slots__ = ("_environment", "_scratch", "_words")

    def __init__(self) -> None:
        # On other processors `_read` returns (), which never differs.
        self._environment = (ctypes.c_char * _SIZE)()
        self._scratch = (ctypes.c_char * _SIZE)()
        self._words = _read(self._environment)

    @staticmethod
    def is_possible() -> bool:
        """Return whether the control words can be read on this system and processor."""
        return _get_and_set()[0] is not None

    def changed(self) -> str:
        """Describe the differences from the snapshot and restore it; return "" if there are none."""
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
    """Store the floating-point environment in ``environment`` and return its control words: x87 and MXCSR, or FPCR."""
    get = _get_and_set()[0]
    if get is None:
        return ()
    get(environment)
    raw: bytes = environment.raw
    if not _IS_X86:
        return (int.from_bytes(raw[:4], "little"),)
    return int.from_bytes(raw[:2], "little"), int.from_bytes(raw[28:31], "little") & ~_FLAGS


_IS_X86 = platform.machine() == "x86_64"


@cache
def _get_and_set() -> tuple[Any, Any]:
    """Return fegetenv and fesetenv, or (None, None) if the layout of fenv_t is unknown here."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None, None
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    return library.fegetenv, library.fesetenv

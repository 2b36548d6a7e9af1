"""The processor's floating-point mode: rounding to nearest, subnormals kept; foreign libraries change it and leave it.

A shared library that was linked with ``-ffast-math`` flushes subnormals from the moment it is loaded, in the whole
thread: references and comparisons would be computed in that mode too.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from functools import cache
from typing import Any

__all__ = ["reset_float_mode"]

_ONE = 1.0
_BELOW_HALF_ULP = 2.0**-55
_SMALLEST_NORMAL = 2.0**-1022
_SUBNORMAL = 2.0**-1030
_LARGE = 2.0**100
_DEFAULT_ENVIRONMENT = -1
"""FE_DFL_ENV of glibc and musl: the mode at program start."""


def _changed() -> str:
    """What is not as it was at program start, in words; empty if all is. Computed, so it costs no system call."""
    if _ONE + _BELOW_HALF_ULP != _ONE or _ONE - _BELOW_HALF_ULP != _ONE:
        return "another rounding mode"
    if _SMALLEST_NORMAL * 0.5 == 0.0 or _SUBNORMAL * _LARGE == 0.0:
        return "flush-to-zero"
    return ""


@cache
def _libm() -> Any:
    return ctypes.CDLL(ctypes.util.find_library("m"))


def reset_float_mode() -> str:
    """Put the mode back; returns what had been changed, in words, empty if nothing was.

    A second call tells whether it worked: it does on Linux, with glibc and musl.
    """
    changed = _changed()
    if changed and sys.platform == "linux":
        _libm().fesetenv(ctypes.c_void_p(_DEFAULT_ENVIRONMENT))
    return changed

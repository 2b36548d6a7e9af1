"""NumPy's error mode and the processor's floating-point mode, which foreign code changes and leaves so.

NumPy's (``np.seterr``) is kept around foreign code and silenced around our own, at a tenth of the cost of
``np.errstate``, which builds a new mode from keywords each time. The processor's rounds to nearest and keeps
subnormals; a shared library that was linked with ``-ffast-math`` flushes them from the moment it is loaded, in the
whole thread: references and comparisons would be computed in that mode too.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any

import numpy as np


def _access() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """What reads the mode as one object, and what sets it: a context variable since NumPy 2, two functions before.

    Neither is public; where both are missing, the public functions do the same with a mapping.
    """
    with suppress(ImportError, AttributeError):
        from numpy._core.umath import _extobj_contextvar as mode

        return mode.get, mode.set
    numpy: Any = np
    if hasattr(numpy, "geterrobj"):
        return numpy.geterrobj, numpy.seterrobj
    return np.geterr, lambda mode: np.seterr(**mode)


error_state, set_error_state = _access()


with np.errstate(all="ignore"):
    _QUIET = error_state()


class ErrorStateKept:
    """While inside, the mode may be changed; afterwards it is what it was."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = error_state()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if error_state() is not self._before:
            set_error_state(self._before)


class Quiet:
    """While inside, overflow, 0/0 and the like raise no warnings; afterwards the mode is what it was."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = error_state()
        set_error_state(_QUIET)

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        set_error_state(self._before)


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

"""NumPy's error mode (``np.seterr``) and the processor's floating-point mode, both of which foreign code may change."""

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


def _error_state_functions() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """Return NumPy's getter and setter of the whole error mode: private ones if it has them, else the public ones."""
    # np.errstate builds a mode from keywords at every entry, which takes ten times as long as to set a stored one.
    with suppress(ImportError, AttributeError):
        # Since NumPy 2.
        from numpy._core.umath import _extobj_contextvar as mode

        return mode.get, mode.set
    # Before NumPy 2.
    numpy: Any = np
    if hasattr(numpy, "geterrobj"):
        return numpy.geterrobj, numpy.seterrobj
    return np.geterr, lambda mode: np.seterr(**mode)


error_state, set_error_state = _error_state_functions()

with np.errstate(all="ignore"):
    _QUIET = error_state()


class ErrorStateKept:
    """Context manager that restores NumPy's error mode when the block ends: foreign code may change it."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = error_state()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if error_state() is not self._before:
            set_error_state(self._before)


class Quiet:
    """Context manager that silences NumPy's floating-point warnings and errors, then restores the error mode."""

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
# FE_DFL_ENV of glibc and musl: the mode at program start.
_DEFAULT_ENVIRONMENT = -1


def _changed_mode() -> str:
    """Return "another rounding mode" or "flush-to-zero" if the processor computes so, else an empty string."""
    # The operands are module globals because the compiler folds expressions of literals. No system call is needed.
    if _ONE + _BELOW_HALF_ULP != _ONE or _ONE - _BELOW_HALF_ULP != _ONE:
        return "another rounding mode"
    if _SMALLEST_NORMAL * 0.5 == 0.0 or _SUBNORMAL * _LARGE == 0.0:
        return "flush-to-zero"
    return ""


@cache
def _libm() -> Any:
    return ctypes.CDLL(ctypes.util.find_library("m"))


def reset_float_mode() -> str:
    """Restore the processor's floating-point mode on Linux; describe the changes, "" without any.

    A second call returns "" if the first one succeeded. Elsewhere than on Linux the mode stays as it is.
    """
    # A shared library linked with -ffast-math flushes subnormals in the whole thread as soon as it is loaded:
    # references and comparisons would be computed in that mode, too.
    changed = _changed_mode()
    if changed and sys.platform == "linux":
        _libm().fesetenv(ctypes.c_void_p(_DEFAULT_ENVIRONMENT))
    return changed

"""NumPy's error mode (``np.seterr``): kept around foreign code and silenced around our own, at a tenth of the cost.

``np.errstate`` builds a new mode from keywords each time. Here the mode as a whole is read, and put back if it is
another one afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["ErrorStateKept", "Quiet", "error_state", "set_error_state"]


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


def _quiet_state() -> Any:
    with np.errstate(all="ignore"):
        return error_state()


_QUIET = _quiet_state()


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

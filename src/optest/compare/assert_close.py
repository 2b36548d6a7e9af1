"""The tolerances of ``torch.testing.assert_close`` by dtype, as its documentation states them."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.compare.zeros import zeros_are_within
from optest.numerics import widen
from optest.spec import DType

__all__ = ["close_tolerance", "fitting_tolerance"]

_HALF, _SINGLE, _DOUBLE = (1e-3, 1e-5), (1.3e-6, 1e-5), (1e-7, 1e-7)
_BY_DTYPE = {
    "float16": _HALF,
    "bfloat16": (1.6e-2, 1e-5),
    "float32": _SINGLE,
    "float64": _DOUBLE,
    "complex32": _HALF,
    "complex64": _SINGLE,
    "complex128": _DOUBLE,
}


def close_tolerance(output: DType) -> tuple[float, float] | None:
    """rtol and atol for an output of this dtype, None where torch states none (float8)."""
    return _BY_DTYPE.get(output.name)


def fitting_tolerance(output: DType, expected: Any) -> tuple[float, float] | None:
    """The same for an output that is expected to be so: where atol would let zeros pass, atol is rtol of the largest.

    torch's atol is made for numbers around 1. A result that is all smaller than it would not be looked at.
    """
    found = close_tolerance(output)
    if found is None or expected is None or not zeros_are_within(np.asarray(expected), *found):
        return found
    magnitude = np.abs(widen(np.asarray(expected)))
    largest = float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))
    return found[0], found[0] * largest

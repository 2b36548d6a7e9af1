"""The tolerances of ``torch.testing.assert_close`` by dtype, as its documentation states them."""

from __future__ import annotations

from optest.spec import DType

__all__ = ["close_tolerance"]

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

"""Python numbers as operands: torch rounds them to the dtype that it computes in, which is part of what it promises.

``x * 1.702`` with x of float32 is x times the float32 that is nearest to 1.702, and for 16-bit x, too, torch computes
in float32. A reference in float64 that took 1.702 itself would find the right answer wrong by more than a rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.numerics import dtype_of
from optest.spec.calls import Call
from optest.torch.calls.calling import TorchCall

__all__ = ["with_rounded_scalars"]

_ARITHMETIC = ("add", "addcdiv", "addcmul", "div", "floor_divide", "fmod", "lerp", "mul", "pow", "remainder", "sub")


def with_rounded_scalars(call: TorchCall, inputs: Sequence[Any]) -> TorchCall:
    """The call with numbers in float32, if that is what its tensors make torch compute in."""
    if not any(isinstance(value, (float, complex)) for value in call.call.values()):
        return call
    if call.call.operator not in _ARITHMETIC or not _computes_in_float32(inputs):
        return call
    args, kwargs = call.call.mapped(_rounded)
    return dataclasses.replace(call, call=Call(call.call.function, tuple(args), kwargs))


def _computes_in_float32(inputs: Sequence[Any]) -> bool:
    floating = [each for each in (dtype_of(array.dtype) for array in inputs) if each.is_inexact]
    return bool(floating) and all(each.name in _FLOAT32 for each in floating)


_FLOAT32 = ("float32", "float16", "bfloat16", "complex64")


def _rounded(value: Any) -> Any:
    if type(value) is complex:
        return complex(_rounded(value.real), _rounded(value.imag))
    if type(value) is not float:
        return value
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if np.isfinite(rounded) else value

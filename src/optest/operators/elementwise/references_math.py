"""Functions of one real number, with bits to spare, and those that change a sign or drop a fraction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import Array, Attributes, Inputs, converted, quiet, widen
from optest.operators.real_functions import erf, evaluated, spacious, spared
from optest.operators.shapes import as_float

__all__ = [
    "abs_reference",
    "ceil_reference",
    "cos_reference",
    "erf_reference",
    "exp_reference",
    "expm1_reference",
    "floor_reference",
    "log1p_reference",
    "log_reference",
    "neg_reference",
    "reciprocal_reference",
    "round_reference",
    "rsqrt_reference",
    "sign_reference",
    "sin_reference",
    "sqrt_reference",
    "tanh_reference",
    "trunc_reference",
]

Reference = Callable[[Inputs, Attributes], tuple[Array, ...]]


def _real(function: Callable[[Array], Any]) -> Reference:
    """A function of real numbers; integers and bool are read as float32."""

    @quiet
    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        array = np.asarray(inputs[0])
        return (evaluated(function, converted(array, as_float(dtype_of(array.dtype))), array),)

    return reference


exp_reference = _real(np.exp)
expm1_reference = _real(np.expm1)
log_reference = _real(np.log)
log1p_reference = _real(np.log1p)
sqrt_reference = _real(np.sqrt)
rsqrt_reference = _real(lambda x: 1 / np.sqrt(x))
reciprocal_reference = _real(lambda x: 1 / x)
sin_reference = _real(np.sin)
cos_reference = _real(np.cos)
tanh_reference = _real(np.tanh)
erf_reference = _real(erf)


def _number(function: Callable[[Array], Any]) -> Reference:
    """A function that rounds nothing: integers stay integers."""

    @quiet
    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        values = widen(np.asarray(inputs[0]))
        return (np.asarray(function(values)).astype(values.dtype, copy=False),)

    return reference


def _sign(values: Array) -> Array:
    """-1, 0 or 1; 0 for NaN, as in torch."""
    if values.dtype.kind == "b":
        return values
    return np.asarray((values > 0).astype(np.int8) - (values < 0).astype(np.int8))


def _whole(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    return lambda values: function(values) if values.dtype.kind == "f" else values


neg_reference = _number(np.negative)
abs_reference = _number(np.abs)
sign_reference = _number(_sign)
floor_reference = _number(_whole(np.floor))
ceil_reference = _number(_whole(np.ceil))
trunc_reference = _number(_whole(np.trunc))


@quiet
def round_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The nearest number with so many decimals, of two equally near ones the even; negative decimals count tens."""
    array = np.asarray(inputs[0])
    values, decimals = widen(array), attributes.get("decimals", 0)
    if values.dtype.kind != "f":
        return (values,)
    if not decimals:
        return (np.asarray(np.rint(values)),)
    wide = spacious(values, array)
    ten = wide.dtype.type(10) ** abs(decimals)
    return (spared(np.rint(wide * ten) / ten if decimals > 0 else np.rint(wide / ten) * ten),)

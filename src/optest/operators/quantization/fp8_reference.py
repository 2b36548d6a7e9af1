"""What float8 in blocks is, what it may lose, and what is as right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.numerics import round_to
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, quiet_hooks
from optest.operators.budgets import terms_of_products
from optest.operators.quantization.fp8 import infer_fp8_block_scaled_matmul, infer_per_token_group_quant_fp8
from optest.spec import ErrorBudget, Fault, Reason, Terms, dtype

_LARGEST = 448.0
_FLOAT8 = dtype("float8_e4m3fn")
_REACH = 4.0 * 2.0**-24
"""A quotient of 2.5 ulp, on either side."""


def per_token_group_quant_fp8_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Raises:
    Fault: BAD_CASE for NaN and infinity, of which no scale is defined.
    """
    (x,), _ = inferred(infer_per_token_group_quant_fp8, inputs, attributes)
    if not np.isfinite(as_float64(x)).all():
        raise Fault(Reason.BAD_CASE, "input is NaN or infinite, of which no scale is defined; choose another fill")
    scale = _scales(x, attributes)
    return _divided(x, scale, attributes), scale


def _scales(x: Array, attributes: Attributes, off: float = 0.0) -> Array:
    """Of each group; by a quotient that is off by so much of itself."""
    size = attributes["group_size"]
    magnitudes = np.abs(as_float64(x))
    starts = np.arange(0, x.shape[-1], size)
    largest = np.maximum.reduceat(magnitudes, starts, axis=-1) if x.size else np.zeros((*x.shape[:-1], len(starts)))
    scale = np.maximum(largest, attributes["eps"]) / _LARGEST * (1.0 + off)
    return np.asarray(np.exp2(np.ceil(np.log2(scale))) if attributes.get("use_ue8m0") else scale)


def _divided(x: Array, scale: Array, attributes: Attributes) -> Array:
    of_each = np.repeat(scale, attributes["group_size"], -1)[..., : x.shape[-1]]
    return np.asarray(np.clip(as_float64(x) / of_each, -_LARGEST, _LARGEST))


def per_token_group_quant_fp8_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The scale is a quotient, 5·|scale| for 2.5 ulp; out takes that, and the inverse of the scale and its product, 6
    more. A scale that is a power of two loses nothing, and neither do its quotients."""
    out, scale = per_token_group_quant_fp8_reference(inputs, attributes)
    if attributes.get("use_ue8m0"):
        return ErrorBudget(np.zeros(out.shape)), ErrorBudget(np.zeros(scale.shape))
    return ErrorBudget(11.0 * np.abs(out)), ErrorBudget(5.0 * np.abs(scale))


def per_token_group_quant_fp8_alternatives(
    inputs: Inputs, attributes: Attributes, actual: Sequence[Any]
) -> Sequence[Any]:
    """Of powers of two the one that a quotient rounds up to that is off by 4 u, and out by that scale."""
    if not attributes.get("use_ue8m0"):
        return None, None
    x, scale = np.asarray(inputs[0]), as_float64(actual[1])
    is_right = np.logical_or(*(scale == _scales(x, attributes, off) for off in (-_REACH, _REACH)))
    own = round_to(_divided(x, np.where(is_right, scale, 1.0), attributes), _FLOAT8)
    of_each = np.repeat(is_right, attributes["group_size"], -1)[..., : x.shape[-1]]
    return of_each & (as_float64(actual[0]) == as_float64(own)), is_right


def fp8_block_scaled_matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    a, b = _scaled(inputs, attributes)
    return (a @ b.T,)


def _scaled(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Both operands times their scales: 4 bits of 24, exact in float64."""
    arrays, _ = inferred(infer_fp8_block_scaled_matmul, inputs, attributes)
    a, b, a_scale, b_scale = map(as_float64, arrays)
    rows, columns = attributes["block_size"]
    by_column = np.repeat(b_scale, columns, 1)[:, : b.shape[1]]
    return a * np.repeat(a_scale, columns, 1)[:, : a.shape[1]], b * np.repeat(by_column, rows, 0)[: len(b)]


def fp8_block_scaled_matmul_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products of values and scales; the product of the scales and that with the sum of a block, both
    rounded, count as two further terms."""
    a, b = _scaled(inputs, attributes)
    absolute, squared = np.abs(a) @ np.abs(b).T, (a * a) @ (b * b).T
    return (terms_of_products(absolute, squared, a.shape[1] + 2, np.asarray(inputs[0])),)


quiet_hooks(globals())

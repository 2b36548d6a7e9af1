"""References, error terms and accepted alternatives of the float8 operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.numerics import round_to
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, infer_from_arrays, quiet_hooks
from optest.operators.budgets import terms_of_products
from optest.operators.quantization.fp8 import infer_fp8_block_scaled_matmul, infer_per_token_group_quant_fp8
from optest.spec import ErrorBudget, Fault, Reason, Terms, dtype

# Largest finite number of float8_e4m3fn.
_LARGEST = 448.0
_FLOAT8 = dtype("float8_e4m3fn")
# Relative error of a scale that is a quotient of 2.5 ulp in float32.
_REACH = 4.0 * 2.0**-24


def per_token_group_quant_fp8_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the rows divided by the scales of their groups, not yet rounded to float8, and the scales.

    Raises:
        Fault: BAD_CASE for NaN and infinity, for which no scale is defined.
    """
    (x,), _ = infer_from_arrays(infer_per_token_group_quant_fp8, inputs, attributes)
    if not np.isfinite(as_float64(x)).all():
        raise Fault(Reason.BAD_CASE, "input has NaN or infinity, for which no scale is defined; choose another fill")
    scale = _scales(x, attributes)
    return _divide_by_scales(x, scale, attributes), scale


def _scales(x: Array, attributes: Attributes, off: float = 0.0) -> Array:
    """Return the scale of each group, with the relative error `off` before rounding to a power of two."""
    size = attributes["group_size"]
    magnitudes = np.abs(as_float64(x))
    starts = np.arange(0, x.shape[-1], size)
    # reduceat fails for an empty array.
    largest = np.maximum.reduceat(magnitudes, starts, axis=-1) if x.size else np.zeros((*x.shape[:-1], len(starts)))
    scale = np.maximum(largest, attributes["eps"]) / _LARGEST * (1.0 + off)
    return np.asarray(np.exp2(np.ceil(np.log2(scale))) if attributes.get("use_ue8m0") else scale)


def _divide_by_scales(x: Array, scale: Array, attributes: Attributes) -> Array:
    """Return `x` divided by the scales of its groups, clipped to the range of float8."""
    divisor = np.repeat(scale, attributes["group_size"], -1)[..., : x.shape[-1]]
    return np.asarray(np.clip(as_float64(x) / divisor, -_LARGEST, _LARGEST))


def per_token_group_quant_fp8_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budgets of out, 11·|out|, and scale, 5·|scale|; both are 0 for power-of-two scales.

    The scale is a quotient of 2.5 ulp; out has its error, and 6 for the inverse of the scale and its product.
    """
    out, scale = per_token_group_quant_fp8_reference(inputs, attributes)
    if attributes.get("use_ue8m0"):
        return ErrorBudget(np.zeros(out.shape)), ErrorBudget(np.zeros(scale.shape))
    return ErrorBudget(11.0 * np.abs(out)), ErrorBudget(5.0 * np.abs(scale))


def per_token_group_quant_fp8_alternatives(
    inputs: Inputs, attributes: Attributes, actual: Sequence[Any]
) -> Sequence[Any]:
    """Return masks that accept a power-of-two scale of a quotient that is off by 4 u, and out by that scale."""
    if not attributes.get("use_ue8m0"):
        return None, None
    x, scale = np.asarray(inputs[0]), as_float64(actual[1])
    is_right = np.logical_or(*(scale == _scales(x, attributes, off) for off in (-_REACH, _REACH)))
    expected = round_to(_divide_by_scales(x, np.where(is_right, scale, 1.0), attributes), _FLOAT8)
    has_right_scale = np.repeat(is_right, attributes["group_size"], -1)[..., : x.shape[-1]]
    return has_right_scale & (as_float64(actual[0]) == as_float64(expected)), is_right


def fp8_block_scaled_matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    a, b = _scaled_operands(inputs, attributes)
    return (a @ b.T,)


def _scaled_operands(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Return both operands times their scales, exactly: 4 + 24 bits fit into float64."""
    arrays, _ = infer_from_arrays(infer_fp8_block_scaled_matmul, inputs, attributes)
    a, b, a_scale, b_scale = map(as_float64, arrays)
    rows, columns = attributes["block_size"]
    by_column = np.repeat(b_scale, columns, 1)[:, : b.shape[1]]
    return a * np.repeat(a_scale, columns, 1)[:, : a.shape[1]], b * np.repeat(by_column, rows, 0)[: len(b)]


def fp8_block_scaled_matmul_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output: the products of values and scales.

    The product of both scales and its product with the sum of a block are rounded, too, and count as two further terms.
    """
    a, b = _scaled_operands(inputs, attributes)
    absolute, squared = np.abs(a) @ np.abs(b).T, (a * a) @ (b * b).T
    return (terms_of_products(absolute, squared, a.shape[1] + 2, np.asarray(inputs[0])),)


quiet_hooks(globals())

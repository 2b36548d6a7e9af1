"""References of packed 4-bit weights and of products with them, and the error terms of the products."""

from __future__ import annotations

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    infer_from_arrays,
    optional_input,
    quiet_hooks,
)
from optest.operators.budgets import half_subnormal, unit_roundoff
from optest.operators.indexing.gather_reference import require_range
from optest.operators.quantization.awq_and_gptq import (
    PACKED,
    infer_awq_gemm,
    infer_dequantize_awq,
    infer_dequantize_gptq,
    infer_gptq_gemm,
)
from optest.spec import ErrorBudget

_GPTQ_SHIFTS = 4 * np.arange(PACKED, dtype=np.int32)
# Bit of each of eight columns in an int32 of AWQ.
_AWQ_SHIFTS = 4 * np.array((0, 4, 1, 5, 2, 6, 3, 7), np.int32)


def dequantize_awq_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return (weight − zero) · scale."""
    (weight, scales, zeros), _ = infer_from_arrays(infer_dequantize_awq, inputs, attributes)
    # Exact in float64: a difference has 5 bits, a scale at most 24.
    size = len(weight) // len(scales)
    zero, scale = (np.repeat(x, size, axis=0) for x in (_unpack_awq(zeros), as_float64(scales)))
    return ((_unpack_awq(weight) - zero) * scale,)


def _unpack_awq(packed: Array) -> Array:
    """Return the 4-bit weights of AWQ's packed int32, eight columns for each."""
    return np.asarray((packed[:, :, None] >> _AWQ_SHIFTS & 15).reshape(len(packed), packed.shape[1] * PACKED))


def dequantize_gptq_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return (weight − zero) · scale; the zero is one more than stored unless use_v2_format is set."""
    (packed, zeros, scales, *_), (out,) = infer_from_arrays(infer_dequantize_gptq, inputs, attributes)
    rows, columns = out.shape
    weight = (packed[:, None, :] >> _GPTQ_SHIFTS[:, None] & 15).reshape(rows, columns)
    zero = (zeros[:, :, None] >> _GPTQ_SHIFTS & 15).reshape(len(zeros), columns)
    group_of = optional_input(inputs, 3)
    if group_of is None:
        group_of = np.arange(rows) // max(1, rows // len(scales))
    require_range(group_of, len(scales), "g_idx")
    zero_offset = 0 if attributes.get("use_v2_format") else 1
    return ((weight - (zero + zero_offset)[group_of]) * as_float64(scales)[group_of],)


def gptq_gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    infer_from_arrays(infer_gptq_gemm, inputs, attributes)
    (weight,) = dequantize_gptq_reference(inputs[1:], attributes)
    return (as_float64(inputs[0]) @ weight,)


def awq_gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    infer_from_arrays(infer_awq_gemm, inputs, attributes)
    (weight,) = dequantize_awq_reference(inputs[1:], attributes)
    return (as_float64(inputs[0]) @ weight,)


def _product_budget(inputs: Inputs, weight: Array) -> tuple[ErrorBudget, ...]:
    """Return the error budget of input @ weight, a sum of k products t: 4√(k + 2)·Σ|t|, plus rounding of the weights.

    The product with scale is one of the k + 2 terms. Weights that are rounded to 16 bits are off by up to v = u₁₆/u
    each: with random signs 4√Σt²·v. 4-bit weights have few values, so that roundings repeat: another Σ|t|·v/4, and at
    most Σ|t|·v in all.
    """
    x = as_float64(inputs[0])
    absolute, squared = np.abs(x) @ np.abs(weight), (x * x) @ (weight * weight)
    count = float(x.shape[1] + 2)
    first = np.asarray(inputs[0])
    rounded = dtype_of(first.dtype).unit_roundoff / unit_roundoff(first)
    worst = 4.0 * np.sqrt(count) * absolute + count * half_subnormal(double=False)
    if rounded > 1.0:
        worst = worst + rounded * np.minimum(absolute, 4.0 * np.sqrt(squared) + absolute / 4.0)
    return (ErrorBudget(np.nan_to_num(worst)),)


def gptq_gemm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of a product with packed weights: 4√k·Σ|t|, plus the rounding of the weights to 16 bits."""
    return _product_budget(inputs, *dequantize_gptq_reference(inputs[1:], attributes))


def awq_gemm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of a product with packed weights: 4√k·Σ|t|, plus the rounding of the weights to 16 bits."""
    return _product_budget(inputs, *dequantize_awq_reference(inputs[1:], attributes))


quiet_hooks(globals())

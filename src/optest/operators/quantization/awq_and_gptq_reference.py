"""What packed weights of four bits and products with them are, and what they may lose."""

from __future__ import annotations

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, optional_input, quiet_hooks
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

_SHIFTS = 4 * np.arange(PACKED, dtype=np.int32)
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where each of eight columns is in an int32, in units of four bits."""


def dequantize_awq_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Exact: five bits of a difference times the bits of a scale."""
    (weight, scales, zeros), _ = inferred(infer_dequantize_awq, inputs, attributes)
    size = len(weight) // len(scales)
    zero, scale = (np.repeat(each, size, axis=0) for each in (_unpacked(zeros), as_float64(scales)))
    return ((_unpacked(weight) - zero) * scale,)


def _unpacked(packed: Array) -> Array:
    shifts = 4 * np.array(_PLACES, np.int32)
    return np.asarray((packed[:, :, None] >> shifts & 15).reshape(len(packed), packed.shape[1] * PACKED))


def dequantize_gptq_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Exact: five bits of a difference times the bits of a scale."""
    (packed, zeros, scales, *_), (out,) = inferred(infer_dequantize_gptq, inputs, attributes)
    rows, columns = out.shape
    weight = (packed[:, None, :] >> _SHIFTS[:, None] & 15).reshape(rows, columns)
    zero = (zeros[:, :, None] >> _SHIFTS & 15).reshape(len(zeros), columns)
    group_of = optional_input(inputs, 3)
    if group_of is None:
        group_of = np.arange(rows) // max(1, rows // len(scales))
    require_range(group_of, len(scales), "g_idx")
    more = 0 if attributes.get("use_v2_format") else 1
    return ((weight - (zero + more)[group_of]) * as_float64(scales)[group_of],)


def gptq_gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_gptq_gemm, inputs, attributes)
    (weight,) = dequantize_gptq_reference(inputs[1:], attributes)
    return (as_float64(inputs[0]) @ weight,)


def awq_gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_awq_gemm, inputs, attributes)
    (weight,) = dequantize_awq_reference(inputs[1:], attributes)
    return (as_float64(inputs[0]) @ weight,)


def _product_terms(inputs: Inputs, weight: Array) -> tuple[ErrorBudget, ...]:
    """A sum of k products t loses 4√k·Σ|t|, where the scale's product is one of k + 2 terms.

    Weights that are rounded to 16 bits are off by up to v = u₁₆/u each: of signs that differ 4√Σt²·v. A weight of four
    bits has few values, so that roundings repeat: another quarter of Σ|t|·v, and all of it where that is less.
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
    return _product_terms(inputs, *dequantize_gptq_reference(inputs[1:], attributes))


def awq_gemm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    return _product_terms(inputs, *dequantize_awq_reference(inputs[1:], attributes))


gptq_gemm_terms.__doc__ = awq_gemm_terms.__doc__ = _product_terms.__doc__


quiet_hooks(globals())

"""What dequantize_awq computes."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, quiet_hooks
from optest.operators.quantization.awq import PACKED, infer_dequantize_awq

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


quiet_hooks(globals())

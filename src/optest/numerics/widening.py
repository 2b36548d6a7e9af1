"""Conversion of 16-bit floats to float32 with NumPy's vector loops, which its own casts do not use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.numerics.formats import Array

# The difference between the exponent biases of float32 (127) and float16 (15).
_HALF_MAGIC = np.float32(2.0**112)
# Smallest absolute value that the loader of float16 stores for infinity and NaN.
HALF_INFINITY = 65536.0
# Sign, exponent and fraction of a float16 after the shift to their positions in a float32.
_HALF_MASK = np.int32(-0x70002000)


def _load_bfloat16(block: Array, into: Array) -> None:
    """Write the values of a bfloat16 ``block`` into a float32 array."""
    # A bfloat16 is the upper half of a float32.
    words = into.view(np.uint32)
    np.copyto(words, block.view(np.uint16))
    np.left_shift(words, 16, out=words)


def _load_half(block: Array, into: Array) -> None:
    """Write the values of a float16 ``block`` into a float32 array; ±infinity and NaN become ±65536 or more.

    The bits move to their positions in a float32; a multiplication by 2^112, exact for subnormals, too, corrects the
    exponent.
    """
    # NumPy's own cast converts one element at a time.
    words = into.view(np.int32)
    np.copyto(words, block.view(np.int16))
    np.left_shift(words, 13, out=words)
    np.bitwise_and(words, _HALF_MASK, out=words)
    np.multiply(into, _HALF_MAGIC, out=into)


# Functions that write a block of the dtype of that name into a float32 array.
LOADERS: dict[str, Callable[[Array, Array], None]] = {
    "float32": lambda block, into: np.copyto(into, block),
    "bfloat16": _load_bfloat16,
    "float16": _load_half,
}

"""16-bit floats as float32 and float64 on NumPy's vector loops, which its own conversions do not use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.numerics.formats import Array

_HALF_MAGIC = np.float32(2.0**112)
HALF_INFINITY = 65536.0
"""What infinity and NaN of float16 are loaded as, or more."""
_HALF_MASK = np.int32(-0x70002000)
"""Sign, exponent and fraction of a float16 that was shifted to the place of a float32's."""


def _load_bfloat16(block: Array, into: Array) -> None:
    """A bfloat16 is the upper half of a float32."""
    words = into.view(np.uint32)
    np.copyto(words, block.view(np.uint16))
    np.left_shift(words, 16, out=words)


def _load_half(block: Array, into: Array) -> None:
    """Move the bits to their place in a float32 and multiply by 2^112, which is exact, subnormals included.

    NumPy's own conversion takes one element at a time. Infinity and NaN become numbers of 65536 and more.
    """
    words = into.view(np.int32)
    np.copyto(words, block.view(np.int16))
    np.left_shift(words, 13, out=words)
    np.bitwise_and(words, _HALF_MASK, out=words)
    np.multiply(into, _HALF_MAGIC, out=into)


LOADERS: dict[str, Callable[[Array, Array], None]] = {
    "float32": lambda block, into: np.copyto(into, block),
    "bfloat16": _load_bfloat16,
    "float16": _load_half,
}
"""What moves a block of a dtype into float32, by the dtype's name."""


def widen_half(block: Array) -> Array | None:
    """A float16 block as float64 through float32, faster than NumPy's cast; None with NaN or infinity."""
    single = np.empty(block.size, np.float32)
    _load_half(block, single)
    if single.max(initial=0.0) >= HALF_INFINITY or single.min(initial=0.0) <= -HALF_INFINITY:
        return None
    return single.astype(np.float64)


def widen_bfloat16(block: Array) -> Array:
    """A bfloat16 block as float64, through float32."""
    single = np.empty(block.size, np.float32)
    _load_bfloat16(block, single)
    return single.astype(np.float64)

"""What the contractions share as data: the dtype of the result, and the dtypes of what is added to it."""

from __future__ import annotations

from optest.spec import Attribute

__all__ = ["OUT_DTYPE", "accumulating"]

OUT_DTYPE = Attribute(
    name="out_dtype",
    type="dtype",
    default=None,
    description="Dtype of the result: wider integers, in which integers are added up (int8 in int32), or wider floats "
    "up to float32, to which the sum is rounded. None keeps the operands' dtype.",
)


def accumulating(operands: int) -> tuple[tuple[str, ...], ...]:
    """Operands of one dtype and a bias in that of a wider result."""
    pairs = (("int8", "int32"), ("uint8", "int32"), ("float16", "float32"), ("bfloat16", "float32"))
    return tuple((*(narrow,) * operands, wide) for narrow, wide in pairs)

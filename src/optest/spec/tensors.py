"""Tensor specs: element type, shape and layout of a tensor, without values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from optest.spec.construct import constructor
from optest.spec.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape, element type and layout of one tensor.

    ``strides`` and ``offset`` count elements, not bytes; ``strides=None`` is row-major and dense. With a stride of 0
    all indices refer to one element; with a negative stride they go backwards from ``offset``.

    Raises:
        ValueError: for a negative size, strides of another rank, or a layout that begins before its storage.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        if self.shape and (size := min(self.shape)) < 0:
            raise ValueError(f"shape {format_shape(self.shape)} has the size {size}, expected 0 or more")
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(
                f"strides {list(self.strides)} have {len(self.strides)} entries, "
                f"expected {len(self.shape)}, one for each dimension of {format_shape(self.shape)}"
            )
        if (self.strides is not None or self.offset) and self.lowest_index < 0:
            raise ValueError(
                f"strides {list(self.strides or ())} reach {-self.lowest_index} elements before the storage, "
                f"expected an offset of at least {self.offset - self.lowest_index}"
            )

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps between them; a repeated element counts several times."""
        return self.elements * self.dtype.itemsize_bytes

    @property
    def is_dense(self) -> bool:
        """True if row-major without gaps, from the start of its storage; strides of size-1 dimensions are ignored."""
        if self.strides is None:
            return self.offset == 0
        dense = contiguous_strides(self.shape)
        relevant = zip(self.shape, self.strides, dense, strict=True)
        return self.offset == 0 and all(size <= 1 or got == want for size, got, want in relevant)

    @property
    def is_plain(self) -> bool:
        """True if dense, also in the strides of dimensions of size 1."""
        # Those strides reach no element, but libraries receive them.
        return self.is_dense and self.strides in (None, contiguous_strides(self.shape))

    @property
    def lowest_index(self) -> int:
        """Smallest storage index of an element."""
        return self.offset + sum(min(0, reach) for reach in self._reaches())

    @property
    def storage_elements(self) -> int:
        """Number of elements that the storage needs to hold every element of the view."""
        if self.elements == 0:
            return self.offset
        if self.strides is None:
            return self.offset + self.elements
        return self.offset + sum(max(0, reach) for reach in self._reaches()) + 1

    def _reaches(self) -> tuple[int, ...]:
        """Return for each dimension the storage distance from its first to its last index; () without elements."""
        if self.elements == 0:
            return ()
        strides = contiguous_strides(self.shape) if self.strides is None else self.strides
        return tuple((size - 1) * stride for size, stride in zip(self.shape, strides, strict=True))

    def __str__(self) -> str:
        layout = "" if self.is_plain else f" strides {list(self.strides or ())} offset {self.offset}"
        return f"{self.dtype}[{format_shape(self.shape)}]{layout}"


_SpecInTheMaking: Any = constructor(TensorSpec)
_new = _SpecInTheMaking.__new__


def dense(dtype: DType, shape: tuple[int, ...]) -> TensorSpec:
    """Return the spec of a dense row-major tensor.

    Raises:
        ValueError: for a negative size.
    """
    if shape and min(shape) < 0:
        # raises with a message
        return TensorSpec(dtype=dtype, shape=shape)
    # Takes two fifths of the time of the constructor; every case of a plan has an output or more.
    spec = _new(_SpecInTheMaking)
    spec.dtype, spec.shape, spec.strides, spec.offset = dtype, shape, None, 0
    spec.__class__ = TensorSpec
    return spec  # type: ignore[no-any-return]


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides in elements; a size of 0 counts as 1, as in NumPy and torch."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as text: ``64x128``, or ``scalar`` for a 0-d tensor."""
    return "x".join(map(str, shape)) or "scalar"

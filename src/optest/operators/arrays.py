"""What references and error terms are made of: widened operands, sums, and calls in which overflow is a result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from optest import numerics
from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.spec import DType, Kind, TensorSpec

__all__ = [
    "Array",
    "Attributes",
    "Inputs",
    "as_float64",
    "converted",
    "is_double",
    "largest",
    "magnitudes",
    "optional_input",
    "quiet",
    "spec_of",
    "sum_over",
    "widen",
]

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
_Hook = TypeVar("_Hook", bound=Callable[[Sequence[Any], Mapping[str, Any]], Any])

widen = functools.partial(numerics.widen, quiet=False)
"""For hooks that are :func:`quiet` already."""


def quiet(hook: _Hook) -> _Hook:
    """Overflow, 0/0 and the like are results in references and error terms, not events."""

    @functools.wraps(hook)
    def silent(inputs: Inputs, attributes: Attributes) -> Any:
        with numerics.Quiet():
            return hook(inputs, attributes)

    return silent  # type: ignore[return-value]


def optional_input(inputs: Inputs, index: int) -> Array | None:
    """An input that may be left out."""
    given = inputs[index] if len(inputs) > index else None
    return None if given is None else np.asarray(given)


def sum_over(values: Array, dims: tuple[int, ...], *, extended: bool = False) -> Array:
    """The pairwise sum over ``dims``, which are removed; ``extended`` adds up in long double where there is one."""
    if not values.ndim:
        return values.astype(np.int64) if values.dtype.kind in "biu" else values
    kept = tuple(i for i in range(values.ndim) if i not in dims)
    shape = tuple(values.shape[i] for i in kept)
    count = int(np.prod([values.shape[i] for i in dims], dtype=np.int64))
    rows = np.ascontiguousarray(values.transpose((*kept, *dims))).reshape((*shape, count))
    if rows.dtype.kind in "biu":
        return np.asarray(rows.astype(np.int64, copy=False).sum(-1))
    if not extended:
        return np.asarray(rows.sum(-1))
    wide = np.clongdouble if rows.dtype.kind == "c" else np.longdouble
    return np.asarray(rows.sum(-1, dtype=wide).astype(rows.dtype))


def is_double(array: Array) -> bool:
    """Whether float64 has no bits to spare beyond those of the input."""
    return array.dtype.itemsize >= 8 and array.dtype.kind in "fc"


def largest(values: Array) -> int:
    """The largest magnitude of integers, exact for the smallest int64 too."""
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def spec_of(array: Array) -> TensorSpec:
    return TensorSpec(dtype=dtype_of(array.dtype), shape=array.shape)


def converted(array: Array, target: DType) -> Array:
    """Elements as ``target`` holds them, widened: how an operator reads operands of another dtype.

    A float operand that is wider than the result is a 0-d tensor, which torch reads unrounded, as a number.
    """
    source = dtype_of(array.dtype)
    if source == target or (source.is_inexact and target.is_inexact):
        return widen(array)
    if target.is_inexact:
        rounded = round_to(array.astype(np.int64) if source.kind is Kind.BOOL else widen(array), target)
        return widen(rounded)
    return array.astype(numpy_dtype(target))


def as_float64(array: Any) -> Array:
    return widen(np.asarray(array)).astype(np.float64, copy=False)


def magnitudes(array: Any) -> Array:
    """|x| in float64, of complex numbers, too."""
    wide = widen(np.asarray(array))
    return np.asarray(np.abs(wide if wide.dtype.kind == "c" else wide.astype(np.float64, copy=False)))

"""What references and error terms are made of: widened operands, sums, and calls in which overflow is a result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from optest import numerics
from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators.shapes import Specs
from optest.spec import DType, Kind, TensorSpec

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Reference = Callable[[Inputs, Attributes], tuple[Array, ...]]
_Inferred = TypeVar("_Inferred")

widen = functools.partial(numerics.widen, quiet=False)
"""For hooks, which are quiet already."""


def quiet_hooks(module: dict[str, Any]) -> None:
    """Overflow, 0/0 and the like are results in references, error terms and alternatives, not events: make all of a
    module's functions with such names quiet."""
    for name in [each for each in module if each.endswith(("_reference", "_terms", "_alternatives"))]:
        module[name] = _quiet(module[name])


def _quiet(hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(hook)
    def quiet(*arguments: Any) -> Any:
        with numerics.Quiet():
            return hook(*arguments)

    return quiet


def optional_input(inputs: Inputs, index: int) -> Array | None:
    """An input that may be left out."""
    given = inputs[index] if len(inputs) > index else None
    return None if given is None else np.asarray(given)


def inferred(
    infer: Callable[[Specs, Attributes], _Inferred], inputs: Inputs, attributes: Attributes
) -> tuple[list[Any], _Inferred]:
    """The inputs as arrays, and what ``infer`` says of them.

    Raises:
        UnfitArguments: for inputs that do not fit one another, or the attributes.
    """
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    return arrays, infer([None if each is None else spec_of(each) for each in arrays], attributes)


def with_rows(values: Array, dims: tuple[int, ...]) -> Array:
    """The values with ``dims`` flattened into one dimension, the last."""
    kept = tuple(i for i in range(values.ndim) if i not in dims)
    shape = tuple(values.shape[i] for i in kept)
    count = int(np.prod([values.shape[i] for i in dims], dtype=np.int64))
    return np.ascontiguousarray(values.transpose((*kept, *dims))).reshape((*shape, count))


def sum_over(values: Array, dims: tuple[int, ...], *, extended: bool = False) -> Array:
    """The pairwise sum over ``dims``, which are removed; ``extended`` adds up in long double where there is one."""
    if not values.ndim:
        return values.astype(np.int64) if values.dtype.kind in "biu" else values
    rows = with_rows(values, dims)
    if rows.dtype.kind in "biu":
        return np.asarray(rows.astype(np.int64, copy=False).sum(-1))
    if not extended:
        return np.asarray(rows.sum(-1))
    wide = np.clongdouble if rows.dtype.kind == "c" else np.longdouble
    return np.asarray(rows.sum(-1, dtype=wide).astype(rows.dtype))


def is_double(stored: Any) -> bool:
    """Whether float64 has no bits to spare beyond those of the input."""
    array = np.asarray(stored)
    return array.dtype.itemsize >= 8 and array.dtype.kind in "fc"


def largest(values: Array) -> int:
    """The largest magnitude of integers, exact for the smallest int64 too."""
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def wide(array: Array) -> Array:
    """Return the array in float64, or in long double if its dtype has no fewer bits than float64."""
    return array.astype(np.longdouble) if is_double(array) else widen(array)


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

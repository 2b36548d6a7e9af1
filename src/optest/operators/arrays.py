"""Building blocks of references and error terms: widened operands, sums, and calls without overflow warnings."""

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

# `quiet_hooks` silences warnings around a whole hook already.
widen = functools.partial(numerics.widen, quiet=False)


def quiet_hooks(module: dict[str, Any]) -> None:
    """Replace the ``*_reference``, ``*_terms`` and ``*_alternatives`` functions in a module's globals by quiet ones."""
    # Overflow and 0/0 are ordinary results of references; NumPy's warnings about them would reach the user.
    for name in [name for name in module if name.endswith(("_reference", "_terms", "_alternatives"))]:
        module[name] = _quiet_hook(module[name])


def _quiet_hook(hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(hook)
    def quiet(*arguments: Any) -> Any:
        with numerics.Quiet():
            return hook(*arguments)

    return quiet


def optional_input(inputs: Inputs, index: int) -> Array | None:
    """Return the input at ``index`` as an array; None if it is left out."""
    value = inputs[index] if len(inputs) > index else None
    return None if value is None else np.asarray(value)


def infer_from_arrays(
    infer: Callable[[Specs, Attributes], _Inferred], inputs: Inputs, attributes: Attributes
) -> tuple[list[Any], _Inferred]:
    """Return the inputs as arrays, with None for those left out, and the result of ``infer`` for their specs.

    Raises:
        UnfitArguments: for inputs that do not fit one another, or the attributes.
    """
    arrays = [None if value is None else np.asarray(value) for value in inputs]
    return arrays, infer([None if array is None else spec_of(array) for array in arrays], attributes)


def with_rows(values: Array, dims: tuple[int, ...]) -> Array:
    """Return the values with ``dims`` moved to the end and flattened into one dimension."""
    kept = tuple(i for i in range(values.ndim) if i not in dims)
    shape = tuple(values.shape[i] for i in kept)
    count = int(np.prod([values.shape[i] for i in dims], dtype=np.int64))
    # NumPy sums pairwise along contiguous memory only.
    return np.ascontiguousarray(values.transpose((*kept, *dims))).reshape((*shape, count))


def sum_over(values: Array, dims: tuple[int, ...], *, extended: bool = False) -> Array:
    """Sum over ``dims`` and remove them: integers and bool in int64, other dtypes in their own.

    With ``extended`` the sum runs in long double, if the platform has a longer one, and is rounded back.
    """
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
    """Return whether the dtype is float64 or complex, for which float64 arithmetic has no bits to spare."""
    array = np.asarray(stored)
    return array.dtype.itemsize >= 8 and array.dtype.kind in "fc"


def largest_magnitude(values: Array) -> int:
    """Return the largest magnitude of integers; 0 if there are none."""
    # In Python integers: abs() of the smallest int64 overflows in NumPy.
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def widen_further(array: Array) -> Array:
    """Return the array in float64, or in long double if its dtype has no fewer bits than float64."""
    return array.astype(np.longdouble) if is_double(array) else widen(array)


def spec_of(array: Array) -> TensorSpec:
    """Return dtype and shape of an array as a dense tensor."""
    return TensorSpec(dtype=dtype_of(array.dtype), shape=array.shape)


def round_to_operand_dtype(array: Array, target: DType) -> Array:
    """Return the elements as an operator of dtype ``target`` reads them, widened.

    Integers and bool are rounded to an inexact target; inexact elements are not rounded to another inexact dtype. An
    integer or bool target casts as NumPy does, which truncates, and does not widen.
    """
    source = dtype_of(array.dtype)
    # A float operand that is wider than the result is a 0-d tensor, which torch reads unrounded, as a number.
    if source == target or (source.is_inexact and target.is_inexact):
        return widen(array)
    if target.is_inexact:
        rounded = round_to(array.astype(np.int64) if source.kind is Kind.BOOL else widen(array), target)
        return widen(rounded)
    return array.astype(numpy_dtype(target))


def as_float64(array: Any) -> Array:
    """Return any real array, also of float8 or bool, in float64."""
    return widen(np.asarray(array)).astype(np.float64, copy=False)


def magnitudes(array: Any) -> Array:
    """Return |x| in float64, for complex numbers, too."""
    widened = widen(np.asarray(array))
    return np.asarray(np.abs(widened if widened.dtype.kind == "c" else widened.astype(np.float64, copy=False)))

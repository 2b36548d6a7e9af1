"""What the built-in operators compute, in float64 from the inputs as they are stored.

Every ``<op>_reference`` takes the inputs in the signature's order, with None or nothing for an optional input that
is left out, and the bound attributes. It returns one array for each output: float64 or complex128 that nobody has
rounded yet, exact integers, bool, or moved elements as they were. Non-finite values follow PyTorch; no warning
escapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optest import numerics
from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators.inference import (
    infer_add,
    infer_div,
    infer_exp,
    normalize_dim,
    reduced_dims,
)
from optest.operators.normal_tail import normal_tail
from optest.spec import DType, Fault, Kind, Reason, TensorSpec, dtype

__all__ = [
    "add_reference",
    "cast_reference",
    "div_reference",
    "exp_reference",
    "gelu_reference",
    "gemm_reference",
    "layer_norm_reference",
    "matmul_reference",
    "relu_reference",
    "softmax_reference",
    "sum_reference",
    "transpose_reference",
]

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Reference = Callable[[Inputs, Attributes], tuple[Array, ...]]
widen = functools.partial(numerics.widen, quiet=False)
"""Everything here runs in :func:`_quiet`."""


def _quiet(function: Reference) -> Reference:
    """Overflow, 0/0 and the like are results here, not events."""

    @functools.wraps(function)
    def quiet(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return function(inputs, attributes)

    return quiet


@_quiet
def add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input + alpha · other in the common dtype; bool is logical or, integers wrap."""
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1 and left.dtype == right.dtype and dtype_of(left.dtype).is_inexact:
        return (np.asarray(widen(left) + widen(right)),)  # the common case, without inference
    (result,) = infer_add((spec_of(left), spec_of(right)), attributes)
    a, b = converted(left, result.dtype), converted(right, result.dtype)
    if result.dtype.kind is Kind.BOOL:
        return (a | (b & bool(alpha)),)
    if result.dtype.is_integer:
        return (np.asarray(a + b * a.dtype.type(int(alpha))),)
    if alpha == 1:
        return (np.asarray(a + b),)
    if result.dtype.name == "float64":  # rounded once and without overflow on the way, as fused operations do
        return (np.asarray(a + np.longdouble(alpha) * b).astype(np.float64),)
    return (np.asarray(a + alpha * b),)


@_quiet
def div_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    (result,) = infer_div((spec_of(left), spec_of(right)), attributes)
    return (np.asarray(converted(left, result.dtype) / converted(right, result.dtype)),)


@_quiet
def exp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    (result,) = infer_exp((spec_of(array),), attributes)
    return (np.asarray(np.exp(converted(array, result.dtype))),)


@_quiet
def gelu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """x · Φ(x), with Φ below 0 from the tail itself and not from 1 + erf, which cancels."""
    x = widen(np.asarray(inputs[0]))
    if attributes.get("approximate", "none") == "tanh":
        # (1 + tanh u) / 2 = 1 / (1 + exp(−2u))
        argument = np.sqrt(2.0 / np.pi) * x * (1.0 + 0.044715 * x * x)
        return (np.asarray(x / (1.0 + np.exp(-2.0 * argument))),)
    tail = normal_tail(np.abs(x))
    return (np.asarray(x * np.where(x > 0, 1.0 - tail, tail)),)


@_quiet
def cast_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Conversion as torch and C do it.

    Integers wrap, floats lose their fraction on the way to integers, whatever is not 0 becomes true (NaN too).
    Integers that float64 does not hold are rounded to the target here, once. Floats below 0 wrap in unsigned
    targets, as torch defines it for uint8.

    Raises:
        Fault: BAD_CASE, for a float that an integer target cannot hold, NaN included: its conversion is undefined.
    """
    array, target = np.asarray(inputs[0]), dtype(attributes["dtype"])
    values = widen(array)
    if target.kind is Kind.BOOL:
        return (np.asarray(values != 0),)
    if target.is_integer:
        return (_to_integer(values, target),)
    if target.is_complex:
        return (values.astype(np.complex128),)
    if values.dtype.kind == "f":
        return (np.clip(values, -target.max_finite, target.max_finite) if attributes.get("saturate") else values,)
    return (converted(values, target),)


def _to_integer(values: Array, target: DType) -> Array:
    if values.dtype.kind == "f":
        whole = np.trunc(values)
        _refuse_undefined(values, whole, target)
        # float64 → int64 covers everything but the upper half of uint64.
        high = whole >= 2.0**63
        integers = np.where(high, whole - 2.0**63, whole).astype(np.int64)
        integers = np.where(high, integers ^ np.int64(-(2**63)), integers)
    else:
        integers = values
    if target.bits >= 8:
        return np.asarray(integers.astype(numpy_dtype(target)))
    low = integers.astype(np.uint8) & np.uint8(15)
    if target.kind is Kind.UINT:
        return np.asarray(low)
    return np.asarray((low ^ np.uint8(8)).astype(np.int8) - np.int8(8))


def _refuse_undefined(values: Array, whole: Array, target: DType) -> None:
    lowest = float(target.min_int) if target.kind is Kind.INT else -(2.0**63)
    held = (whole >= lowest) & (whole < 2.0 ** (target.bits - (target.kind is Kind.INT)))
    if held.all():
        return
    place = np.unravel_index(int(np.argmin(held)), held.shape)
    raise Fault(
        Reason.BAD_CASE,
        f"input is {values[place]} at {[int(index) for index in place]}, but should lie in the range of {target}: the "
        "conversion of anything else is undefined; choose another fill or range",
    )


@_quiet
def relu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    values = widen(np.asarray(inputs[0]))
    return (np.asarray(np.maximum(values, values.dtype.type(0))),)


@_quiet
def sum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), array.ndim)))
    total = sum_over(widen(array), dims, extended=is_double(array))
    return (np.expand_dims(total, dims) if attributes.get("keepdim") and array.ndim else total,)


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


@_quiet
def matmul_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    return (product(widen(left), widen(right), dtype_of(left.dtype)),)


def product(a: Array, b: Array, result: DType) -> Array:
    """``np.matmul``; integers are multiplied exactly and wrap to ``result``, through float64 where it holds them."""
    if not result.is_integer:
        return np.asarray(np.matmul(a, b))
    depth = a.shape[-1]
    if depth * largest(a) * largest(b) < 2**53:
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    else:
        exact = np.matmul(a.astype(np.int64), b.astype(np.int64))  # wraps modulo 2**64, which keeps the lower bits
    return np.asarray(exact.astype(numpy_dtype(result)))


def largest(values: Array) -> int:
    """The largest magnitude of integers, exact for the smallest int64 too."""
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


@_quiet
def gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """alpha · a @ b + beta · c. As in BLAS, a factor of 0 leaves its operands unread: their NaN does not count."""
    first = np.asarray(inputs[0])
    result = dtype_of(first.dtype)
    a, b, c = gemm_operands(inputs, attributes)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    total = product(a, b, result) if alpha else np.zeros((a.shape[0], b.shape[1]), widen(first).dtype)
    if result.is_integer:
        integer = numpy_dtype(result).type
        total = total * integer(int(alpha))
        return (np.asarray(total if c is None else total + integer(int(beta)) * c),)
    total = total if alpha == 1 else alpha * total
    return (np.asarray(total if c is None else total + (c if beta == 1 else beta * c)),)


def gemm_operands(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array | None]:
    """a and b as they are multiplied, and c where it counts; widened."""
    a, b = widen(np.asarray(inputs[0])), widen(np.asarray(inputs[1]))
    given = inputs[2] if len(inputs) > 2 and attributes.get("beta", 1.0) else None
    return (
        a.T if attributes.get("trans_a") else a,
        b.T if attributes.get("trans_b") else b,
        None if given is None else widen(np.asarray(given)),
    )


@_quiet
def softmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    if not x.size:
        return (x,)
    row = x.reshape(x.shape or (1,))
    e = np.exp(row - row.max(dim, keepdims=True))
    total = np.expand_dims(sum_over(e, (dim,), extended=is_double(array)), dim)
    return (np.asarray(e / total).reshape(x.shape),)


@_quiet
def layer_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    if not x.size:
        return (x,)
    weight, bias = affine_parameters(inputs)
    centred, _, variance = moments(x, len(attributes["normalized_shape"]), extended=is_double(array))
    y = centred / np.sqrt(variance + attributes.get("eps", 1e-5))
    y = y if weight is None else y * weight
    return (np.asarray(y if bias is None else y + bias),)


def affine_parameters(inputs: Inputs) -> tuple[Array | None, Array | None]:
    """weight and bias of a normalisation, widened, None where left out."""
    weight, bias = (inputs[i] if len(inputs) > i and inputs[i] is not None else None for i in (1, 2))
    return (
        None if weight is None else widen(np.asarray(weight)),
        None if bias is None else widen(np.asarray(bias)),
    )


def moments(x: Array, trailing: int, *, extended: bool = False) -> tuple[Array, Array, Array]:
    """x − mean, the mean and the biased variance over the last ``trailing`` dimensions, kept with size 1."""
    dims = tuple(range(x.ndim - trailing, x.ndim))

    def mean_of(values: Array) -> Array:
        return np.expand_dims(sum_over(values, dims, extended=extended), dims) / float(np.prod(x.shape[-trailing:]))

    mean = mean_of(x)
    centred = x - mean
    rest = mean_of(centred)  # what rounding the mean left over
    centred = centred - rest
    return centred, mean + rest, mean_of(centred * centred)


@_quiet
def transpose_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    if not array.ndim:
        return (array.copy(),)
    return (np.swapaxes(array, attributes["dim0"], attributes["dim1"]).copy(),)


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

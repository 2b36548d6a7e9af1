"""What products of matrices compute, and their terms."""

from __future__ import annotations

import numpy as np

from optest.numerics import dtype_of, numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, largest, optional_input, quiet, widen
from optest.operators.budgets import terms_of_products
from optest.operators.contraction.helpers import result_dtype
from optest.spec import DType, Terms


@quiet
def matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    return (product(widen(left), widen(right), result_of(left, attributes)),)


bmm_reference = matmul_reference


def result_of(first: Array, attributes: Attributes) -> DType:
    return result_dtype(dtype_of(first.dtype), attributes)


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


@quiet
def gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """alpha · a @ b + beta · c. As in BLAS, a factor of 0 leaves its operands unread: their NaN does not count."""
    result = result_of(np.asarray(inputs[0]), attributes)
    a, b, c = gemm_operands(inputs, attributes)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    kind = numpy_dtype(result) if result.is_integer else np.dtype(np.float64)
    total = product(a, b, result) if alpha else np.zeros((*a.shape[:-1], b.shape[-1]), kind)
    if result.is_integer:
        integer = numpy_dtype(result).type
        total = total * integer(int(alpha))
        return (np.asarray(total if c is None else total + integer(int(beta)) * c),)
    total = total if alpha == 1 else alpha * total
    return (np.asarray(total if c is None else total + (c if beta == 1 else beta * c)),)


def gemm_operands(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array | None]:
    """a and b as they are multiplied, and c where it counts; widened."""
    a, b = widen(np.asarray(inputs[0])), widen(np.asarray(inputs[1]))
    c = optional_input(inputs, 2) if attributes.get("beta", 1.0) else None
    return (
        a.swapaxes(-1, -2) if attributes.get("trans_a") else a,
        b.swapaxes(-1, -2) if attributes.get("trans_b") else b,
        None if c is None else widen(c),
    )


@quiet
def linear_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    x, weight, bias = linear_operands(inputs)
    return (with_bias(product(x, weight, result_of(np.asarray(inputs[0]), attributes)), bias),)


def linear_operands(inputs: Inputs) -> tuple[Array, Array, Array | None]:
    """input, the transposed weight and bias, widened."""
    x, weight = widen(np.asarray(inputs[0])), widen(np.asarray(inputs[1]))
    bias = optional_input(inputs, 2)
    return x, weight.T, None if bias is None else widen(bias)


def with_bias(total: Array, bias: Array | None) -> Array:
    """The sum, in which integers wrap; ``bias`` has the dtype of the result already."""
    return total if bias is None else np.asarray(total + bias)


@quiet
def matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products. Below the normal range a product is off by half a subnormal, whatever its size,
    for which the bound has room as well: here and wherever products are added up."""
    a, b = as_float64(inputs[0]), as_float64(inputs[1])
    absolute, squared = np.asarray(np.abs(a) @ np.abs(b)), np.asarray((a * a) @ (b * b))
    return (terms_of_products(absolute, squared, a.shape[-1], np.asarray(inputs[0])),)


bmm_terms = matmul_terms


@quiet
def gemm_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """alpha · products and beta · c; the factors' own roundings count as further terms."""
    a, b, c = gemm_operands(inputs, attributes)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    a, b = a.astype(np.float64), b.astype(np.float64)
    shape = (*a.shape[:-1], b.shape[-1])
    absolute, squared = np.zeros(shape), np.zeros(shape)
    if alpha:
        absolute = abs(alpha) * (np.abs(a) @ np.abs(b))
        squared = alpha * alpha * ((a * a) @ (b * b))
    count = a.shape[-1] + (alpha != 1)
    if c is not None:
        added = beta * c.astype(np.float64)
        absolute, squared = absolute + np.abs(added), squared + added * added
        count += 1 + (beta != 1)
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0]), factor=alpha),)


@quiet
def linear_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products and the bias."""
    x, weight, bias = linear_operands(inputs)
    x, weight = x.astype(np.float64, copy=False), weight.astype(np.float64, copy=False)
    absolute, squared = np.asarray(np.abs(x) @ np.abs(weight)), np.asarray((x * x) @ (weight * weight))
    count = x.shape[-1]
    if bias is not None:
        added = np.abs(bias.astype(np.float64))
        absolute, squared, count = absolute + added, squared + added * added, count + 1
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0])),)

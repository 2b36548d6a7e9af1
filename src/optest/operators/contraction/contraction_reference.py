"""What contractions compute, and their terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from optest.numerics import dtype_of, numpy_dtype
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    inferred,
    largest,
    optional_input,
    quiet_hooks,
    spec_of,
    widen,
)
from optest.operators.budgets import terms_of_products
from optest.operators.contraction.convolution import Walk, walk_of
from optest.operators.contraction.einsum import Equation, equation_of
from optest.operators.contraction.grouped_matmul import infer_grouped_matmul
from optest.operators.contraction.helpers import result_dtype
from optest.spec import DType, Terms, UnfitArguments, dtype


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


def matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products. Below the normal range a product is off by half a subnormal, whatever its size,
    for which the bound has room as well: here and wherever products are added up."""
    a, b = as_float64(inputs[0]), as_float64(inputs[1])
    absolute, squared = np.asarray(np.abs(a) @ np.abs(b)), np.asarray((a * a) @ (b * b))
    return (terms_of_products(absolute, squared, a.shape[-1], np.asarray(inputs[0])),)


bmm_terms = matmul_terms


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


def _reference(inputs: Inputs, attributes: Attributes, rank: int) -> tuple[Array, ...]:
    x, weight, bias = _operands(inputs)
    walk = _walk(inputs, attributes, rank)
    result = result_of(np.asarray(inputs[0]), attributes)
    total = product(_rows(widen(weight), walk), _columns(widen(x), walk), result)
    return (with_bias(_placed(total, x, weight, walk), None if bias is None else _along(widen(bias), rank)),)


def _terms_of(rank: int) -> Callable[[Inputs, Attributes], tuple[Terms, ...]]:
    def terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
        """The terms are the products under the kernel, those with padding included, and the bias."""
        x, weight, bias = _operands(inputs)
        walk = _walk(inputs, attributes, rank)
        rows, columns = np.abs(_rows(as_float64(weight), walk)), _columns(np.abs(as_float64(x)), walk)
        absolute = _placed(np.matmul(rows, columns), x, weight, walk)
        np.multiply(columns, columns, out=columns)
        squared = _placed(np.matmul(rows * rows, columns), x, weight, walk)
        count = rows.shape[-1]
        if bias is not None:
            added = np.abs(_along(as_float64(bias), rank))
            absolute, squared, count = absolute + added, squared + added * added, count + 1
        return (terms_of_products(absolute, squared, count, x),)

    return terms


conv1d_reference, conv2d_reference, conv3d_reference = (partial(_reference, rank=rank) for rank in (1, 2, 3))
conv1d_terms, conv2d_terms, conv3d_terms = map(_terms_of, (1, 2, 3))


def _operands(inputs: Inputs) -> tuple[Array, Array, Array | None]:
    return np.asarray(inputs[0]), np.asarray(inputs[1]), optional_input(inputs, 2)


def _walk(inputs: Inputs, attributes: Attributes, rank: int) -> Walk:
    return walk_of(spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1])), attributes, rank)


def _along(bias: Array, rank: int) -> Array:
    return bias.reshape(-1, *(1,) * rank)


def _rows(weight: Array, walk: Walk) -> Array:
    """(groups, output channels of a group, products)."""
    return np.ascontiguousarray(weight).reshape(walk.groups, weight.shape[0] // walk.groups, -1)


def _columns(x: Array, walk: Walk) -> Array:
    """(batch, groups, products, positions): what the kernel sees at each position, as a copy of its own."""
    rank = len(walk.kernel)
    batched = x if x.ndim == rank + 2 else x[None]
    padded = np.pad(batched, ((0, 0), (0, 0), *walk.padding)) if any(map(any, walk.padding)) else batched
    lead, steps = padded.strides[:2], padded.strides[2:]
    seen = np.lib.stride_tricks.as_strided(
        padded,
        (*padded.shape[:2], *walk.kernel, *walk.out),
        (
            *lead,
            *(step * dilation for step, dilation in zip(steps, walk.dilation, strict=True)),
            *(step * stride for step, stride in zip(steps, walk.stride, strict=True)),
        ),
        writeable=False,
    )
    products = padded.shape[1] // walk.groups * walk.taps
    return np.asarray(seen.copy().reshape(padded.shape[0], walk.groups, products, int(np.prod(walk.out))))


def _placed(total: Array, x: Array, weight: Array, walk: Walk) -> Array:
    """(batch, groups, channels, positions) as the output has it."""
    lead = x.shape[: x.ndim - len(walk.kernel) - 1]
    return np.asarray(total.reshape(*lead, weight.shape[0], *walk.out))


_Labels = tuple[str, ...]
_INT64 = dtype("int64")


def einsum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    arrays, equation = inferred(equation_of, inputs, attributes)
    result = dtype_of(arrays[0].dtype)
    if result.is_integer:
        wide = [each.astype(np.int64) for each in arrays]
        return (_contracted(wide, equation, _INT64).astype(numpy_dtype(result)),)
    return (_contracted([widen(each) for each in arrays], equation, result),)


def einsum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products of one element of each operand; each product of n elements is rounded n − 1 times,
    the first of which fuses with a sum or is covered by its term: n − 2 further terms."""
    _, equation = inferred(equation_of, inputs, attributes)
    sizes = [np.abs(as_float64(each)) for each in inputs]
    double = dtype("float64")
    absolute = _contracted(sizes, equation, double)
    squared = _contracted([each * each for each in sizes], equation, double)
    count = equation.length + max(0, len(inputs) - 2)
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0])),)


def _contracted(arrays: Sequence[Array], equation: Equation, result: DType) -> Array:
    operands = [_distinct(array, labels, equation) for array, labels in zip(arrays, equation.operands, strict=True)]
    current, labels = operands[0]
    for index, (other, other_labels) in enumerate(operands[1:], 1):
        later = {label for _, each in operands[index + 1 :] for label in each}
        current, labels = _pair(current, labels, other, other_labels, later.union(equation.output), result)
    current, labels = _summed(current, labels, set(equation.output))
    return np.asarray(current.transpose([labels.index(label) for label in equation.output]))


def _distinct(array: Array, labels: _Labels, equation: Equation) -> tuple[Array, _Labels]:
    """The operand with each label once: the diagonal of repeated ones, and without dimensions that are broadcast."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = [index for index, each in enumerate(labels) if each == label][:2]
            array = array.diagonal(axis1=first, axis2=second)
            labels = (*(each for index, each in enumerate(labels) if index not in (first, second)), label)
    broadcast = tuple(i for i, label in enumerate(labels) if array.shape[i] != equation.sizes[label])
    return array.squeeze(broadcast), tuple(label for i, label in enumerate(labels) if i not in broadcast)


def _summed(array: Array, labels: _Labels, kept: set[str]) -> tuple[Array, _Labels]:
    gone = tuple(index for index, label in enumerate(labels) if label not in kept)
    return np.asarray(array.sum(axis=gone) if gone else array), tuple(label for label in labels if label in kept)


def _pair(
    a: Array, a_labels: _Labels, b: Array, b_labels: _Labels, kept: set[str], result: DType
) -> tuple[Array, _Labels]:
    """Contract two operands over the labels that nobody needs any more."""
    a, a_labels = _summed(a, a_labels, kept.union(b_labels))
    b, b_labels = _summed(b, b_labels, kept.union(a_labels))
    batch = tuple(label for label in a_labels if label in b_labels and label in kept)
    inner = tuple(label for label in a_labels if label in b_labels and label not in kept)
    left = tuple(label for label in a_labels if label not in b_labels)
    right = tuple(label for label in b_labels if label not in a_labels)
    sizes = {**dict(zip(a_labels, a.shape, strict=True)), **dict(zip(b_labels, b.shape, strict=True))}

    def arranged(array: Array, labels: _Labels, *groups: _Labels) -> Array:
        order = [labels.index(label) for group in groups for label in group]
        shape = [int(np.prod([sizes[each] for each in group])) for group in groups]
        return np.asarray(array.transpose(order).reshape(shape))

    total = product(arranged(a, a_labels, batch, left, inner), arranged(b, b_labels, batch, inner, right), result)
    labels = (*batch, *left, *right)
    return np.asarray(total.reshape([sizes[label] for label in labels])), labels


def grouped_matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_grouped_matmul, inputs, attributes)
    return (_by_expert(as_float64(inputs[0]), as_float64(inputs[1]), inputs[2]),)


def grouped_matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products."""
    x, weight = (np.abs(as_float64(each)) for each in inputs[:2])
    absolute, squared = (_by_expert(one, other, inputs[2]) for one, other in ((x, weight), (x * x, weight * weight)))
    return (terms_of_products(absolute, squared, x.shape[1], np.asarray(inputs[0])),)


def grouped_matmul_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Anything behind the last expert."""
    end = int(np.asarray(inputs[2])[-1]) if np.asarray(inputs[2]).size else 0
    return (np.broadcast_to(np.arange(len(actual[0]))[:, None] >= end, actual[0].shape),)


def _by_expert(x: Array, weight: Array, offs: Any) -> Array:
    """0 behind the last expert.

    Raises:
        UnfitArguments: for offsets that fall or leave the rows.
    """
    ends = [0, *np.asarray(offs).tolist()]
    if sorted(ends) != ends or ends[-1] > len(x):
        raise UnfitArguments(f"offs is {ends[1:]}, but should rise to {len(x)} at most")
    out = np.zeros((len(x), weight.shape[2]))
    for expert, (start, stop) in enumerate(pairwise(ends)):
        out[start:stop] = x[start:stop] @ weight[expert]
    return out


quiet_hooks(globals())

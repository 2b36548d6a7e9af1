"""References and error terms of the contractions, and alternative results of grouped_matmul."""

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
    infer_from_arrays,
    largest_magnitude,
    optional_input,
    quiet_hooks,
    spec_of,
    widen,
)
from optest.operators.budgets import terms_of_products
from optest.operators.contraction.convolution import Window, window_of
from optest.operators.contraction.einsum import Equation, Labels, equation_of
from optest.operators.contraction.grouped_matmul import infer_grouped_matmul
from optest.operators.contraction.helpers import result_dtype
from optest.spec import DType, Terms, UnfitArguments, dtype


def matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the matrix product, with vectors and broadcast batches as in torch.matmul."""
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    return (_matrix_product(widen(left), widen(right), _dtype_of_result(inputs, attributes)),)


bmm_reference = matmul_reference


def _dtype_of_result(inputs: Inputs, attributes: Attributes) -> DType:
    return result_dtype(dtype_of(np.asarray(inputs[0]).dtype), attributes)


def _matrix_product(a: Array, b: Array, result: DType) -> Array:
    """Return ``np.matmul`` of widened operands; for an integer ``result`` exact sums, wrapped to it."""
    if not result.is_integer:
        return np.asarray(np.matmul(a, b))
    depth = a.shape[-1]
    if depth * largest_magnitude(a) * largest_magnitude(b) < 2**53:
        # float64 holds every sum, and BLAS is many times faster than NumPy's loops over integers.
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    else:
        # Wraps modulo 2^64, which leaves the lower bits right.
        exact = np.matmul(a.astype(np.int64), b.astype(np.int64))
    return np.asarray(exact.astype(numpy_dtype(result)))


def gemm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return alpha · a @ b + beta · c; a and b are not read if alpha is 0, nor c if beta is 0, as in BLAS."""
    result = _dtype_of_result(inputs, attributes)
    a, b, c = _gemm_operands(inputs, attributes)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    kind = numpy_dtype(result) if result.is_integer else np.dtype(np.float64)
    total = _matrix_product(a, b, result) if alpha else np.zeros((*a.shape[:-1], b.shape[-1]), kind)
    if result.is_integer:
        integer = numpy_dtype(result).type
        total = total * integer(int(alpha))
        return (np.asarray(total if c is None else total + integer(int(beta)) * c),)
    total = total if alpha == 1 else alpha * total
    return (np.asarray(total if c is None else total + (c if beta == 1 else beta * c)),)


def _gemm_operands(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array | None]:
    """Return a and b, transposed as requested, and c or None if beta is 0; all widened."""
    a, b = widen(np.asarray(inputs[0])), widen(np.asarray(inputs[1]))
    c = optional_input(inputs, 2) if attributes.get("beta", 1.0) else None
    return (
        a.swapaxes(-1, -2) if attributes.get("trans_a") else a,
        b.swapaxes(-1, -2) if attributes.get("trans_b") else b,
        None if c is None else widen(c),
    )


def linear_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input @ weightᵀ + bias."""
    x, weight, bias = _linear_operands(inputs)
    return (_add_bias(_matrix_product(x, weight, _dtype_of_result(inputs, attributes)), bias),)


def _linear_operands(inputs: Inputs) -> tuple[Array, Array, Array | None]:
    """Return input, the transposed weight and bias, widened."""
    x, weight = widen(np.asarray(inputs[0])), widen(np.asarray(inputs[1]))
    bias = optional_input(inputs, 2)
    return x, weight.T, None if bias is None else widen(bias)


def _add_bias(total: Array, bias: Array | None) -> Array:
    # The bias has the dtype of the result, so that integers wrap.
    return total if bias is None else np.asarray(total + bias)


# Below the normal range a product is off by half a subnormal, whatever its size: `terms_of_products` adds that to the
# bound wherever products are added up.


def matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output element: its products."""
    a, b = as_float64(inputs[0]), as_float64(inputs[1])
    absolute, squared = np.asarray(np.abs(a) @ np.abs(b)), np.asarray((a * a) @ (b * b))
    return (terms_of_products(absolute, squared, a.shape[-1], np.asarray(inputs[0])),)


bmm_terms = matmul_terms


def gemm_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output element: alpha · products and beta · c, and one more per factor other than 1."""
    a, b, c = _gemm_operands(inputs, attributes)
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
    """Return the terms of each output element: its products and the bias."""
    x, weight, bias = _linear_operands(inputs)
    x, weight = x.astype(np.float64, copy=False), weight.astype(np.float64, copy=False)
    absolute, squared = np.asarray(np.abs(x) @ np.abs(weight)), np.asarray((x * x) @ (weight * weight))
    count = x.shape[-1]
    if bias is not None:
        added = np.abs(bias.astype(np.float64))
        absolute, squared, count = absolute + added, squared + added * added, count + 1
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0])),)


def _conv_reference(inputs: Inputs, attributes: Attributes, rank: int) -> tuple[Array, ...]:
    """Return the convolution over ``rank`` spatial dimensions, as products of matrices (im2col)."""
    x, weight, bias = np.asarray(inputs[0]), np.asarray(inputs[1]), optional_input(inputs, 2)
    window = window_of(spec_of(x), spec_of(weight), attributes, rank)
    rows, columns = _weight_rows(widen(weight), window), _window_columns(widen(x), window)
    total = _matrix_product(rows, columns, _dtype_of_result(inputs, attributes))
    total = total.reshape(_output_shape(x, weight, window))
    return (_add_bias(total, None if bias is None else _bias_by_channel(widen(bias), rank)),)


def _conv_terms(rank: int) -> Callable[[Inputs, Attributes], tuple[Terms, ...]]:
    """Return the function that returns the terms of a convolution over ``rank`` spatial dimensions."""

    def terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
        """Return the terms of each output element: products under the kernel, those with padding too, and the bias."""
        x, weight, bias = np.asarray(inputs[0]), np.asarray(inputs[1]), optional_input(inputs, 2)
        window = window_of(spec_of(x), spec_of(weight), attributes, rank)
        rows = np.abs(_weight_rows(as_float64(weight), window))
        columns = _window_columns(np.abs(as_float64(x)), window)
        shape = _output_shape(x, weight, window)
        absolute = np.matmul(rows, columns).reshape(shape)
        # In place: the columns are the largest array here.
        np.multiply(columns, columns, out=columns)
        squared = np.matmul(rows * rows, columns).reshape(shape)
        count = rows.shape[-1]
        if bias is not None:
            added = np.abs(_bias_by_channel(as_float64(bias), rank))
            absolute, squared, count = absolute + added, squared + added * added, count + 1
        return (terms_of_products(absolute, squared, count, x),)

    return terms


conv1d_reference, conv2d_reference, conv3d_reference = (partial(_conv_reference, rank=rank) for rank in (1, 2, 3))
conv1d_terms, conv2d_terms, conv3d_terms = map(_conv_terms, (1, 2, 3))


def _bias_by_channel(bias: Array, rank: int) -> Array:
    return bias.reshape(-1, *(1,) * rank)


def _weight_rows(weight: Array, window: Window) -> Array:
    """Return the weight as (groups, output channels of a group, products)."""
    return np.ascontiguousarray(weight).reshape(window.groups, weight.shape[0] // window.groups, -1)


def _window_columns(x: Array, window: Window) -> Array:
    """Copy the padded input under the kernel at each position into (batch, groups, products, positions)."""
    rank = len(window.kernel)
    batched = x if x.ndim == rank + 2 else x[None]
    padded = np.pad(batched, ((0, 0), (0, 0), *window.padding)) if any(map(any, window.padding)) else batched
    lead, steps = padded.strides[:2], padded.strides[2:]
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (*padded.shape[:2], *window.kernel, *window.out),
        (
            *lead,
            *(step * dilation for step, dilation in zip(steps, window.dilation, strict=True)),
            *(step * stride for step, stride in zip(steps, window.stride, strict=True)),
        ),
        writeable=False,
    )
    products = padded.shape[1] // window.groups * window.taps
    return np.asarray(windows.copy().reshape(padded.shape[0], window.groups, products, int(np.prod(window.out))))


def _output_shape(x: Array, weight: Array, window: Window) -> tuple[int, ...]:
    lead = x.shape[: x.ndim - len(window.kernel) - 1]
    return (*lead, weight.shape[0], *window.out)


def einsum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the sums of products of an equation; integers wrap to their dtype."""
    arrays, equation = infer_from_arrays(equation_of, inputs, attributes)
    result = dtype_of(arrays[0].dtype)
    if result.is_integer:
        wide = [array.astype(np.int64) for array in arrays]
        return (_contract(wide, equation, dtype("int64")).astype(numpy_dtype(result)),)
    return (_contract([widen(array) for array in arrays], equation, result),)


def einsum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output element: its products of one element of each operand."""
    _, equation = infer_from_arrays(equation_of, inputs, attributes)
    sizes = [np.abs(as_float64(operand)) for operand in inputs]
    double = dtype("float64")
    absolute = _contract(sizes, equation, double)
    squared = _contract([size * size for size in sizes], equation, double)
    # A product of n elements is rounded n − 1 times. The first rounding fuses with the sum or is covered by the term,
    # each other one counts as a further term.
    count = equation.length + max(0, len(inputs) - 2)
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0])),)


def _contract(arrays: Sequence[Array], equation: Equation, result: DType) -> Array:
    """Evaluate an equation from left to right, two operands at a time."""
    operands = [
        _with_distinct_labels(array, labels, equation) for array, labels in zip(arrays, equation.operands, strict=True)
    ]
    current, labels = operands[0]
    for index, (operand, operand_labels) in enumerate(operands[1:], 1):
        later = {label for _, labels_of_later in operands[index + 1 :] for label in labels_of_later}
        kept = later.union(equation.output)
        current, labels = _contract_pair(current, labels, operand, operand_labels, kept, result)
    current, labels = _sum_out(current, labels, set(equation.output))
    return np.asarray(current.transpose([labels.index(label) for label in equation.output]))


def _with_distinct_labels(array: Array, labels: Labels, equation: Equation) -> tuple[Array, Labels]:
    """Return an operand and its labels with diagonals of repeated labels, without dimensions that are broadcast."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = [index for index, name in enumerate(labels) if name == label][:2]
            array = array.diagonal(axis1=first, axis2=second)
            labels = (*(name for index, name in enumerate(labels) if index not in (first, second)), label)
    broadcast = tuple(i for i, label in enumerate(labels) if array.shape[i] != equation.sizes[label])
    return array.squeeze(broadcast), tuple(label for i, label in enumerate(labels) if i not in broadcast)


def _sum_out(array: Array, labels: Labels, kept: set[str]) -> tuple[Array, Labels]:
    """Sum over the labels that are not in ``kept``; return the sums and the labels left."""
    summed = tuple(index for index, label in enumerate(labels) if label not in kept)
    return np.asarray(array.sum(axis=summed) if summed else array), tuple(label for label in labels if label in kept)


def _contract_pair(
    a: Array, a_labels: Labels, b: Array, b_labels: Labels, kept: set[str], result: DType
) -> tuple[Array, Labels]:
    """Multiply two operands and sum over the labels that are not in ``kept``; return the result and its labels."""
    a, a_labels = _sum_out(a, a_labels, kept.union(b_labels))
    b, b_labels = _sum_out(b, b_labels, kept.union(a_labels))
    batch = tuple(label for label in a_labels if label in b_labels and label in kept)
    inner = tuple(label for label in a_labels if label in b_labels and label not in kept)
    left = tuple(label for label in a_labels if label not in b_labels)
    right = tuple(label for label in b_labels if label not in a_labels)
    sizes = {**dict(zip(a_labels, a.shape, strict=True)), **dict(zip(b_labels, b.shape, strict=True))}

    def grouped(array: Array, labels: Labels, *groups: Labels) -> Array:
        # One dimension per group of labels: a batch of matrices.
        order = [labels.index(label) for group in groups for label in group]
        shape = [int(np.prod([sizes[label] for label in group])) for group in groups]
        return np.asarray(array.transpose(order).reshape(shape))

    matrices = grouped(a, a_labels, batch, left, inner), grouped(b, b_labels, batch, inner, right)
    total = _matrix_product(*matrices, result)
    labels = (*batch, *left, *right)
    return np.asarray(total.reshape([sizes[label] for label in labels])), labels


def grouped_matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return each row of the input times its expert's matrix, 0 in rows behind the last expert."""
    infer_from_arrays(infer_grouped_matmul, inputs, attributes)
    return (_multiply_by_expert(as_float64(inputs[0]), as_float64(inputs[1]), inputs[2]),)


def grouped_matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output element: its products."""
    x, weight = (np.abs(as_float64(operand)) for operand in inputs[:2])
    absolute = _multiply_by_expert(x, weight, inputs[2])
    squared = _multiply_by_expert(x * x, weight * weight, inputs[2])
    return (terms_of_products(absolute, squared, x.shape[1], np.asarray(inputs[0])),)


def grouped_matmul_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return the mask of rows behind the last expert, which may have any values."""
    end = int(np.asarray(inputs[2])[-1]) if np.asarray(inputs[2]).size else 0
    return (np.broadcast_to(np.arange(len(actual[0]))[:, None] >= end, actual[0].shape),)


def _multiply_by_expert(x: Array, weight: Array, offs: Any) -> Array:
    """Return the rows up to each offset times the matrix of that expert, 0 in rows behind the last offset.

    Raises:
        UnfitArguments: for offsets that are negative, decrease or exceed the number of rows.
    """
    ends = [0, *np.asarray(offs).tolist()]
    if sorted(ends) != ends or ends[-1] > len(x):
        raise UnfitArguments(
            f"offs is {ends[1:]}, expected numbers that do not decrease, from 0 to {len(x)}, the rows of input"
        )
    out = np.zeros((len(x), weight.shape[2]))
    for expert, (start, stop) in enumerate(pairwise(ends)):
        out[start:stop] = x[start:stop] @ weight[expert]
    return out


quiet_hooks(globals())

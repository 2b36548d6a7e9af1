"""What einsum computes, and its terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.numerics import dtype_of, numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, quiet, spec_of, widen
from optest.operators.budgets import terms_of_products
from optest.operators.contraction.einsum import Equation, equation_of
from optest.operators.contraction.matmul_reference import product
from optest.spec import DType, Terms, dtype

_Labels = tuple[str, ...]
_INT64 = dtype("int64")


@quiet
def einsum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    arrays = [np.asarray(each) for each in inputs]
    equation = equation_of([spec_of(each) for each in arrays], attributes)
    result = dtype_of(arrays[0].dtype)
    if result.is_integer:
        wide = [each.astype(np.int64) for each in arrays]
        return (_contracted(wide, equation, _INT64).astype(numpy_dtype(result)),)
    return (_contracted([widen(each) for each in arrays], equation, result),)


@quiet
def einsum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products of one element of each operand; each product of n elements is rounded n − 1 times,
    the first of which fuses with a sum or is covered by its term: n − 2 further terms."""
    equation = equation_of([spec_of(np.asarray(each)) for each in inputs], attributes)
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

"""Samples of the contractions pass with correct kernels that compute in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import widened_as_kernels_do as working
from sample_questions import wrong_answers

from optest.operators.arrays import spec_of
from optest.operators.contraction.convolution import window_of
from optest.operators.contraction.einsum import read_equation

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]


def product(inputs: Inputs, _: Attributes) -> Any:
    return working(inputs[0]) @ working(inputs[1])


def gemm(inputs: Inputs, attributes: Attributes) -> Any:
    a, b, c = (working(each) for each in (*inputs, None)[:3])
    a = a.swapaxes(-1, -2) if attributes["trans_a"] else a
    b = b.swapaxes(-1, -2) if attributes["trans_b"] else b
    kind, nothing = a.dtype.type, np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
    total = kind(attributes["alpha"]) * (a @ b) if attributes["alpha"] else nothing
    return total if c is None or not attributes["beta"] else total + kind(attributes["beta"]) * c


def linear(inputs: Inputs, _: Attributes) -> Any:
    x, weight, bias = (working(each) for each in (*inputs, None)[:3])
    total = x @ weight.swapaxes(-1, -2) if weight.ndim > 1 else x @ weight
    return total if bias is None else total + bias


def einsum(inputs: Inputs, attributes: Attributes) -> Any:
    """Return np.einsum's result, with ellipses and broadcast dimensions resolved."""
    arrays = [working(operand) for operand in inputs]
    equation = read_equation(attributes["equation"], [array.shape for array in arrays])
    numbers = {label: index for index, label in enumerate(equation.sizes)}
    operands: list[Any] = []
    for array, labels in zip(arrays, equation.operands, strict=True):
        kept = [i for i, label in enumerate(labels) if array.shape[i] == equation.sizes[label]]
        operands += [array.reshape([array.shape[i] for i in kept]), [numbers[labels[i]] for i in kept]]
    shape = [equation.sizes[label] for label in equation.output]
    return np.einsum(*operands, [numbers[label] for label in equation.output]).reshape(shape)


def convolve(inputs: Inputs, attributes: Attributes) -> Any:
    """Return a direct convolution that gathers the input under the kernel at each position."""
    x, weight, bias = (working(each) for each in (*inputs, None)[:3])
    rank = weight.ndim - 2
    window = window_of(spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1])), attributes, rank)
    batched = x if x.ndim == rank + 2 else x[None]
    seen = batched
    for axis in range(rank):
        out, kernel = np.arange(window.out[axis]), np.arange(window.kernel[axis])
        places = np.add.outer(kernel * window.dilation[axis], out * window.stride[axis]) - window.padding[axis][0]
        size = batched.shape[2 + axis]
        where = 2 + 2 * axis
        seen = np.take(seen, np.clip(places, 0, size - 1), axis=where)
        shape = [1] * seen.ndim
        shape[where : where + 2] = places.shape
        seen = np.where(((places >= 0) & (places < size)).reshape(shape), seen, 0)
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    channels = batched.shape[1] // window.groups
    shape = (batched.shape[0], window.groups, channels * window.taps, int(np.prod(window.out)))
    seen = seen.transpose(order).reshape(shape)
    rows = weight.reshape(window.groups, weight.shape[0] // window.groups, -1)
    total = (rows @ seen).reshape(batched.shape[0], weight.shape[0], *window.out)
    total = total if bias is None else total + bias.reshape(1, -1, *(1,) * rank)
    return total if x.ndim == rank + 2 else total[0]


KERNELS = {
    **dict.fromkeys(("matmul", "bmm"), product),
    "gemm": gemm,
    "linear": linear,
    "einsum": einsum,
    **dict.fromkeys(("conv1d", "conv2d"), convolve),
}


@pytest.mark.parametrize("operator", KERNELS)
def test_correct_kernels_pass(operator: str) -> None:
    assert wrong_answers(operator, KERNELS[operator]) == []

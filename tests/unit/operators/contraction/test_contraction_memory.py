"""Kernels that read memory wrongly or count in 16 bits are found in contractions, poolings and attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import Kernel, wrong_answers

from optest.operators import operators
from optest.registry import load_object

Array = np.ndarray[Any, Any]

OPERATORS = {
    "matmul": 2,
    "bmm": 2,
    "gemm": 3,
    "linear": 3,
    "einsum": 2,
    "conv1d": 3,
    "conv2d": 3,
    "max_pool2d": 1,
    "avg_pool2d": 1,
    "adaptive_avg_pool2d": 1,
    "scaled_dot_product_attention": 3,
    "rope": 3,
}
"""How many of the inputs are asked in layouts of their own."""


def storage_of(array: Array) -> Array:
    """The one-dimensional array that a view was made of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.reshape(-1)


def read_dense(array: Any) -> Any:
    """As a kernel reads it that does not ask for strides: row by row from the first element on."""
    if array is None or array.flags.c_contiguous:
        return array
    start = (array.__array_interface__["data"][0] - storage_of(array).__array_interface__["data"][0]) // array.itemsize
    return np.resize(storage_of(array)[start:], array.shape)


def read_from_the_start(array: Any) -> Any:
    """As a kernel reads it that forgets the offset of a dense view in its storage."""
    if array is None or not array.flags.c_contiguous or not array.size or array.base is None:
        return array
    return np.resize(storage_of(array), array.shape)


def read_transposed(array: Any) -> Any:
    """As a kernel reads it that takes any layout that is not dense for a transposed one."""
    if array is None or array.flags.c_contiguous or array.ndim < 2:
        return array
    return np.ascontiguousarray(array.swapaxes(-1, -2)).reshape(array.shape)


READERS: dict[str, Callable[[Any], Any]] = {
    "strides ignored": read_dense,
    "offset ignored": read_from_the_start,
    "taken for transposed": read_transposed,
}


def reading(name: str, index: int, reader: Callable[[Any], Any]) -> Kernel:
    reference = load_object(operators.get(name).reference)

    def kernel(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        read = [reader(each) if place == index else each for place, each in enumerate(inputs)]
        return reference(read, attributes)[0]

    return kernel


INPUTS = [(name, index) for name, count in OPERATORS.items() for index in range(count)]
MATRICES = [(name, index) for name, index in INPUTS if index < 2 or name in ("gemm", "scaled_dot_product_attention")]
"""Those that have two dimensions; the third input of the others is a bias, or a table that is asked in few layouts."""
READ_WRONGLY = [
    *((name, index, how) for name, index in INPUTS for how in ("strides ignored", "offset ignored")),
    *((name, index, "taken for transposed") for name, index in MATRICES),
]


@pytest.mark.parametrize(("name", "index", "how"), READ_WRONGLY)
def test_a_layout_that_is_read_wrongly_is_found(name: str, index: int, how: str) -> None:
    assert wrong_answers(name, reading(name, index, READERS[how]), first=True)


def counting(name: str, fault: str) -> Kernel:
    reference = load_object(operators.get(name).reference)

    def kernel(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        out = np.array(reference(inputs, attributes)[0])
        flat = out.reshape(-1)
        if fault == "results beyond 65,536 are never written":
            flat[65_536:] = 0
        if fault == "the last result":
            flat[-1:] = flat[-1:] + flat[-1:] // 2 + 1
        if fault == "the last of every 128":
            flat[127::128] = 0
        return flat.reshape(out.shape)

    return kernel


@pytest.mark.parametrize(
    "fault", ["results beyond 65,536 are never written", "the last result", "the last of every 128"]
)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_that_are_left_out_are_found(name: str, fault: str) -> None:
    assert wrong_answers(name, counting(name, fault), first=True)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_references_themselves_raise_no_alarm(name: str) -> None:
    assert wrong_answers(name, counting(name, "none")) == []

"""Tensors for the reference lie in the memory of arrays, read-only ones too; what it may write to is its own."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from optest.backends.torch_calls.cpu_tensors import on_cpu, widened
from optest.backends.torch_tensors import to_read

DTYPES = [np.float16, np.float32, np.complex64, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def read_only(dtype: Any) -> Any:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_shares_read_only_memory(dtype: Any) -> None:
    array = read_only(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = to_read(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.shape == (3, 4)
    wide = torch.arange(12).reshape(3, 4).to(tensor.dtype).to(torch.complex128)
    assert torch.equal(tensor.to(torch.complex128), wide)


def test_memory_stays_as_long_as_the_tensor() -> None:
    tensor = to_read(read_only(np.float32))
    others = [np.full(12, 7.0, np.float32) for _ in range(100)]
    assert tensor.sum() == 66.0
    assert len(others) == 100


@pytest.mark.parametrize("make", [on_cpu, widened])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_may_be_written_is_a_copy(make: Any, dtype: Any) -> None:
    array = read_only(dtype)
    before = array.tobytes()
    (tensor,) = make([array])
    tensor.zero_()
    assert array.tobytes() == before


def test_elements_that_lie_apart_are_copied_as_before() -> None:
    array = read_only(np.float32)
    for each in (array[:, ::2], np.broadcast_to(array[:1], (5, 4)), array[:0]):
        each.setflags(write=False)
        assert np.array_equal(to_read(each).numpy(), each)

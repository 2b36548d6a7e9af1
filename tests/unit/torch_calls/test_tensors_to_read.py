"""Tensors for the reference lie in the memory of arrays, read-only ones too; what it may write to is its own."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from optest.torch.tensors import on_cpu, to_read, to_torch, widened

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


LAYOUTS = {
    "gaps": lambda array: array[:, ::2],
    "stride 0": lambda array: np.broadcast_to(array[:1], (5, 4)),
    "overlap": lambda array: np.ndarray(
        (4, 3), array.dtype, buffer=array.view(np.uint8), strides=(2 * array.itemsize, array.itemsize)
    ),
    "transposed": lambda array: array.T,
    "empty": lambda array: array[:0],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_of_read_only_memory_is_kept(name: str, dtype: Any) -> None:
    """Whether a view can be had, and what as_strided yields, follows from it."""
    each = LAYOUTS[name](read_only(dtype))
    each.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read, device = to_read(each), to_torch(each, torch.device("cpu"))
        (copied,), (wide,) = on_cpu([each]), widened([each])
    steps = tuple(stride // each.itemsize for stride in each.strides)
    for tensor in (read, device, copied, wide):
        assert tensor.shape == each.shape
        assert tensor.stride() == steps or not each.size
        assert np.array_equal(tensor.to(torch.complex128).numpy(), each.astype(np.complex128))
    if each.size and name != "transposed":
        assert read.data_ptr() == each.ctypes.data
    for own in (device, copied, wide):
        assert own.data_ptr() != each.ctypes.data or not each.size

"""NumPy arrays to torch tensors and back: same bits for every dtype, same strides for every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.numerics import bits, empty_storage, numpy_dtype, view
from optest.spec import DTYPES, TensorSpec
from optest.spec import dtype as dtype_called

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from optest.torch.tensors import TORCH_DTYPES, Inexpressible, _in_new_storage, from_torch, to_torch  # noqa: E402

CPU = torch.device("cpu")
HERE = sorted(TORCH_DTYPES)


def every_bit_pattern(name: str) -> np.ndarray[Any, Any]:
    """Return random bytes as ``name``: NaN payloads, infinities, subnormals and both zeros; 0 and 1 for bool."""
    kind = numpy_dtype(dtype_called(name))
    raw = np.random.default_rng(1).integers(0, 2 if name == "bool" else 256, 64 * kind.itemsize, dtype=np.uint8)
    return raw.view(kind)


def test_torch_has_every_dtype_except_4_bit() -> None:
    assert {entry.name for entry in DTYPES} - set(TORCH_DTYPES) == {"int4", "uint4"}


@pytest.mark.parametrize("name", HERE)
def test_bits_survive_both_directions(name: str) -> None:
    array = every_bit_pattern(name)
    tensor = to_torch(array, CPU)
    assert tensor.dtype is TORCH_DTYPES[name]
    back = from_torch(tensor)
    assert back.dtype == array.dtype
    assert (bits(back) == bits(array)).all()


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_scalars_and_empty_tensors(name: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, numpy_dtype(dtype_called(name)))
    back = from_torch(to_torch(array, CPU))
    assert (back.shape, back.dtype) == (array.shape, array.dtype)


LAYOUTS = [
    ((3, 4), (1, 3), 0), ((3, 4), (8, 2), 5), ((3, 4), (0, 1), 0), ((3, 4), (0, 0), 2), ((2, 3), (2, 1), 1),
    ((5,), (7,), 3), ((2, 1, 3), (3, 99, 1), 0),
]  # fmt: skip


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "int8", "complex64", "bool", "uint16"])
@pytest.mark.parametrize(("shape", "strides", "offset"), LAYOUTS)
def test_layouts_stay_in_both_kinds_of_storage(name: str, shape: Any, strides: Any, offset: int) -> None:
    spec = TensorSpec(dtype=dtype_called(name), shape=shape, strides=strides, offset=offset)
    storage = np.resize(every_bit_pattern(name), spec.storage_elements)
    array = view(storage, spec)
    tensor = to_torch(array, CPU)
    relevant = [i for i, size in enumerate(shape) if size > 1]
    assert [tensor.stride()[i] for i in relevant] == [strides[i] for i in relevant]
    assert tensor.data_ptr() == array.ctypes.data
    rebuilt = _in_new_storage(tensor, CPU, offset)  # what happens on a device
    assert [rebuilt.stride()[i] for i in relevant] == [strides[i] for i in relevant]
    assert rebuilt.storage_offset() == offset
    assert rebuilt.data_ptr() != array.ctypes.data
    for each in (tensor, rebuilt):
        assert (bits(from_torch(each)) == bits(array)).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_any_layout_has_same_elements(shape: list[int], data: st.DataObject) -> None:
    strides = tuple(data.draw(st.integers(0, 6)) for _ in shape)
    spec = TensorSpec(dtype=dtype_called("bfloat16"), shape=tuple(shape), strides=strides, offset=2)
    storage = empty_storage(spec)
    storage[:] = np.arange(storage.size)
    array = view(storage, spec)
    tensor = to_torch(array, CPU)
    assert (bits(from_torch(tensor)) == bits(array)).all()
    assert (bits(from_torch(_in_new_storage(tensor, CPU, 3))) == bits(array)).all()


def test_cpu_tensors_share_or_copy_memory() -> None:
    array = np.zeros(3, np.float32)
    to_torch(array, CPU).fill_(7)
    assert array.tolist() == [7, 7, 7]
    array = np.arange(3.0)
    array.flags.writeable = False
    assert from_torch(to_torch(array, CPU)).tolist() == [0, 1, 2]
    tensor = torch.tensor([1 + 2j]).conj()
    assert from_torch(tensor).tolist() == [1 - 2j]
    assert from_torch(tensor.imag).tolist() == [-2]


def test_unsupported_arrays_are_errors() -> None:
    with pytest.raises(Inexpressible, match="no negative strides"):
        to_torch(np.arange(3)[::-1], CPU)
    with pytest.raises(Inexpressible, match="no tensors of int4"):
        to_torch(np.zeros(3, numpy_dtype(dtype_called("int4"))), CPU)
    with pytest.raises(KeyError):
        from_torch(torch.zeros(2, dtype=torch.float8_e5m2fnuz))

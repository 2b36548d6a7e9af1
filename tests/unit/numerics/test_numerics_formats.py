"""Element types, their bits and their layouts in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.errors import UnknownName
from optest.numerics import bits, dtype_of, empty_storage, numpy_dtype, private_copy, view, widen
from optest.spec import DTYPES, DType, Kind, TensorSpec, dtype


@pytest.mark.parametrize("entry", DTYPES, ids=str)
def test_dtype_round_trip(entry: DType) -> None:
    assert dtype_of(numpy_dtype(entry)) is entry
    assert numpy_dtype(entry).itemsize == entry.itemsize_bytes


@pytest.mark.parametrize("foreign", [">f4", "f16", "V2", "U3", "O", "M8[s]"])
def test_unknown_dtypes_are_refused(foreign: str) -> None:
    with pytest.raises(UnknownName, match="unknown dtype"):
        dtype_of(np.dtype(foreign))


@pytest.mark.parametrize("entry", DTYPES, ids=str)
def test_bits_distinguish_zeros_and_keep_shape(entry: DType) -> None:
    values = np.zeros((2, 3), np.int64).astype(numpy_dtype(entry))
    assert bits(values).shape == (2, 3)
    assert (bits(values) == bits(values.copy())).all()
    values[1, 2] = 1
    assert (bits(values) != bits(np.zeros_like(values))).tolist() == [[False] * 3, [False, False, True]]
    if entry.is_inexact:
        negative = np.array([-0.0]).astype(numpy_dtype(entry))
        assert (bits(negative) != bits(np.zeros_like(negative))).all()
    strided = values[::-1, ::2]
    assert bits(strided).shape == strided.shape


def test_upper_half_of_4_bit_byte_is_ignored() -> None:
    for name in ("int4", "uint4"):
        garbage = np.array([0xF7, 0x07], np.uint8).view(numpy_dtype(dtype(name)))
        assert bits(garbage).tolist() == [7, 7]
        assert widen(garbage).tolist() == [7, 7]


@pytest.mark.parametrize("entry", [each for each in DTYPES if each.bits <= 16], ids=str)
def test_widening_is_exact(entry: DType) -> None:
    codes = np.arange(1 << entry.bits if entry.kind is not Kind.BOOL else 2, dtype=f"u{entry.itemsize_bytes}")
    values = codes.view(numpy_dtype(entry))
    wide = widen(values)
    with np.errstate(invalid="ignore"):
        back = wide.astype(numpy_dtype(entry))
    nan = np.isnan(wide) if entry.is_float else np.zeros(values.shape, bool)
    assert (bits(back) == bits(values))[~nan].all()
    assert wide.dtype == (np.float64 if entry.is_float else {4: f"{entry.kind.value}8"}.get(entry.bits, values.dtype))


def test_widen_keeps_wide_dtypes() -> None:
    for name, wide in (("int64", "int64"), ("uint64", "uint64"), ("bool", "bool"), ("complex64", "complex128")):
        assert widen(np.ones(2, name)).dtype == wide


layouts = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=4)


def spec_of(layout: list[tuple[int, int]], gap: int, name: str = "float32") -> TensorSpec:
    shape = tuple(size for size, _ in layout)
    strides = tuple(stride for _, stride in layout)
    before = -sum(min(0, (size - 1) * stride) for size, stride in layout) if all(shape) else 0
    return TensorSpec(dtype=dtype(name), shape=shape, strides=strides, offset=before + gap)


@given(layout=layouts, gap=st.integers(0, 3), name=st.sampled_from(["float32", "bfloat16", "int4", "complex128"]))
def test_view_reads_strided_elements(layout: list[tuple[int, int]], gap: int, name: str) -> None:
    spec = spec_of(layout, gap, name)
    storage = np.arange(spec.storage_elements).astype(numpy_dtype(spec.dtype))
    tensor = view(storage, spec)
    assert tensor.shape == spec.shape
    for index in np.ndindex(*spec.shape):
        place = spec.offset + sum(at * stride for at, stride in zip(index, spec.strides or (), strict=True))
        assert bits(tensor)[index] == bits(storage)[place]


@given(layout=layouts, gap=st.integers(0, 3), name=st.sampled_from(["float32", "bfloat16", "bool"]))
def test_private_copy_keeps_strides_and_overlap(layout: list[tuple[int, int]], gap: int, name: str) -> None:
    spec = spec_of(layout, gap, name)
    storage = (np.arange(spec.storage_elements) % 7).astype(numpy_dtype(spec.dtype))
    tensor = view(storage, spec)
    copy = private_copy(tensor)
    assert (copy == tensor).all()
    assert copy.flags.writeable
    assert not np.shares_memory(copy, tensor)
    if tensor.size and not tensor.flags.c_contiguous:
        assert copy.strides == tensor.strides
        before = tensor.copy()
        tensor[...] = 1
        assert (copy == before).all()
        copy[...] = 0
        assert (tensor == 1).all()


def test_private_copy_of_overlapping_array_overlaps() -> None:
    repeated = view(np.array([1.0, 2.0]), TensorSpec(dtype=dtype("float64"), shape=(3, 2), strides=(0, 1)))
    copy = private_copy(repeated)
    copy[0, 0] = 9
    assert copy[:, 0].tolist() == [9, 9, 9]
    assert repeated[0, 0] == 1


def test_view_shares_storage_and_write_protection() -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=(2, 2), strides=(1, 2), offset=1)
    storage = np.zeros(5, np.float32)
    view(storage, spec)[0, 1] = 5
    assert storage.tolist() == [0, 0, 0, 5, 0]
    storage.flags.writeable = False
    assert not view(storage, spec).flags.writeable


def test_view_refuses_unsuitable_storage() -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=(2, 2), strides=(3, 1))
    assert empty_storage(spec).shape == (5,)
    for storage, words in (
        (np.zeros(4, np.float32), "has 4 elements, expected 5"),
        (np.zeros(5), "is float64, expected float32"),
        (np.zeros(10, np.float32)[::2], "contiguous"),
        (np.zeros((5, 1), np.float32), "contiguous vector"),
    ):
        with pytest.raises(ValueError, match=words):
            view(storage, spec)


@pytest.mark.parametrize(("strides", "offset"), [(None, 3), ((-4, 1), 11), ((0, 2), 5), ((1, 3), 2)])
def test_private_copy_keeps_alignment(strides: tuple[int, ...] | None, offset: int) -> None:
    """Kernels load vectors: what is not aligned in the plan must not be aligned in the call."""
    spec = TensorSpec(dtype=dtype("float32"), shape=(3, 4), strides=strides, offset=offset)
    storage = np.arange(spec.storage_elements, dtype=np.float32)
    tensor = view(storage, spec)
    copy = private_copy(tensor, spec.lowest_index)
    base = copy
    while base.base is not None:
        base = base.base
    assert (copy.ctypes.data - base.ctypes.data) == offset * 4
    assert copy.strides == tensor.strides
    np.testing.assert_array_equal(copy, tensor)
    assert not np.shares_memory(copy, tensor)

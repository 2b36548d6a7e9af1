"""Element types, their bits and their layouts in memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.api import bootstrap
from optest.api.checking import sample_cases
from optest.errors import UnknownName
from optest.memory.margins import Margins
from optest.numerics import (
    are_same_memory,
    bits,
    dtype_of,
    empty_storage,
    is_packed,
    layout,
    numpy_dtype,
    private_copy,
    view,
    widen,
)
from optest.spec import DTYPES, Argument, DType, Fill, Kind, TensorSpec, dtype


@pytest.mark.parametrize("entry", DTYPES, ids=str)
def test_dtypes_and_bits_are_one_to_one(entry: DType) -> None:
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
    assert dtype_of(numpy_dtype(entry)) is entry
    assert numpy_dtype(entry).itemsize == entry.itemsize_bytes


@pytest.mark.parametrize("foreign", [">f4", "f16", "V2", "U3", "O", "M8[s]"])
def test_unknown_dtypes_are_refused(foreign: str) -> None:
    with pytest.raises(UnknownName, match="unknown dtype"):
        dtype_of(np.dtype(foreign))


def test_narrow_and_wide_dtypes_are_widened() -> None:
    for name in ("int4", "uint4"):
        garbage = np.array([0xF7, 0x07], np.uint8).view(numpy_dtype(dtype(name)))
        assert bits(garbage).tolist() == [7, 7]
        assert widen(garbage).tolist() == [7, 7]
    for name, wide in (("int64", "int64"), ("uint64", "uint64"), ("bool", "bool"), ("complex64", "complex128")):
        assert widen(np.ones(2, name)).dtype == wide


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
        position = spec.offset + int(np.dot(index, spec.strides or ()))
        assert bits(tensor)[index] == bits(storage)[position]


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


def test_views_and_copies_overlap_like_storage() -> None:
    repeated = view(np.array([1.0, 2.0]), TensorSpec(dtype=dtype("float64"), shape=(3, 2), strides=(0, 1)))
    copy = private_copy(repeated)
    copy[0, 0] = 9
    assert copy[:, 0].tolist() == [9, 9, 9]
    assert repeated[0, 0] == 1
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


BASE = np.zeros(64, np.float32)


@pytest.mark.parametrize(
    ("shape", "strides", "packed"),
    [
        ((), (), True),
        ((3,), (1,), True),
        ((3,), (2,), False),
        ((3, 5), (5, 1), True),
        ((3, 5), (1, 3), False),
        ((3, 5), (0, 1), False),
        ((1, 5), (5, 1), True),
        ((1, 5), (13, 1), False),
        ((5, 1), (1, 1), True),
        ((5, 1), (1, 7), False),
        ((0, 3), (3, 1), True),
        ((0, 3), (4, 1), False),
        ((2, 0, 3), (3, 3, 1), True),
    ],
)
def test_is_packed_by_strides(shape: tuple[int, ...], strides: tuple[int, ...], packed: bool) -> None:
    array = np.lib.stride_tricks.as_strided(BASE, shape, [4 * step for step in strides])
    assert is_packed(array) is packed


def test_reversed_array_is_not_packed() -> None:
    assert not is_packed(BASE[::-1])


@pytest.mark.parametrize("place", [0, 63, 64, 200, 399])
def test_one_different_byte_is_detected(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(layout, "_BLOCK_BYTES", 64)
    one = np.arange(100, dtype=np.float32)
    other = one.copy()
    assert are_same_memory(one, other)
    other.view(np.uint8)[place] ^= 1
    assert not are_same_memory(one, other)


def test_same_memory_is_compared_by_bytes() -> None:
    storage = np.arange(40, dtype=np.int16)
    one = storage[3:33:5]
    other = private_copy(one)
    assert are_same_memory(one, other)
    assert other.base is not None
    other.base.view(np.int16)[1] ^= 1
    assert (one == other).all()
    assert not are_same_memory(one, other)
    floats = np.array([np.nan, -0.0])
    assert are_same_memory(floats, floats.copy())
    assert not are_same_memory(floats, np.array([np.nan, 0.0]))
    assert are_same_memory(floats[:0], floats[:0].copy())


ODD = [(13, 1), (0, 1), (-3, 1)]


def odd_spec(strides: tuple[int, ...] | None) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=(1, 5), strides=strides)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [*(((1, 5), strides) for strides in ODD), ((0, 3), (0, 1)), ((3, 0), (0, 0)), ((0,), (0,)), ((0, 3), (7, 2))],
)
def test_private_copy_keeps_odd_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=shape, strides=strides)
    array = view(np.arange(5 if all(shape) else 0, dtype=np.float32), spec)
    copies = [private_copy(array), Margins(64).around(array, 0).array]
    for each in copies:
        assert each.strides == array.strides == tuple(4 * stride for stride in strides)
        assert each.tolist() == array.tolist()
        assert not np.shares_memory(each, array)


def test_odd_strides_are_part_of_case_key() -> None:
    """Cases of one key are run once: with these left out, none but the dense one ran."""
    bootstrap()
    case = sample_cases("relu")[0]

    def key(strides: tuple[int, ...] | None) -> str:
        argument = Argument(name="input", path="input0", spec=odd_spec(strides), fill=Fill(kind="randn"))
        return dataclasses.replace(case, inputs=(argument,)).key

    assert len({key(each) for each in (None, *ODD)}) == 4
    assert key((5, 1)) == key(None)
    assert odd_spec((13, 1)).is_dense
    assert not odd_spec((13, 1)).is_plain
    assert "strides [13, 1]" in str(odd_spec((13, 1)))

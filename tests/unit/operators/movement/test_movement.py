"""Movements put every element where torch puts it, refuse what it refuses, and leave bits alone in every dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from references import REFUSALS, by_torch, expected_all, inferred, same, spec, specs_of
from texts import refusal

from optest.numerics import bits, numpy_dtype
from optest.operators import operators
from optest.spec import DTYPES, UnfitArguments, dtype

Array = np.ndarray[Any, Any]
many = settings(deadline=None, max_examples=40)


def moved(operator: str, *inputs: Array, **attributes: Any) -> list[Array]:
    found = expected_all(operator, *inputs, **attributes)
    assert not any(np.shares_memory(out, each) for out in found for each in inputs)
    return found


def of_bits(shape: tuple[int, ...], name: str, seed: int = 0) -> Array:
    """Every pattern of bits that the dtype has, NaN with payloads and −0 among them."""
    target = numpy_dtype(dtype(name))
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype(name).bits == 4:
        return rng.integers(0, 8, shape).astype(np.int8).astype(target)
    raw = rng.integers(0, 256, (*shape, target.itemsize), dtype=np.uint8)
    return raw.view(target).reshape(shape)


def in_layout(array: Array, layout: str) -> Array:
    if layout == "strided":
        storage = np.zeros((*array.shape, 2), array.dtype)
        storage[..., 0] = array
        return storage[..., 0]
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "broadcast" and array.ndim:
        return np.broadcast_to(array[:1], array.shape)
    return array


LAYOUTS = ("dense", "strided", "transposed", "broadcast")
CALLS: list[tuple[str, list[tuple[int, ...]], Mapping[str, Any]]] = [
    ("transpose", [(2, 3, 5)], {"dim0": -1, "dim1": 0}),
    ("permute", [(2, 3, 5)], {"dims": [2, 0, 1]}),
    ("reshape", [(4, 6)], {"shape": [3, -1]}),
    ("broadcast_to", [(3, 1)], {"size": [2, 3, 4]}),
    ("tile", [(2, 3)], {"dims": [2, 1, 3]}),
    ("flip", [(3, 5)], {"dims": [0, -1]}),
    ("roll", [(3, 5)], {"shifts": [1, -2], "dims": [0, 1]}),
    ("roll", [(3, 5)], {"shifts": 4}),
    ("tril", [(4, 5)], {"diagonal": -1}),
    ("triu", [(4, 5)], {"diagonal": 1}),
    ("concat", [(2, 3), (2, 4)], {"dim": 1}),
    ("split", [(7, 3)], {"split_size": 3}),
    ("slice", [(5, 7)], {"start": [1, -1], "end": [5, 0], "step": [2, -2]}),
    ("pad", [(2, 4)], {"pad": [1, 2]}),
    ("clone", [(2, 3, 4)], {}),
    ("zeros_like", [(2, 3, 4)], {}),
    ("pad", [(2, 4)], {"pad": [2, 1], "mode": "reflect"}),
    ("pad", [(2, 4)], {"pad": [2, 1], "mode": "replicate"}),
    ("pad", [(2, 4)], {"pad": [2, 1], "mode": "circular"}),
]


@pytest.mark.parametrize("name", [each.name for each in DTYPES])
def test_bits_move_as_bytes_do(name: str) -> None:
    """Moving elements and looking at their bits are the same in either order, with 64-bit integers as the judge."""
    for operator, shapes, attributes in CALLS:
        inputs = [of_bits(shape, name, seed) for seed, shape in enumerate(shapes)]
        as_integers = [_codes(each) for each in inputs]
        found = [_codes(each) for each in moved(operator, *inputs, **attributes)]
        same(found, moved(operator, *as_integers, **attributes))


def _codes(array: Array) -> Array:
    """One 64-bit integer for each element; complex128 by a sum that tells real from imaginary parts."""
    raw = bits(np.ascontiguousarray(array))
    if raw.dtype.names:
        with np.errstate(over="ignore"):
            raw = raw["real"] * np.uint64(0x9E3779B97F4A7C15) + raw["imag"]
    return np.asarray(raw.astype(np.uint64))


@pytest.mark.torch
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("operator", "shapes", "attributes"), CALLS)
def test_every_layout_as_torch(
    operator: str, shapes: list[tuple[int, ...]], attributes: Mapping[str, Any], layout: str
) -> None:
    for name in ("float32", "int8", "bfloat16", "float64"):
        inputs = [in_layout(of_bits(shape, name, seed), layout) for seed, shape in enumerate(shapes)]
        same(moved(operator, *inputs, **attributes), by_torch(operator, *inputs, **attributes))


SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
DIMS = st.integers(-4, 4)


def agree(operator: str, *inputs: Array, **attributes: Any) -> None:
    """Both move alike, or both refuse."""
    try:
        wanted = by_torch(operator, *inputs, **attributes)
    except REFUSALS:
        assert inferred(operator, *specs_of(inputs), **attributes) is None
        return
    same(moved(operator, *inputs, **attributes), wanted)


@pytest.mark.torch
@given(SHAPES, DIMS, DIMS)
@many
def test_transpose(shape: tuple[int, ...], first: int, second: int) -> None:
    agree("transpose", of_bits(shape, "float32"), dim0=first, dim1=second)


@pytest.mark.torch
@given(SHAPES, st.lists(DIMS, max_size=4), st.permutations(range(3)))
@many
def test_permute_and_flip(shape: tuple[int, ...], dims: list[int], order: list[int]) -> None:
    array = of_bits(shape, "float32")
    agree("permute", array, dims=dims)
    agree("permute", array, dims=[each for each in order if each < len(shape)])
    agree("flip", array, dims=dims)


@pytest.mark.torch
@given(SHAPES, st.lists(st.sampled_from((-2, -1, 0, 1, 2, 3, 4, 6, 8, 12)), max_size=4))
@example((4, 3), [-1, 6])
@example((0, 3), [-1, 0])
@example((0, 3), [0, -1])
@many
def test_reshape(shape: tuple[int, ...], new: list[int]) -> None:
    agree("reshape", of_bits(shape, "float32"), shape=new)


@pytest.mark.torch
@given(SHAPES, st.lists(st.integers(-2, 4), max_size=4))
@example((3, 1), [2, -1, 4])
@example((3, 1), [-1, 3, 4])
@many
def test_broadcast_to_and_tile(shape: tuple[int, ...], sizes: list[int]) -> None:
    agree("broadcast_to", of_bits(shape, "float32"), size=sizes)
    if 0 not in shape or min(sizes, default=0) >= 0:  # torch lets a negative count through where nothing repeats
        agree("tile", of_bits(shape, "float32"), dims=sizes)


@pytest.mark.torch
@given(SHAPES, st.lists(DIMS, max_size=3), st.lists(DIMS, max_size=3), st.integers(-9, 9))
@many
def test_roll(shape: tuple[int, ...], shifts: list[int], dims: list[int], flat: int) -> None:
    # A tensor without elements takes dimensions that do not exist in torch, which is of no use to anybody.
    array = of_bits(tuple(max(size, 1) for size in shape), "float32")
    agree("roll", array, shifts=shifts, dims=dims)
    agree("roll", array, shifts=[*shifts, flat], dims=[*dims, 0][: len(shifts) + 1])
    agree("roll", array, shifts=flat)


@pytest.mark.torch
@given(SHAPES, st.integers(-5, 5))
@many
def test_triangles(shape: tuple[int, ...], diagonal: int) -> None:
    agree("tril", of_bits(shape, "float32"), diagonal=diagonal)
    agree("triu", of_bits(shape, "float32"), diagonal=diagonal)


NAMES = ("float32", "float16", "float64", "int8", "uint8", "int64", "bool", "complex64")


@pytest.mark.torch
@given(st.lists(st.tuples(SHAPES, st.sampled_from(NAMES)), min_size=1, max_size=3), DIMS)
@example([((0,), "float64"), ((2, 3), "float32")], 1)
@example([((0,), "float32"), ((0,), "float32")], 1)
@many
def test_concat_of_anything(tensors: list[tuple[tuple[int, ...], str]], dim: int) -> None:
    agree("concat", *(np.ones(shape, name) for shape, name in tensors), dim=dim)


@pytest.mark.torch
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.lists(st.integers(0, 4), min_size=1, max_size=3), DIMS)
@many
def test_concat_of_what_fits(shape: list[int], sizes: list[int], dim: int) -> None:
    dim %= len(shape)
    arrays = [of_bits((*shape[:dim], size, *shape[dim + 1 :]), "float32") for size in sizes]
    agree("concat", *arrays, dim=dim)
    agree("concat", *arrays, dim=dim - len(shape))


@pytest.mark.torch
@given(SHAPES, st.one_of(st.integers(-1, 6), st.lists(st.integers(-1, 4), max_size=4)), DIMS)
@example((4, 3), [1, 0, 3], 0)
@example((0, 3), 0, 0)
@many
def test_split(shape: tuple[int, ...], stated: Any, dim: int) -> None:
    agree("split", of_bits(shape, "float32"), split_size_or_sections=stated, dim=dim)


BOUND = st.one_of(st.none(), st.integers(-9, 9), st.sampled_from((2**63 - 1, -(2**63))))


@pytest.mark.torch
@given(SHAPES, DIMS, BOUND, BOUND, st.integers(-3, 5))
@many
def test_slice_along_one_dim(shape: tuple[int, ...], dim: int, start: Any, end: Any, step: int) -> None:
    stated = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    array = of_bits(shape, "float32")
    agree("slice", array, dim=dim, step=step, **stated)
    if dim == -1 and shape and (step > 0 or (step < 0 and (start is None or start >= -shape[-1]))):
        same(moved("slice", array, dim=dim, step=step, **stated), [array[..., start:end:step].copy()])


def test_slices_of_several_dims_and_backwards() -> None:
    def sliced(shape: tuple[int, ...], **stated: Any) -> Any:
        found = inferred("slice", spec(shape), **stated)
        return found and found[0][1]

    assert sliced((5, 7, 9), start=[1, 2], end=[4, -1], step=[2, 3]) == (2, 2, 9)
    assert sliced((5, 7), dim=[1, 0], start=[0, 1], end=[3, 5]) == (4, 3)
    assert sliced((7,), step=-1) == (7,)
    assert sliced((7,), start=-100, end=-100, step=-1) == (1,)  # ONNX clamps start to 0
    assert sliced((0,), step=-1) == (0,)
    assert sliced((7, 7), dim=[0, -2], start=[1, 1]) is None
    assert sliced((7, 7), dim=[0], start=[1, 1]) is None
    assert sliced((7, 7)) == (7, 7)


@pytest.mark.torch
@given(SHAPES, st.lists(st.integers(-3, 4), max_size=7))
@many
def test_constant_pad(shape: tuple[int, ...], pad: list[int]) -> None:
    agree("pad", of_bits(shape, "int32"), pad=pad, value=7.0)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), st.data())
@many
def test_pads_that_repeat(mode: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    pad = data.draw(st.lists(st.integers(-2, 4), min_size=2 * dims, max_size=2 * dims))
    if mode == "circular" and min(pad) < 0 and inferred("pad", spec(shape, "int32"), pad=pad, mode=mode) is None:
        return  # torch repeats more than it has left, reading memory that it has not written
    agree("pad", of_bits(shape, "int32"), pad=pad, mode=mode)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["int8", "uint8", "int64", "bool", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, 127.9, 128.0, 255.0, 300.0, -129.0, 7e4, 1e39, 1e300, float("inf")])
def test_pad_values(name: str, value: float) -> None:
    agree("pad", np.zeros(3, numpy_dtype(dtype(name))), pad=[1, 1], value=value)


@pytest.mark.torch
def test_concat_converts_as_torch() -> None:
    pairs = [v for v in operators.get("concat").dtype_variants if len(v) == 2]
    for first, second in pairs:
        inputs = [np.arange(5).reshape(1, 5).astype(numpy_dtype(dtype(name))) for name in (first, second)]
        same(moved("concat", *inputs), by_torch("concat", *inputs))
    large = np.array([2**24 + 1, 2**24 + 3, -(2**30) - 65, 2**31 - 1], np.int32)
    inputs = [large, np.array([0.5], np.float32)]
    same(moved("concat", *inputs), by_torch("concat", *inputs))


def test_masked_elements_leave_no_trace() -> None:
    array = np.array([[np.nan, -0.0], [np.inf, -1.0]], np.float32)
    (lower,) = moved("tril", array, diagonal=-1)
    assert bits(lower).tolist() == [[0, 0], [0x7F800000, 0]]
    (upper,) = moved("triu", array, diagonal=0)
    assert bits(upper).tolist() == [[0x7FC00000, 0x80000000], [0, 0xBF800000]]


def test_legacy_empty_tensors_are_skipped_but_promote() -> None:
    (found,) = moved("concat", np.zeros(0, np.float64), np.ones((2, 3), np.float32), dim=1)
    assert (found.dtype, found.shape) == (np.float64, (2, 3))
    (found,) = moved("concat", np.zeros(0, np.int8), np.zeros(0, np.int16))
    assert (found.dtype, found.shape) == (np.int16, (0,))
    with pytest.raises(UnfitArguments, match="tensors1 is a scalar"):
        moved("concat", np.zeros(3), np.zeros(()))


def test_pad_values_are_held_by_the_dtype() -> None:
    for name, value, wanted in (("int8", 1.9, 1), ("int8", -1.9, -1), ("bool", 0.5, True), ("int4", 7.0, 7)):
        (found,) = moved("pad", np.zeros(1, numpy_dtype(dtype(name))), pad=[1, 0], value=value)
        assert found[0] == wanted, name
    (found,) = moved("pad", np.zeros(1, numpy_dtype(dtype("bfloat16"))), pad=[1, 0], value=0.1)
    assert float(found[0]) == 0.10009765625
    with refusal(UnfitArguments, "operators.value_is_but_should"):
        moved("pad", np.zeros(1, np.int8), pad=[1, 0], value=300.0)


@pytest.mark.parametrize("name", [each.name for each in DTYPES])
def test_ones_are_one_whatever_stood_there(name: str) -> None:
    (found,) = moved("ones_like", of_bits((2, 3), name))
    assert found.shape == (2, 3)
    assert found.dtype == of_bits((2, 3), name).dtype
    assert (found.astype(np.complex128) == 1).all()

"""Movement references put every element where torch puts it, and leave its bits alone in every dtype."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import by_torch, same

from optest.numerics import bits, numpy_dtype
from optest.operators import operators
from optest.registry import load_object
from optest.spec import DTYPES, UnfitArguments, dtype

Array = np.ndarray[Any, Any]
many = settings(deadline=None, max_examples=60)


def moved(operator: str, *inputs: Array, **attributes: Any) -> list[Array]:
    """The reference's outputs, with its inputs checked for changes, no warning and the right dtype."""
    descriptor = operators.get(operator)
    before = [each.tobytes() for each in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load_object(descriptor.reference)(list(inputs), descriptor.bind(attributes))
    assert [each.tobytes() for each in inputs] == before
    assert not any(np.shares_memory(out, each) for out in found for each in inputs)
    return list(found)


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
@pytest.mark.parametrize(("operator", "shapes", "attributes"), CALLS)
def test_bits_move_as_bytes_do(
    operator: str, shapes: list[tuple[int, ...]], attributes: Mapping[str, Any], name: str
) -> None:
    """Moving elements and looking at their bits are the same in either order, with 64-bit integers as the judge."""
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


SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


def agree(operator: str, *inputs: Array, **attributes: Any) -> None:
    """Both move alike, or both refuse."""
    try:
        found = moved(operator, *inputs, **attributes)
    except UnfitArguments:
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            by_torch(operator, *inputs, **attributes)
        return
    same(found, by_torch(operator, *inputs, **attributes))


@pytest.mark.torch
@given(SHAPES, st.data())
@many
def test_drawn_arguments_as_torch(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = of_bits(shape, "float32")
    rank = len(shape)
    dim = data.draw(st.integers(-rank, rank - 1))
    shifts = data.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=3))
    agree(
        "roll", array, shifts=shifts, dims=data.draw(st.lists(st.just(dim), min_size=len(shifts), max_size=len(shifts)))
    )
    agree("roll", array, shifts=shifts[:1])
    agree("flip", array, dims=list({dim % rank, 0}))
    agree("permute", array, dims=data.draw(st.permutations(range(rank))))
    agree("tile", array, dims=data.draw(st.lists(st.integers(0, 3), max_size=4)))
    agree("split", array, split_size=data.draw(st.integers(1, 5)), dim=dim)
    agree("concat", array, array[:, :0] if rank > 1 else array, array, dim=dim)
    if rank > 1:
        agree("tril", array, diagonal=data.draw(st.integers(-5, 5)))
        agree("triu", array, diagonal=data.draw(st.integers(-5, 5)))


@pytest.mark.torch
@given(SHAPES, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from((-3, -2, -1, 1, 2, 3)))
@many
def test_slices_as_python_and_torch(shape: tuple[int, ...], start: int, end: int, step: int) -> None:
    array = of_bits(shape, "float32")
    (found,) = moved("slice", array, dim=-1, start=start, end=end, step=step)
    same([found], by_torch("slice", array, dim=-1, start=start, end=end, step=step))
    if step > 0 or start >= -shape[-1]:
        same([found], [array[..., start:end:step].copy()])


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple), st.data())
@many
def test_pads_as_torch(mode: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    count = data.draw(st.integers(max(1, len(shape) - 2), len(shape) - 1))
    pad = data.draw(st.lists(st.integers(-2, 4), min_size=2 * count, max_size=2 * count))
    array = of_bits(shape, "int32")
    try:
        found = moved("pad", array, pad=pad, mode=mode, value=7.0)
    except UnfitArguments:
        return  # what is refused, and where torch should, is a matter of inference
    same(found, by_torch("pad", array, pad=pad, mode=mode, value=7.0))


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
    with pytest.raises(UnfitArguments, match=r"value is 300, but should be in the range of int8"):
        moved("pad", np.zeros(1, np.int8), pad=[1, 0], value=300.0)


@pytest.mark.parametrize("name", [each.name for each in DTYPES])
def test_ones_are_one_whatever_stood_there(name: str) -> None:
    (found,) = moved("ones_like", of_bits((2, 3), name))
    assert found.shape == (2, 3)
    assert found.dtype == of_bits((2, 3), name).dtype
    assert (found.astype(np.complex128) == 1).all()

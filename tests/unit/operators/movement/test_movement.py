"""Movement operators equal torch in results and refusals, and keep all bits in every dtype."""

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


def outputs_of(operator: str, *inputs: Array, **attributes: Any) -> list[Array]:
    outputs = expected_all(operator, *inputs, **attributes)
    assert not any(np.shares_memory(out, array) for out in outputs for array in inputs)
    return outputs


def of_bits(shape: tuple[int, ...], name: str, seed: int = 0) -> Array:
    """Return random bit patterns of the dtype, with NaN payloads and −0 among them."""
    target = numpy_dtype(dtype(name))
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype(name).bits == 4:
        return rng.integers(0, 8, shape).astype(np.int8).astype(target)
    raw = rng.integers(0, 256, (*shape, target.itemsize), dtype=np.uint8)
    return raw.view(target).reshape(shape)


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


@pytest.mark.parametrize("name", [entry.name for entry in DTYPES])
def test_movement_keeps_bits_of_every_dtype(name: str) -> None:
    for operator, shapes, attributes in CALLS:
        inputs = [of_bits(shape, name, seed) for seed, shape in enumerate(shapes)]
        # Moving elements and reading their bits commute; 64-bit integers are trusted.
        outputs = [_codes(array) for array in outputs_of(operator, *inputs, **attributes)]
        same(outputs, outputs_of(operator, *map(_codes, inputs), **attributes))


def _codes(array: Array) -> Array:
    """Return one 64-bit integer per element; complex128 by a sum that distinguishes real from imaginary parts."""
    raw = bits(np.ascontiguousarray(array))
    if raw.dtype.names:
        with np.errstate(over="ignore"):
            raw = raw["real"] * np.uint64(0x9E3779B97F4A7C15) + raw["imag"]
    return np.asarray(raw.astype(np.uint64))


SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
DIMS = st.integers(-4, 4)


def agree(operator: str, *inputs: Array, **attributes: Any) -> None:
    """Assert that reference and torch give equal outputs, or that both refuse."""
    try:
        expected = by_torch(operator, *inputs, **attributes)
    except REFUSALS:
        assert inferred(operator, *specs_of(inputs), **attributes) is None
        return
    same(outputs_of(operator, *inputs, **attributes), expected)


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
    agree("permute", array, dims=[dim for dim in order if dim < len(shape)])
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
    if 0 not in shape or min(sizes, default=0) >= 0:  # torch accepts a negative count for an empty tensor
        agree("tile", of_bits(shape, "float32"), dims=sizes)


@pytest.mark.torch
@given(SHAPES, st.lists(DIMS, max_size=3), st.lists(DIMS, max_size=3), st.integers(-9, 9))
@many
def test_roll(shape: tuple[int, ...], shifts: list[int], dims: list[int], flat: int) -> None:
    # For an empty tensor, torch accepts dimensions that do not exist.
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
def test_concat_of_any_shapes(tensors: list[tuple[tuple[int, ...], str]], dim: int) -> None:
    agree("concat", *(np.ones(shape, name) for shape, name in tensors), dim=dim)


@pytest.mark.torch
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.lists(st.integers(0, 4), min_size=1, max_size=3), DIMS)
@many
def test_concat_of_fitting_shapes(shape: list[int], sizes: list[int], dim: int) -> None:
    dim %= len(shape)
    arrays = [of_bits((*shape[:dim], size, *shape[dim + 1 :]), "float32") for size in sizes]
    agree("concat", *arrays, dim=dim)
    agree("concat", *arrays, dim=dim - len(shape))


@pytest.mark.torch
@given(SHAPES, st.one_of(st.integers(-1, 6), st.lists(st.integers(-1, 4), max_size=4)), DIMS)
@example((4, 3), [1, 0, 3], 0)
@example((0, 3), 0, 0)
@many
def test_split(shape: tuple[int, ...], sections: Any, dim: int) -> None:
    agree("split", of_bits(shape, "float32"), split_size_or_sections=sections, dim=dim)


BOUND = st.one_of(st.none(), st.integers(-9, 9), st.sampled_from((2**63 - 1, -(2**63))))


@pytest.mark.torch
@given(SHAPES, DIMS, BOUND, BOUND, st.integers(-3, 5))
@many
def test_slice_along_one_dim(shape: tuple[int, ...], dim: int, start: Any, end: Any, step: int) -> None:
    bounds = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    array = of_bits(shape, "float32")
    agree("slice", array, dim=dim, step=step, **bounds)
    if dim == -1 and shape and (step > 0 or (step < 0 and (start is None or start >= -shape[-1]))):
        same(outputs_of("slice", array, dim=dim, step=step, **bounds), [array[..., start:end:step].copy()])


def test_slice_of_several_dims_and_negative_steps() -> None:
    def sliced(shape: tuple[int, ...], **attributes: Any) -> Any:
        outputs = inferred("slice", spec(shape), **attributes)
        return outputs and outputs[0][1]

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
def test_repeating_pad_modes(mode: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    pad = data.draw(st.lists(st.integers(-2, 4), min_size=2 * dims, max_size=2 * dims))
    if mode == "circular" and min(pad) < 0 and inferred("pad", spec(shape, "int32"), pad=pad, mode=mode) is None:
        return  # torch repeats more than is left after cropping and reads uninitialised memory
    agree("pad", of_bits(shape, "int32"), pad=pad, mode=mode)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["int8", "uint8", "int64", "bool", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, 127.9, 128.0, 255.0, 300.0, -129.0, 7e4, 1e39, 1e300, float("inf")])
def test_pad_accepts_the_values_torch_accepts(name: str, value: float) -> None:
    agree("pad", np.zeros(3, numpy_dtype(dtype(name))), pad=[1, 1], value=value)


@pytest.mark.torch
def test_concat_of_mixed_dtypes_equals_torch() -> None:
    pairs = [v for v in operators.get("concat").dtype_variants if len(v) == 2]
    for first, second in pairs:
        inputs = [np.arange(5).reshape(1, 5).astype(numpy_dtype(dtype(name))) for name in (first, second)]
        same(outputs_of("concat", *inputs), by_torch("concat", *inputs))
    large = np.array([2**24 + 1, 2**24 + 3, -(2**30) - 65, 2**31 - 1], np.int32)
    inputs = [large, np.array([0.5], np.float32)]
    same(outputs_of("concat", *inputs), by_torch("concat", *inputs))


def test_triangles_write_positive_zeros() -> None:
    array = np.array([[np.nan, -0.0], [np.inf, -1.0]], np.float32)
    (lower,) = outputs_of("tril", array, diagonal=-1)
    assert bits(lower).tolist() == [[0, 0], [0x7F800000, 0]]
    (upper,) = outputs_of("triu", array, diagonal=0)
    assert bits(upper).tolist() == [[0x7FC00000, 0x80000000], [0, 0xBF800000]]


def test_concat_skips_empty_vectors_but_promotes() -> None:
    (outputs,) = outputs_of("concat", np.zeros(0, np.float64), np.ones((2, 3), np.float32), dim=1)
    assert (outputs.dtype, outputs.shape) == (np.float64, (2, 3))
    (outputs,) = outputs_of("concat", np.zeros(0, np.int8), np.zeros(0, np.int16))
    assert (outputs.dtype, outputs.shape) == (np.int16, (0,))
    with pytest.raises(UnfitArguments, match="tensors1 is a scalar"):
        outputs_of("concat", np.zeros(3), np.zeros(()))


def test_pad_value_is_converted_to_the_dtype() -> None:
    for name, value, expected in (("int8", 1.9, 1), ("int8", -1.9, -1), ("bool", 0.5, True), ("int4", 7.0, 7)):
        (outputs,) = outputs_of("pad", np.zeros(1, numpy_dtype(dtype(name))), pad=[1, 0], value=value)
        assert outputs[0] == expected, name
    (outputs,) = outputs_of("pad", np.zeros(1, numpy_dtype(dtype("bfloat16"))), pad=[1, 0], value=0.1)
    assert float(outputs[0]) == 0.10009765625
    with refusal(UnfitArguments, "operators.value_is_but_should"):
        outputs_of("pad", np.zeros(1, np.int8), pad=[1, 0], value=300.0)


@pytest.mark.parametrize("name", [entry.name for entry in DTYPES])
def test_ones_like_ignores_its_input(name: str) -> None:
    (outputs,) = outputs_of("ones_like", of_bits((2, 3), name))
    assert outputs.shape == (2, 3)
    assert outputs.dtype == of_bits((2, 3), name).dtype
    assert (outputs.astype(np.complex128) == 1).all()

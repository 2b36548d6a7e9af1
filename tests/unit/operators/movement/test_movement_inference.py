"""Shapes and refusals of the movement operators are torch's, over drawn arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, UnfitArguments, dtype

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

many = settings(deadline=None, max_examples=120)

SIZES = st.integers(0, 4)
SHAPES = st.lists(SIZES, max_size=3).map(tuple)
DIMS = st.integers(-4, 4)
Result = Any
_REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError)


def inferred(operator: str, *shapes: tuple[int, ...], names: tuple[str, ...] = (), **attributes: Any) -> Result:
    """Shapes and dtypes of the outputs, None where the operator refuses."""
    descriptor = operators.get(operator)
    names = names or ("float32",) * len(shapes)
    specs = [TensorSpec(dtype=dtype(name), shape=shape) for name, shape in zip(names, shapes, strict=True)]
    try:
        found = load_object(descriptor.infer)(specs, descriptor.bind(attributes))
    except UnfitArguments:
        return None
    assert all(each.is_dense for each in found)
    return [(each.dtype.name, each.shape) for each in found]


def asked(call: Any) -> Result:
    """What torch makes of it on tensors without data."""
    try:
        found = call()
    except _REFUSALS:
        return None
    found = found if isinstance(found, (tuple, list)) else [found]
    if any(size < 0 for each in found for size in each.shape):
        return None  # a size of -1 that torch lets through for tensors without elements
    return [(str(each.dtype).removeprefix("torch."), tuple(each.shape)) for each in found]


def meta(shape: tuple[int, ...], name: str = "float32") -> Any:
    return torch.empty(shape, dtype=getattr(torch, name), device="meta")


@given(SHAPES, DIMS, DIMS)
@many
def test_transpose(shape: tuple[int, ...], first: int, second: int) -> None:
    assert inferred("transpose", shape, dim0=first, dim1=second) == asked(
        lambda: torch.transpose(meta(shape), first, second)
    )


@given(SHAPES, st.lists(DIMS, max_size=4).map(tuple))
@many
def test_permute_and_flip(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    assert inferred("permute", shape, dims=dims) == asked(lambda: torch.permute(meta(shape), dims))
    assert inferred("flip", shape, dims=dims) == asked(lambda: torch.flip(meta(shape), dims))


@given(SHAPES, st.permutations(range(3)))
@many
def test_permute_takes_every_order(shape: tuple[int, ...], order: list[int]) -> None:
    dims = tuple(each for each in order if each < len(shape))
    assert inferred("permute", shape, dims=dims) == asked(lambda: torch.permute(meta(shape), dims))


@given(SHAPES, st.lists(st.sampled_from((-2, -1, 0, 1, 2, 3, 4, 6, 8, 12)), max_size=4).map(tuple))
@example((4, 3), (-1, 6))
@example((0, 3), (-1, 0))
@example((0, 3), (0, -1))
@many
def test_reshape(shape: tuple[int, ...], new: tuple[int, ...]) -> None:
    assert inferred("reshape", shape, shape=new) == asked(lambda: torch.reshape(meta(shape), new))


@given(SHAPES, st.lists(st.integers(-2, 4), max_size=4).map(tuple))
@example((3, 1), (2, -1, 4))
@example((3, 1), (-1, 3, 4))
@many
def test_broadcast_to_and_tile(shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    assert inferred("broadcast_to", shape, size=sizes) == asked(lambda: torch.broadcast_to(torch.empty(shape), sizes))
    assert inferred("tile", shape, dims=sizes) == asked(lambda: torch.tile(meta(shape), sizes))


@given(SHAPES, st.lists(DIMS, max_size=3).map(tuple), st.lists(DIMS, max_size=3).map(tuple))
@many
def test_roll(shape: tuple[int, ...], shifts: tuple[int, ...], dims: tuple[int, ...]) -> None:
    # A tensor without elements takes dimensions that do not exist in torch, which is of no use to anybody.
    shape = tuple(max(size, 1) for size in shape)
    assert inferred("roll", shape, shifts=shifts, dims=dims) == asked(
        lambda: torch.roll(torch.empty(shape), shifts, dims)
    )


@given(SHAPES, st.integers(-5, 5))
@many
def test_triangles(shape: tuple[int, ...], diagonal: int) -> None:
    assert inferred("tril", shape, diagonal=diagonal) == asked(lambda: torch.tril(meta(shape), diagonal))
    assert inferred("triu", shape, diagonal=diagonal) == asked(lambda: torch.triu(meta(shape), diagonal))


_NAMES = st.sampled_from(("float32", "float16", "float64", "int8", "uint8", "int64", "bool", "complex64"))


@given(st.lists(st.tuples(SHAPES, _NAMES), min_size=1, max_size=3), DIMS)
@example([((0,), "float64"), ((2, 3), "float32")], 1)
@example([((0,), "float32"), ((0,), "float32")], 1)
@many
def test_concat_of_anything(tensors: list[tuple[tuple[int, ...], str]], dim: int) -> None:
    shapes, names = zip(*tensors, strict=True)
    assert inferred("concat", *shapes, names=names, dim=dim) == asked(
        lambda: torch.cat([torch.empty(shape, dtype=getattr(torch, name)) for shape, name in tensors], dim)
    )


@given(st.lists(SIZES, min_size=1, max_size=3), st.lists(SIZES, min_size=1, max_size=3), st.integers(0, 2), st.data())
@many
def test_concat_of_what_fits(shape: list[int], sizes: list[int], dim: int, data: st.DataObject) -> None:
    dim %= len(shape)
    shapes = [(*shape[:dim], size, *shape[dim + 1 :]) for size in sizes]
    names = tuple(data.draw(_NAMES) for _ in shapes)
    wanted = asked(
        lambda: torch.cat([torch.empty(s, dtype=getattr(torch, n)) for s, n in zip(shapes, names, strict=True)], dim)
    )
    assert wanted is not None
    assert inferred("concat", *shapes, names=names, dim=dim) == wanted
    assert inferred("concat", *shapes, names=names, dim=dim - len(shape)) == wanted


@given(SHAPES, st.one_of(st.integers(-1, 6), st.lists(st.integers(-1, 4), max_size=4).map(tuple)), DIMS)
@example((4, 3), (1, 0, 3), 0)
@example((0, 3), 0, 0)
@many
def test_split(shape: tuple[int, ...], stated: Any, dim: int) -> None:
    sizes = stated if isinstance(stated, int) else list(stated)
    assert inferred("split", shape, split_size_or_sections=stated, dim=dim) == asked(
        lambda: torch.split(meta(shape), sizes, dim)
    )


BOUND = st.one_of(st.none(), st.integers(-7, 7), st.sampled_from((2**63 - 1, -(2**63))))


@given(SHAPES, DIMS, BOUND, BOUND, st.integers(0, 5))
@many
def test_slice_along_one_dim(shape: tuple[int, ...], dim: int, start: Any, end: Any, step: int) -> None:
    stated = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    assert inferred("slice", shape, dim=dim, step=step, **stated) == asked(
        lambda: torch.ops.aten.slice.Tensor(meta(shape), dim, start, end, step)
    )


def test_slices_of_several_dims_and_backwards() -> None:
    assert inferred("slice", (5, 7, 9), start=[1, 2], end=[4, -1], step=[2, 3]) == [("float32", (2, 2, 9))]
    assert inferred("slice", (5, 7), dim=[1, 0], start=[0, 1], end=[3, 5]) == [("float32", (4, 3))]
    assert inferred("slice", (7,), step=-1) == [("float32", (7,))]
    assert inferred("slice", (7,), start=-100, end=-100, step=-1) == [("float32", (1,))]  # ONNX clamps start to 0
    assert inferred("slice", (0,), step=-1) == [("float32", (0,))]
    assert inferred("slice", (7, 7), dim=[0, -2], start=[1, 1]) is None
    assert inferred("slice", (7, 7), dim=[0], start=[1, 1]) is None
    assert inferred("slice", (7, 7)) == [("float32", (7, 7))]


PADS = st.lists(st.integers(-3, 4), max_size=7).map(tuple)


@given(SHAPES, PADS)
@many
def test_constant_pad(shape: tuple[int, ...], pad: tuple[int, ...]) -> None:
    assert inferred("pad", shape, pad=pad) == asked(lambda: torch.nn.functional.pad(torch.empty(shape), pad))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), st.data())
@many
def test_pads_that_repeat(mode: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    pad = tuple(data.draw(st.lists(st.integers(-2, 4), min_size=2 * dims, max_size=2 * dims)))
    found = inferred("pad", shape, pad=pad, mode=mode)
    wanted = asked(lambda: torch.nn.functional.pad(torch.empty(shape), pad, mode=mode))
    if mode == "circular" and found is None and min(pad) < 0:
        return  # torch repeats more than it has left, reading memory that it has not written
    assert found == wanted


@pytest.mark.parametrize("name", ["int8", "uint8", "int64", "bool", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, 127.9, 128.0, 255.0, 300.0, -129.0, 7e4, 1e39, 1e300, float("inf")])
def test_pad_values(name: str, value: float) -> None:
    wanted = asked(lambda: torch.nn.functional.pad(torch.zeros(3, dtype=getattr(torch, name)), (1, 1), value=value))
    assert inferred("pad", (3,), names=(name,), pad=(1, 1), value=value) == wanted


def test_refusals_say_what_fits() -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=(3, 4))
    infer = load_object(operators.get("split").infer)
    with pytest.raises(UnfitArguments, match=r"sections is \[1, 1\], but should hold sizes that add up to 3"):
        infer((spec,), {"split_size_or_sections": (1, 1), "dim": 0})
    infer = load_object(operators.get("pad").infer)
    with pytest.raises(UnfitArguments, match="at most 3 for a size of 4 in mode reflect"):
        infer((spec,), {"pad": (4, 0), "mode": "reflect", "value": 0.0})
    infer = load_object(operators.get("broadcast_to").infer)
    with pytest.raises(UnfitArguments, match="size at dimension 1 is 5, but should be 4 or -1"):
        infer((spec,), {"size": (3, 5)})

"""Shapes, dtypes and refusals of indexing operators equal torch's; domains contain only valid indices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from references import Shape, inferred, of_torch, spec

from optest.operators import operators
from optest.operators.indexing.gather import embedding_domain, index_domain
from optest.spec import Interval

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.torch
many = settings(deadline=None, max_examples=80)

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
DIMS = st.integers(-4, 4)
INDEX_NAMES = st.sampled_from(("int64", "int64", "int64", "int32", "int16", "uint8", "float32", "bool"))
NAMES = st.sampled_from(("float32", "float32", "float16", "int32", "int8"))


def zeros(shape: Shape, name: str = "float32") -> Any:
    return torch.zeros(shape, dtype=getattr(torch, name))


@given(SHAPES, SHAPES, INDEX_NAMES, DIMS)
@example((3, 4), (5, 4), "int64", 0)
@example((), (3,), "int64", 0)
@example((3,), (), "int32", -1)
@example((3, 4), (0, 9), "int64", 0)
@many
def test_gather(shape: Shape, index: Shape, name: str, dim: int) -> None:
    nonempty = tuple(max(size, 1) for size in shape)  # torch refuses the value of an index into an empty dimension
    assert inferred("gather", spec(nonempty), spec(index, name), dim=dim) == of_torch(
        lambda: torch.gather(zeros(nonempty), dim, zeros(index, name))
    )


@given(SHAPES, SHAPES, INDEX_NAMES, DIMS)
@example((), (1,), "int64", 0)
@example((), (), "int32", -1)
@example((3, 4), (), "int64", 1)
@many
def test_index_select(shape: Shape, index: Shape, name: str, dim: int) -> None:
    nonempty = tuple(max(size, 1) for size in shape)
    vector = index[:1]  # torch takes one dimension
    assert inferred("index_select", spec(nonempty), spec(vector, name), dim=dim) == of_torch(
        lambda: torch.index_select(zeros(nonempty), dim, zeros(vector, name))
    )


@given(SHAPES, st.data())
@many
def test_gather_with_fitting_index(shape: Shape, data: st.DataObject) -> None:
    nonempty = tuple(max(size, 1) for size in shape)
    index = tuple(data.draw(st.integers(0, 3)) for _ in shape)
    dim = data.draw(st.integers(0, max(len(shape) - 1, 0)))
    assert inferred("gather", spec(nonempty), spec(index, "int64"), dim=dim) == of_torch(
        lambda: torch.gather(zeros(nonempty), dim, zeros(index, "int64"))
    )


@given(SHAPES, SHAPES, SHAPES, INDEX_NAMES, NAMES, NAMES, DIMS)
@many
def test_scatter_add(shape: Shape, index: Shape, src: Shape, name: str, source: str, added: str, dim: int) -> None:
    nonempty = tuple(max(size, 1) for size in shape)
    assert inferred("scatter_add", spec(nonempty, source), spec(index, name), spec(src, added), dim=dim) == of_torch(
        lambda: torch.scatter_add(zeros(nonempty, source), dim, zeros(index, name), zeros(src, added))
    )


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)), max_size=3), st.integers(0, 2))
@many
def test_scatter_add_with_nearly_fitting_shapes(sizes: list[tuple[int, int, int]], dim: int) -> None:
    shape, index, src = map(tuple, zip(*sizes, strict=True)) if sizes else ((), (), ())
    dim %= max(len(shape), 1)
    assert inferred("scatter_add", spec(shape), spec(index, "int64"), spec(src), dim=dim) == of_torch(
        lambda: torch.scatter_add(zeros(shape), dim, zeros(index, "int64"), zeros(src))
    )


@given(SHAPES, SHAPES, INDEX_NAMES, st.one_of(st.none(), st.integers(-4, 4)))
@many
def test_embedding(shape: Shape, indices: Shape, name: str, padding: int | None) -> None:
    nonempty = tuple(max(size, 1) for size in shape)
    assert inferred("embedding", spec(nonempty), spec(indices, name), padding_idx=padding) == of_torch(
        lambda: torch.nn.functional.embedding(zeros(indices, name), zeros(nonempty), padding_idx=padding)
    )


@given(SHAPES, st.integers(-1, 4), DIMS, NAMES)
@example((), 0, -1, "float32")
@many
def test_topk_and_sort(shape: Shape, k: int, dim: int, name: str) -> None:
    assert inferred("topk", spec(shape, name), k=k, dim=dim) == of_torch(lambda: torch.topk(zeros(shape, name), k, dim))
    assert inferred("sort", spec(shape, name), dim=dim) == of_torch(lambda: torch.sort(zeros(shape, name), dim=dim))


def test_sort_and_topk_dtypes_equal_torchs() -> None:
    for operator, call in (("sort", torch.sort), ("topk", lambda tensor: torch.topk(tensor, 1))):
        names = {variant[0] for variant in operators.get(operator).dtype_variants}
        for name in ("float32", "float64", "bfloat16", "int8", "int64", "bool", "uint16", "complex64"):
            assert (of_torch(lambda name=name, call=call: call(zeros((3,), name))) is not None) == (name in names), name


def test_domains_contain_valid_indices() -> None:
    assert index_domain((spec((3, 7)), spec((2,), "int64")), {"dim": -1}) == {"index": Interval(low=0, high=6)}
    assert index_domain((spec(()), spec((2,), "int64")), {"dim": 0}) == {"index": Interval(low=0, high=0)}
    assert index_domain((spec((0,)), spec((0,), "int64")), {"dim": 0}) == {"index": Interval(low=0, high=0)}
    assert index_domain((spec((3, 7)), spec((2,), "int64")), {"dim": 2}) == {}
    assert embedding_domain((spec((5, 7)), spec((2,), "int64")), {}) == {"indices": Interval(low=0, high=4)}

"""Inference of reductions matches torch on a CPU: shapes, dtypes and errors (meta tensors refuse less)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from references import inferred_as_torch, spec

from optest.spec import dtype

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:var")]

SHAPES = [(), (1,), (4,), (0,), (2, 3), (3, 0), (0, 3), (2, 3, 5), (2, 0, 5)]
MANY = ("sum", "prod", "mean", "var", "norm", "logsumexp", "amax", "amin", "all", "any")
ONE = ("max", "min", "argmax", "argmin")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "int8", "uint8", "bool")


def calls() -> Iterator[tuple[str, tuple[int, ...], dict[str, Any]]]:
    for shape in SHAPES:
        rank = max(len(shape), 1)
        single = [None, *range(-rank - 1, rank + 1)]
        several = [*single, [0, -1], [0, 0], list(range(rank)), []]
        for keepdim in (False, True):
            for name in MANY:
                for dim in several:
                    yield name, shape, {"dim": dim, "keepdim": keepdim}
            for name in ONE:
                for dim in single:
                    yield name, shape, {"dim": dim, "keepdim": keepdim}
        for dim in single[1:]:
            yield "cumsum", shape, {"dim": dim}
        for p in (0.0, 1.0, 3.0, -1.0, float("inf"), float("-inf")):
            yield "norm", shape, {"p": p}
            yield "norm", shape, {"p": p, "dim": [-1]}


@pytest.mark.parametrize("name", [*MANY, *ONE, "cumsum"])
def test_shapes_and_refusals(name: str) -> None:
    of_operator = [(shape, attributes) for operator, shape, attributes in calls() if operator == name]
    assert len(of_operator) > 20
    for shape, attributes in of_operator:
        inferred_as_torch(name, spec(shape), **attributes)


@pytest.mark.parametrize("name", [*MANY, *ONE, "cumsum"])
def test_dtypes(name: str) -> None:
    dims = {"dim": 1} if name in (*ONE, "cumsum") else {"dim": [1]}
    for source in DTYPES:
        if name == "logsumexp" and not dtype(source).is_inexact:
            continue  # only the newest versions of torch convert integers to floats here
        inferred_as_torch(name, spec((3, 4), source), **dims)


@pytest.mark.parametrize("target", ["int8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("source", DTYPES)
def test_cumsum_converts(source: str, target: str) -> None:
    inferred_as_torch("cumsum", spec((3,), source), dim=0, dtype=target)


@pytest.mark.parametrize("left", [(3,), (0,), (1,), (), (2, 3)])
@pytest.mark.parametrize("right", [(3,), (4,), (0,), (1,), (), (2, 3)])
def test_dot_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    inferred_as_torch("dot", spec(left), spec(right))


@pytest.mark.parametrize("name", ["int32", "uint8", "float16"])
def test_dot_keeps_its_dtype(name: str) -> None:
    assert inferred_as_torch("dot", spec((3,), name), spec((3,), name)) == [(name, ())]

"""Shapes, dtypes and refusals of reductions are torch's (on a CPU: meta tensors refuse less)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, UnfitArguments, dtype

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:var")]

SHAPES = [(), (1,), (4,), (0,), (2, 3), (3, 0), (0, 3), (2, 3, 5), (2, 0, 5)]
MANY = ("sum", "prod", "mean", "var", "norm", "logsumexp", "amax", "amin", "all", "any")
ONE = ("max", "min", "argmax", "argmin")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "int8", "uint8", "bool")


def inferred(name: str, shapes: list[tuple[int, ...]], dtypes: list[str], attributes: dict[str, Any]) -> Any:
    descriptor = operators.get(name)
    specs = [TensorSpec(dtype=dtype(each), shape=shape) for each, shape in zip(dtypes, shapes, strict=True)]
    try:
        outputs = load_object(str(descriptor.infer))(specs, descriptor.bind(attributes))
    except UnfitArguments:
        return "refused"
    return [(each.dtype.name, each.shape) for each in outputs]


def from_torch(name: str, shapes: list[tuple[int, ...]], dtypes: list[str], attributes: dict[str, Any]) -> Any:
    from optest.torch.operators.reduction import CALLS

    tensors = [torch.ones(shape, dtype=getattr(torch, each)) for each, shape in zip(dtypes, shapes, strict=True)]
    try:
        outputs = CALLS[name](tensors, operators.get(name).bind(attributes))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return "refused"
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [(str(each.dtype).removeprefix("torch."), tuple(each.shape)) for each in outputs]


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
    asked = 0
    for operator, shape, attributes in calls():
        if operator == name:
            ours, theirs = (each(name, [shape], ["float32"], attributes) for each in (inferred, from_torch))
            assert ours == theirs, (shape, attributes)
            asked += 1
    assert asked > 20


@pytest.mark.parametrize("name", [*MANY, *ONE, "cumsum"])
def test_dtypes(name: str) -> None:
    dims = {"dim": 1} if name in (*ONE, "cumsum") else {"dim": [1]}
    for each in DTYPES:
        if name == "logsumexp" and not dtype(each).is_inexact:
            continue  # torch makes floats of integers there, which only its newest versions do
        assert inferred(name, [(3, 4)], [each], dims) == from_torch(name, [(3, 4)], [each], dims), each


@pytest.mark.parametrize("target", ["int8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("source", DTYPES)
def test_cumsum_converts(source: str, target: str) -> None:
    attributes = {"dim": 0, "dtype": target}
    assert inferred("cumsum", [(3,)], [source], attributes) == from_torch("cumsum", [(3,)], [source], attributes)


@pytest.mark.parametrize("target", ["bool", "complex64", "int4"])
def test_cumsum_refuses_what_nothing_adds_up_in(target: str) -> None:
    assert inferred("cumsum", [(3,)], ["float32"], {"dim": 0, "dtype": target}) == "refused"


@pytest.mark.parametrize("left", [(3,), (0,), (1,), (), (2, 3)])
@pytest.mark.parametrize("right", [(3,), (4,), (0,), (1,), (), (2, 3)])
def test_dot_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert inferred("dot", [left, right], ["float32"] * 2, {}) == from_torch("dot", [left, right], ["float32"] * 2, {})


@pytest.mark.parametrize(("left", "right"), [("int32", "int32"), ("uint8", "uint8"), ("float16", "float16")])
def test_dot_keeps_its_dtype(left: str, right: str) -> None:
    assert inferred("dot", [(3,), (3,)], [left, right], {}) == [(left, ())]


def test_dot_of_two_dtypes_is_refused() -> None:
    assert inferred("dot", [(3,), (3,)], ["float32", "float64"], {}) == "refused"


def test_a_norm_of_no_order_is_refused() -> None:
    assert inferred("norm", [(3,)], ["float32"], {"p": float("nan")}) == "refused"


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "length"),
    [
        ("sum", [(2, 3, 5)], {"dim": [0, -1]}, 10),
        ("sum", [(2, 3, 5)], {}, 30),
        ("sum", [()], {"dim": [0]}, 1),
        ("argmax", [(2, 3, 5)], {"dim": 1}, 3),
        ("cumsum", [(2, 3, 5)], {"dim": -1}, 5),
        ("cumsum", [()], {"dim": 0}, 1),
        ("dot", [(7,), (7,)], {}, 7),
    ],
)
def test_how_many_terms_a_result_has(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], length: int
) -> None:
    descriptor = operators.get(name)
    specs = [TensorSpec(dtype=dtype("float32"), shape=shape) for shape in shapes]
    assert load_object(str(descriptor.sum_length))(specs, descriptor.bind(attributes)) == length

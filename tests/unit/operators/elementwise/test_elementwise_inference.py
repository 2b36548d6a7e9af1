"""Inference of elementwise operators and activations matches torch: shapes, dtypes and errors."""

from __future__ import annotations

from itertools import product

import pytest
from references import FLOATS, INTEGERS, Shape, inferred, inferred_as_torch, spec

pytestmark = pytest.mark.torch

DTYPES = (*FLOATS, *INTEGERS, "bool")
SHAPES: tuple[Shape, ...] = ((3, 1), (4,), (), (3, 4), (0,), (2, 1, 4))
BINARY = (
    *("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum", "eq", "lt", "ge"),
    *("logical_and", "logical_xor", "bitwise_and", "bitwise_or"),
)
UNARY = (
    *("neg", "abs", "sign", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf"),
    *("floor", "ceil", "trunc", "round", "logical_not", "bitwise_not", "relu", "sigmoid", "silu", "gelu", "leaky_relu"),
    *("elu", "softplus", "hardswish"),
)


@pytest.mark.parametrize("operator", BINARY)
def test_binary_dtypes_match_torch(operator: str) -> None:
    for left, right in product(DTYPES, DTYPES):
        for a, b in (((3, 4), (4,)), ((3, 4), ()), ((), (4,)), ((), ())):
            inferred_as_torch(operator, spec(a, left), spec(b, right))


@pytest.mark.parametrize("operator", ["add", "pow", "eq", "maximum", "where"])
def test_broadcast_shapes_match_torch(operator: str) -> None:
    condition = [spec((1, 4), "bool")] if operator == "where" else []
    for left, right in product(SHAPES, SHAPES):
        inferred_as_torch(operator, *condition, spec(left), spec(right))


@pytest.mark.parametrize("operator", UNARY)
def test_unary_outputs_match_torch(operator: str) -> None:
    for name, shape in product(DTYPES, ((3, 4), (), (0, 2))):
        inferred_as_torch(operator, spec(shape, name))


@pytest.mark.parametrize("mode", ["trunc", "floor", None])
def test_rounded_quotients(mode: str | None) -> None:
    for left, right in product(DTYPES, DTYPES):
        inferred_as_torch("div", spec((3, 4), left), spec((4,), right), rounding_mode=mode)


def test_where_promotes() -> None:
    for left, right in product(DTYPES, DTYPES):
        inferred_as_torch("where", spec((3, 1), "bool"), spec((4,), left), spec((), right))


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
@pytest.mark.parametrize(
    "bounds", [{"min": 0.0}, {"max": 3.0}, {"min": 1.0, "max": 2.0}, {"min": 0.5}, {"min": 1.0, "max": 2.5}, {}]
)
def test_clip(name: str, bounds: dict[str, float]) -> None:
    inferred_as_torch("clip", spec((3,), name), **bounds)


def test_outputs_of_operators_beyond_torch() -> None:
    assert inferred("round", spec((3,), "float16"), decimals=2) == [("float16", (3,))]
    assert inferred("swiglu", spec((3, 4), "float16"), spec((3, 4), "float16")) == [("float16", (3, 4))]
    assert inferred("swiglu", spec((3, 8), "float16")) == [("float16", (3, 4))]

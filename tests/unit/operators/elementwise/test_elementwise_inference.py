"""Shapes, dtypes and refusals of elementwise operators and activations as torch has them."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import Any

import pytest

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, UnfitArguments, dtype

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((3, 1), (4,), (), (3, 4), (0,), (2, 1, 4))
BINARY = (
    *("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum", "eq", "lt", "ge"),
    *("logical_and", "logical_xor", "bitwise_and", "bitwise_or"),
)
UNARY = (
    *("neg", "abs", "sign", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf"),
    *("floor", "ceil", "trunc", "round", "logical_not", "bitwise_not", "relu", "sigmoid", "silu", "gelu", "leaky_relu"),
    *("elu", "softplus", "hardswish"),
)


def inferred(operator: str, *tensors: tuple[str, tuple[int, ...]], **attributes: Any) -> tuple[str, tuple[int, ...]]:
    descriptor = operators.get(operator)
    specs = [TensorSpec(dtype=dtype(name), shape=shape) for name, shape in tensors]
    (spec,) = load_object(str(descriptor.infer))(specs, descriptor.bind(attributes))
    return spec.dtype.name, spec.shape


def by_torch(
    operator: str, *tensors: tuple[str, tuple[int, ...]], **attributes: Any
) -> tuple[str, tuple[int, ...]] | None:
    """None where torch refuses."""
    import torch

    from optest.torch.operators import TORCH_OPERATORS

    operands = [torch.ones(shape, dtype=getattr(torch, name)) for name, shape in tensors]
    try:
        found = TORCH_OPERATORS[operator](operands, operators.get(operator).bind(attributes))
    except (RuntimeError, NotImplementedError):
        return None
    return str(found.dtype).removeprefix("torch."), tuple(found.shape)


def ours(operator: str, *tensors: tuple[str, tuple[int, ...]], **attributes: Any) -> tuple[str, tuple[int, ...]] | None:
    try:
        return inferred(operator, *tensors, **attributes)
    except UnfitArguments:
        return None


@pytest.mark.torch
@pytest.mark.parametrize("operator", BINARY)
def test_two_operands_of_any_dtypes_as_torch(operator: str) -> None:
    for left, right in product(DTYPES, DTYPES):
        for a, b in (((3, 4), (4,)), ((3, 4), ()), ((), (4,)), ((), ())):
            assert ours(operator, (left, a), (right, b)) == by_torch(operator, (left, a), (right, b)), (
                left,
                a,
                right,
                b,
            )


@pytest.mark.torch
@pytest.mark.parametrize("operator", ["add", "pow", "eq", "maximum", "where"])
def test_shapes_broadcast_as_torch(operator: str) -> None:
    for left, right in product(SHAPES, SHAPES):
        tensors = [("float32", left), ("float32", right)]
        if operator == "where":
            tensors.insert(0, ("bool", (1, 4)))
        assert ours(operator, *tensors) == by_torch(operator, *tensors), (left, right)


@pytest.mark.torch
@pytest.mark.parametrize("operator", UNARY)
@pytest.mark.parametrize("name", DTYPES)
def test_one_operand_as_torch(operator: str, name: str) -> None:
    for shape in ((3, 4), (), (0, 2)):
        assert ours(operator, (name, shape)) == by_torch(operator, (name, shape))


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["trunc", "floor", None])
def test_rounded_quotients_as_torch(mode: str | None) -> None:
    for left, right in product(DTYPES, DTYPES):
        pair = ((left, (3, 4)), (right, (4,)))
        assert ours("div", *pair, rounding_mode=mode) == by_torch("div", *pair, rounding_mode=mode), (left, right)


@pytest.mark.torch
def test_where_promotes_as_torch() -> None:
    for left, right in product(DTYPES, DTYPES):
        triple = (("bool", (3, 1)), (left, (4,)), (right, ()))
        assert ours("where", *triple) == by_torch("where", *triple)
    assert ours("where", ("int32", (4,)), ("float32", (4,)), ("float32", (4,))) is None


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
@pytest.mark.parametrize(
    "bounds", [{"min": 0.0}, {"max": 3.0}, {"min": 1.0, "max": 2.0}, {"min": 0.5}, {"min": 1.0, "max": 2.5}, {}]
)
def test_clip_as_torch(name: str, bounds: dict[str, float]) -> None:
    assert ours("clip", (name, (3,)), **bounds) == by_torch("clip", (name, (3,)), **bounds)


def test_clip_refuses_a_bound_that_the_dtype_does_not_hold() -> None:
    with pytest.raises(UnfitArguments, match=r"min is -1, but should be an integer of 0 to 255 for uint8"):
        inferred("clip", ("uint8", (3,)), min=-1.0)
    with pytest.raises(UnfitArguments, match="at least one should be given"):
        inferred("clip", ("float32", (3,)))


def test_factors_of_integers_are_whole() -> None:
    for operator in ("add", "sub"):
        with pytest.raises(UnfitArguments, match=r"alpha is 0\.5"):
            inferred(operator, ("int32", (3,)), ("int32", (3,)), alpha=0.5)


def test_decimals_are_for_floats() -> None:
    assert inferred("round", ("float16", (3,)), decimals=2) == ("float16", (3,))
    with pytest.raises(UnfitArguments, match="decimals is 1, but should be 0 for int32"):
        inferred("round", ("int32", (3,)), decimals=1)


def test_swiglu_takes_two_tensors_or_two_halves() -> None:
    assert inferred("swiglu", ("float16", (3, 4)), ("float16", (3, 4))) == ("float16", (3, 4))
    assert inferred("swiglu", ("float16", (3, 8))) == ("float16", (3, 4))
    for tensors in ([("float32", (3, 5))], [("float32", ())], [("int32", (4,))]):
        with pytest.raises(UnfitArguments):
            inferred("swiglu", *tensors)
    with pytest.raises(UnfitArguments, match="up is 4, but should be 3x4, as gate"):
        inferred("swiglu", ("float32", (3, 4)), ("float32", (4,)))
    with pytest.raises(UnfitArguments, match="up is float16, but should be float32"):
        inferred("swiglu", ("float32", (3, 4)), ("float16", (3, 4)))


def test_softplus_needs_a_beta_above_0() -> None:
    with pytest.raises(UnfitArguments, match="beta is -1, but should be above 0"):
        inferred("softplus", ("float32", (3,)), beta=-1.0)


def test_descriptors_and_samples_import_no_numpy() -> None:
    program = (
        "import sys; from optest.operators import operators; from optest.registry import load_object;"
        "[list(load_object(each.samples)()) for each in operators if isinstance(each.samples, str)"
        " and each.category in ('elementwise', 'comparison', 'logic', 'bitwise', 'conversion', 'activation')];"
        "assert 'numpy' not in sys.modules, 'numpy was imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

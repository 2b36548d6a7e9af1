"""Shapes and dtypes of outputs, with and without torch as the judge."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optest.operators import operators, shapes
from optest.registry import load_object
from optest.spec import DTYPES, TensorSpec, UnfitArguments, dtype

SIZES = st.integers(0, 3)
SHAPES = st.lists(SIZES, max_size=3).map(tuple)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
TORCH_DTYPES = ("bool", *INTEGERS, *FLOATS, "complex64", "complex128")


def spec(shape: tuple[int, ...], name: str = "float32") -> TensorSpec:
    return TensorSpec(dtype=dtype(name), shape=shape)


def inferred(operator: str, specs: list[TensorSpec | None], **attributes: Any) -> tuple[str, tuple[int, ...]] | None:
    """Dtype and shape of the output, None where the operator refuses."""
    descriptor = operators.get(operator)
    try:
        (out,) = load_object(descriptor.infer)(specs, descriptor.bind(attributes))
    except UnfitArguments:
        return None
    assert out.is_dense
    return out.dtype.name, out.shape


def asked(call: Any) -> tuple[str, tuple[int, ...]] | None:
    """What torch's own inference says, on tensors without data."""
    try:
        out = call()
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    name = str(out.dtype).removeprefix("torch.")
    return None if name == "complex32" else (name, tuple(out.shape))  # a dtype that optest does not have


def meta(shape: tuple[int, ...], name: str = "float32") -> Any:
    torch = pytest.importorskip("torch")
    return torch.empty(shape, dtype=getattr(torch, name), device="meta")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@given(SHAPES, SHAPES, st.sampled_from(TORCH_DTYPES), st.sampled_from(TORCH_DTYPES))
@settings(max_examples=300, deadline=None)
def test_add_and_div_broadcast_and_promote_as_torch(
    left: tuple[int, ...], right: tuple[int, ...], a: str, b: str
) -> None:
    specs: list[TensorSpec | None] = [spec(left, a), spec(right, b)]
    assert inferred("add", specs) == asked(lambda: meta(left, a) + meta(right, b))
    assert inferred("div", specs) == asked(lambda: meta(left, a) / meta(right, b))


@pytest.mark.torch
def test_promotion_table_is_torchs() -> None:
    import torch

    known = [each.name for each in DTYPES if each.bits >= 8]
    for a, b in itertools.product(known, known):
        try:
            wanted = str(torch.promote_types(getattr(torch, a), getattr(torch, b))).removeprefix("torch.")
        except RuntimeError:
            wanted = "none"
        try:
            got = shapes.promote_dtypes(dtype(a), dtype(b)).name
        except UnfitArguments:
            got = "none"
        assert got == wanted, f"{a} with {b}"


@pytest.mark.torch
@given(SHAPES, SHAPES, st.sampled_from(FLOATS), st.sampled_from(FLOATS))
@settings(max_examples=300, deadline=None)
def test_matmul_as_torch(left: tuple[int, ...], right: tuple[int, ...], a: str, b: str) -> None:
    got = inferred("matmul", [spec(left, a), spec(right, b)])
    if a != b:
        assert got is None  # torch refuses too, but not for every empty tensor
    else:
        assert got == asked(lambda: meta(left, a) @ meta(right, b))


@given(st.lists(SIZES, max_size=2).map(tuple), SIZES, SIZES, SIZES)
@settings(max_examples=200, deadline=None)
def test_matmul_takes_what_fits(batch: tuple[int, ...], m: int, k: int, n: int) -> None:
    assert inferred("matmul", [spec((*batch, m, k)), spec((*batch, k, n))]) == ("float32", (*batch, m, n))
    assert inferred("matmul", [spec((*batch, m, k)), spec((k,))]) == ("float32", (*batch, m))
    assert inferred("matmul", [spec((m, k)), spec((k + 1, n))]) is None


@pytest.mark.torch
@given(SHAPES, st.one_of(st.none(), st.lists(st.integers(-4, 3), max_size=3)), st.booleans())
@settings(max_examples=300, deadline=None)
def test_sum_as_torch(shape: tuple[int, ...], dim: list[int] | None, keepdim: bool) -> None:
    for name in ("float16", "int8", "bool"):
        wanted = asked(lambda name=name: meta(shape, name).sum(dim=dim, keepdim=keepdim))
        assert inferred("sum", [spec(shape, name)], dim=dim, keepdim=keepdim) == wanted


@pytest.mark.torch
@given(SHAPES, st.integers(-4, 3), st.integers(-4, 3))
@settings(max_examples=300, deadline=None)
def test_softmax_and_transpose_as_torch(shape: tuple[int, ...], dim0: int, dim1: int) -> None:
    import torch

    wanted = asked(lambda: torch.ones(shape).softmax(dim0))  # without data, torch does not look at the dimension
    assert inferred("softmax", [spec(shape)], dim=dim0) == wanted
    wanted = asked(lambda: meta(shape).transpose(dim0, dim1))
    assert inferred("transpose", [spec(shape)], dim0=dim0, dim1=dim1) == wanted


@pytest.mark.torch
@given(SHAPES, SHAPES, SHAPES, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_gemm_as_torch(
    a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], trans_a: bool, trans_b: bool, with_c: bool
) -> None:
    import torch

    def addmm() -> Any:
        left, right = torch.ones(a), torch.ones(b)  # without data, torch takes a c that does not fit
        if left.dim() not in (2, 3) or left.shape[:-2] != right.shape[:-2] or left.dim() != right.dim():
            raise ValueError
        left, right = left.mT if trans_a else left, right.mT if trans_b else right
        function = torch.addmm if left.dim() == 2 else torch.baddbmm
        return function(torch.ones(c), left, right) if with_c else left @ right

    got = inferred("gemm", [spec(a), spec(b), spec(c) if with_c else None], trans_a=trans_a, trans_b=trans_b)
    assert got == asked(addmm)


@pytest.mark.torch
@given(SHAPES, SHAPES.filter(len), st.booleans())
@settings(max_examples=300, deadline=None)
def test_layer_norm_as_torch(shape: tuple[int, ...], normalized: tuple[int, ...], affine: bool) -> None:
    import torch

    def layer_norm() -> Any:
        weight = torch.ones(normalized) if affine else None
        return torch.nn.functional.layer_norm(torch.ones(shape), normalized, weight, weight)

    parameters: list[TensorSpec | None] = [spec(normalized)] * 2 if affine else [None, None]
    got = inferred("layer_norm", [spec(shape), *parameters], normalized_shape=list(normalized))
    assert got == asked(layer_norm)


@pytest.mark.parametrize(
    ("operator", "specs", "attributes", "message"),
    [
        ("add", [spec((2, 3)), spec((2, 4))], {}, "size 4 at dimension -1, but should have 3 or 1 to broadcast"),
        ("add", [spec((2,), "int8"), spec((2,), "int8")], {"alpha": 0.5}, "alpha is 0.5, but should be an integer"),
        ("add", [spec((2,), "int8"), spec((2,), "int8")], {"alpha": 300}, "alpha is 300, but should be an integer"),
        ("add", [spec((2,), "float8_e5m2"), spec((2,))], {}, "no common dtype"),
        ("add", [spec((2,))], {}, "other is missing"),
        ("matmul", [spec((2, 3)), spec((4, 5))], {}, "other is 4x5, but should have 3 rows"),
        ("matmul", [spec(()), spec((4, 5))], {}, "input is a scalar, but should have 1 dimension or more"),
        ("matmul", [spec((2, 3)), spec((3, 2), "float64")], {}, "other is float64, but should be float32"),
        ("gemm", [spec((2, 3)), spec((2, 3)), None], {}, "b is 2x3 with a depth of 2, but should have 3"),
        ("gemm", [spec((2, 3)), spec((3, 4)), spec((2,))], {}, "c is 2, but should broadcast to 2x4"),
        ("gemm", [spec((2, 3)), spec((3, 4)), spec((1, 2, 4))], {}, "c is 1x2x4, but should broadcast to 2x4"),
        ("gemm", [spec((2,)), spec((3, 4)), None], {}, "a is 2, but should have 2 dimensions, or 3 with a batch"),
        ("gemm", [spec((2, 2), "int32")] * 2, {"beta": 0.5}, "beta is 0.5, but should be an integer"),
        ("sum", [spec((2, 3))], {"dim": 2}, "dim is 2, but should be -2 to 1"),
        ("sum", [spec((2, 3))], {"dim": [0, -2]}, "should name each dimension once"),
        ("softmax", [spec((2, 3))], {"dim": -3}, "dim is -3, but should be -2 to 1"),
        ("transpose", [spec((2, 3))], {"dim0": 0, "dim1": 2}, "dim1 is 2, but should be -2 to 1"),
        ("layer_norm", [spec((2, 3))], {"normalized_shape": [2]}, "normalized_shape is 2, but should be the last"),
        ("layer_norm", [spec((2, 3))], {"normalized_shape": []}, "normalized_shape is empty"),
        ("layer_norm", [spec((2, 3)), spec((2,))], {"normalized_shape": [3]}, "weight is 2, but should be 3"),
        (
            "layer_norm",
            [spec((2, 3)), None, spec((3,), "float16")],
            {"normalized_shape": [3]},
            "bias is float16, but should be float32, as input",
        ),
        ("cast", [spec((2,), "complex64")], {"dtype": "float32"}, "should be complex or bool"),
    ],
)
def test_refusals_say_what_was_got_and_what_fits(
    operator: str, specs: list[TensorSpec], attributes: dict[str, Any], message: str
) -> None:
    descriptor = operators.get(operator)
    with pytest.raises(UnfitArguments) as refusal:
        load_object(descriptor.infer)(specs, descriptor.bind(attributes))
    assert message in str(refusal.value)


def test_mixed_parameters_of_layer_norm() -> None:
    got = inferred("layer_norm", [spec((2, 3), "bfloat16"), spec((3,)), None], normalized_shape=[3])
    assert got == ("bfloat16", (2, 3))


def test_cast_gives_the_dtype_that_was_asked_for() -> None:
    assert inferred("cast", [spec((2, 3))], to="half") == ("float16", (2, 3))


def test_listing_operators_needs_no_numpy() -> None:
    code = (
        "import sys; from optest.operators import operators; assert len(operators.names()) >= 12; "
        "assert 'numpy' not in sys.modules, 'numpy was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

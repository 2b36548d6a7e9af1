"""References and inference outside of a case, beside what torch makes of the same arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from optest.numerics import bits, dtype_of, numpy_dtype, round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, Terms, UnfitArguments, dtype

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Inferred = list[tuple[str, Shape]] | None
"""Dtypes and shapes of the outputs, None where the arguments are refused."""

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")


REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, AssertionError, ZeroDivisionError)


def spec(shape: Shape, name: str = "float32") -> TensorSpec:
    return TensorSpec(dtype=dtype(name), shape=shape)


def inferred(operator: str, *specs: TensorSpec | None, **attributes: Any) -> Inferred:
    descriptor = operators.get(operator)
    try:
        outputs = load_object(str(descriptor.infer))(specs, descriptor.bind(attributes))
    except UnfitArguments:
        return None
    assert all(each.is_dense for each in outputs)
    return [(each.dtype.name, each.shape) for each in outputs]


def of_torch(call: Callable[[], Any]) -> Inferred:
    """Of the tensors that a call of torch returns."""
    try:
        found = call()
    except REFUSALS:
        return None
    found = found if isinstance(found, (tuple, list)) else [found]
    return [(str(each.dtype).removeprefix("torch."), tuple(each.shape)) for each in found]


def inferred_as_torch(operator: str, *specs: TensorSpec | None, **attributes: Any) -> Inferred:
    """What optest infers, which is what torch makes of tensors of ones (on a CPU: meta tensors refuse less)."""
    torch = pytest.importorskip("torch")
    from optest.torch.operators import TORCH_OPERATORS

    tensors = [
        None if each is None else torch.ones(each.shape, dtype=getattr(torch, each.dtype.name)) for each in specs
    ]
    ours = inferred(operator, *specs, **attributes)
    bound = operators.get(operator).bind(attributes)
    assert ours == of_torch(lambda: TORCH_OPERATORS[operator](tensors, bound)), (operator, specs, attributes)
    return ours


def specs_of(inputs: Sequence[Array | None]) -> list[TensorSpec | None]:
    return [None if each is None else TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in inputs]


def expected_all(operator: str, *inputs: Array | None, **attributes: Any) -> list[Array]:
    """The outputs, shaped as inference says; made without a warning, and without writing to an input."""
    descriptor = operators.get(operator)
    bound = descriptor.bind(attributes)
    before = [None if each is None else each.tobytes() for each in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = list(load_object(str(descriptor.reference))(list(inputs), bound))
    assert [None if each is None else each.tobytes() for each in inputs] == before, "the reference wrote to its input"
    for out, spec in zip(found, load_object(str(descriptor.infer))(specs_of(inputs), bound), strict=True):
        assert isinstance(out, np.ndarray)
        assert out.shape == spec.shape
        if spec.dtype.bits >= 8 and not spec.dtype.is_complex:
            assert out.dtype == numpy_dtype(spec.dtype) or (spec.dtype.is_float and out.dtype == np.float64)
    return found


def expected(operator: str, *inputs: Array | None, **attributes: Any) -> Array:
    (found,) = expected_all(operator, *inputs, **attributes)
    return found


def terms_of(operator: str, *inputs: Array | None, **attributes: Any) -> Any:
    descriptor = operators.get(operator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (terms,) = load_object(str(descriptor.terms))(list(inputs), descriptor.bind(attributes))
    return terms


def expected_sum(operator: str, *inputs: Array | None, **attributes: Any) -> Array:
    """The output of sums, whose terms follow the laws of sums."""
    out = expected(operator, *inputs, **attributes)
    terms = terms_of(operator, *inputs, **attributes)
    assert isinstance(terms, Terms)
    assert np.shape(terms.absolute) == np.shape(terms.squared) == out.shape
    if out.dtype.kind == "f" and np.isfinite(out).all():
        assert (terms.absolute >= np.abs(out) * (1 - 1e-12)).all()
        assert (terms.absolute**2 <= terms.squared * terms.count * (1 + 1e-12)).all()
    return out


def by_torch(operator: str, *inputs: Array | None, **attributes: Any) -> list[Array]:
    torch = pytest.importorskip("torch")
    from optest.torch.operators import TORCH_OPERATORS
    from optest.torch.tensors import from_torch, to_torch

    def tensor(each: Array) -> Any:  # torch has no negative strides
        return to_torch(each.copy() if min(each.strides, default=0) < 0 else each, torch.device("cpu"))

    tensors = [None if each is None else tensor(each) for each in inputs]
    found = TORCH_OPERATORS[operator](tensors, operators.get(operator).bind(attributes))
    return [from_torch(each) for each in (found if isinstance(found, (list, tuple)) else [found])]


def double(array: Array | None) -> Any:
    """The operand as torch would get it in float64, from exactly the same values."""
    torch = pytest.importorskip("torch")
    return None if array is None else torch.from_numpy(np.array(widen(array), np.float64, order="C"))


def same(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Down to the bits."""
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert bits(np.ascontiguousarray(a)).tobytes() == bits(np.ascontiguousarray(b)).tobytes()


def drawn(shape: Sequence[int], name: str = "float32", seed: int = 0) -> Array:
    rng = np.random.default_rng((seed, *shape))
    entry = dtype(name)
    if entry.is_inexact:
        return round_to(rng.standard_normal(tuple(shape)), entry)
    if name == "bool":
        return rng.random(tuple(shape)) < 0.7
    return rng.integers(max(entry.min_int, -100), 100, tuple(shape)).astype(numpy_dtype(entry))


def strided(array: Array) -> Array:
    """The same values with a transposed, stepped layout."""
    storage = np.zeros((*array.shape[::-1], 2), array.dtype)
    view = storage[..., 0].T
    view[...] = array
    return view

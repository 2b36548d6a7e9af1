"""Shapes and dtypes of the outputs of reductions; standard library only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, isnan, prod

from optest.operators.shapes import (
    Attributes,
    Shape,
    Specs,
    dense,
    given,
    normalize_dim,
    reduced_dims,
    require_same_dtype,
)
from optest.spec import DType, Interval, Kind, TensorSpec, UnfitArguments, dtype, format_shape

__all__ = [
    "factors",
    "infer_amax",
    "infer_argmax",
    "infer_cumsum",
    "infer_dot",
    "infer_logsumexp",
    "infer_max",
    "infer_mean",
    "infer_norm",
    "infer_prod",
    "infer_sum",
    "infer_truth",
    "terms_of_dot",
    "terms_of_reduction",
    "terms_of_scan",
]

_INT64 = dtype("int64")


def infer_sum(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Integers and bool add up in int64, as in torch, or in the dtype that is asked for."""
    spec = given(specs, 0, "input")
    return (dense(_total_dtype(spec, attributes), _reduced(spec, attributes)),)


def infer_prod(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Integers and bool are multiplied in int64, or the dtype that is asked for."""
    spec = given(specs, 0, "input")
    return (dense(_total_dtype(spec, attributes), _reduced(spec, attributes)),)


def infer_mean(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Of floats alone: the mean, the variance, and whatever else keeps their dtype."""
    spec = given(specs, 0, "input")
    _require_float(spec)
    return (dense(spec.dtype, _reduced(spec, attributes)),)


infer_logsumexp = infer_mean


def infer_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Norms whose empty case has no value (p below 0, infinite p) refuse an empty dimension."""
    spec = given(specs, 0, "input")
    _require_float(spec)
    p = attributes.get("p", 2.0)
    if isnan(p):
        raise UnfitArguments("p is NaN, but should be a number, inf or -inf")
    if p < 0 or p == inf:
        _refuse_nothing(spec, reduced_dims(attributes.get("dim"), spec.rank))
    return (dense(spec.dtype, _reduced(spec, attributes)),)


def infer_amax(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """The dtype stays; a dimension without elements has no largest one."""
    spec = given(specs, 0, "input")
    _refuse_nothing(spec, reduced_dims(attributes.get("dim"), spec.rank))
    return (dense(spec.dtype, _reduced(spec, attributes)),)


def infer_max(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Values and int64 indices along a dimension; without one the value alone."""
    spec = given(specs, 0, "input")
    if attributes.get("dim") is None:
        if attributes.get("keepdim"):
            raise UnfitArguments("keepdim is True without dim, but should be False: there is no dimension to keep")
        _refuse_nothing(spec, range(spec.rank))
        return (dense(spec.dtype, ()),)
    dim = normalize_dim(attributes["dim"], spec.rank)
    _refuse_nothing(spec, range(spec.rank)[dim : dim + 1])
    shape = _reduced(spec, attributes)
    return (dense(spec.dtype, shape), dense(_INT64, shape))


def infer_argmax(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """An int64 index along a dimension; without one into the flattened input."""
    spec = given(specs, 0, "input")
    if spec.dtype.kind is Kind.BOOL:
        raise UnfitArguments("input is bool, but should be a number, as torch has no argmax of bool")
    dim = attributes.get("dim")
    removed = range(spec.rank) if dim is None else range(spec.rank)[(at := normalize_dim(dim, spec.rank)) : at + 1]
    _refuse_nothing(spec, removed)
    return (dense(_INT64, _reduced(spec, attributes)),)


def infer_truth(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """all and any: bool, but uint8 for uint8, as in torch."""
    spec = given(specs, 0, "input")
    result = spec.dtype if spec.dtype.name == "uint8" else dtype("bool")
    return (dense(result, _reduced(spec, attributes)),)


def infer_cumsum(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """The input's dtype, int64 for integers and bool, or the one that is asked for."""
    spec = given(specs, 0, "input")
    normalize_dim(attributes["dim"], spec.rank)
    return (dense(_total_dtype(spec, attributes), spec.shape),)


def _total_dtype(spec: TensorSpec, attributes: Attributes) -> DType:
    """The input's, int64 for integers and bool, or the one that is asked for."""
    asked = attributes.get("dtype")
    if asked is None:
        return spec.dtype if spec.dtype.is_inexact else _INT64
    result = dtype(asked)
    if result.kind is Kind.BOOL or result.is_complex or result.bits < 8:
        raise UnfitArguments(f"dtype is {result}, but should be an integer of 8 bits and more or a float")
    return result


def infer_dot(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Two vectors of one length and dtype; integers keep their dtype and wrap."""
    left, right = given(specs, 0, "input"), given(specs, 1, "tensor")
    for name, spec in (("input", left), ("tensor", right)):
        if spec.rank != 1:
            raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have 1 dimension")
    require_same_dtype(left, right, "tensor")
    if left.shape != right.shape:
        raise UnfitArguments(
            f"tensor is {format_shape(right.shape)}, but should be {format_shape(left.shape)}, as input"
        )
    return (dense(left.dtype, ()),)


def factors(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """What is multiplied: near 1 and of either sign, so that thousands of floats stay in range and each one shows;
    small integers without 0, of which a product wraps before it is nothing but factors of 2."""
    spec = given(specs, 0, "input")
    return {"input": Interval(low=-1.125, high=1.125, avoid=0.875) if spec.dtype.is_inexact else _SMALL}


_SMALL = Interval(low=-9, high=9, avoid=1)


def terms_of_reduction(specs: Specs, attributes: Attributes) -> int:
    """How many elements one result is made of."""
    spec = given(specs, 0, "input")
    return prod(spec.shape[each] for each in reduced_dims(attributes.get("dim"), spec.rank) if spec.rank)


def terms_of_scan(specs: Specs, attributes: Attributes) -> int:
    """How many elements the last result of a cumulative sum is made of."""
    spec = given(specs, 0, "input")
    return spec.shape[normalize_dim(attributes["dim"], spec.rank)] if spec.rank else 1


def terms_of_dot(specs: Specs, _attributes: Attributes) -> int:
    return given(specs, 0, "input").elements


def _reduced(spec: TensorSpec, attributes: Attributes) -> Shape:
    dims = reduced_dims(attributes.get("dim"), spec.rank)
    if attributes.get("keepdim"):
        return tuple(1 if i in dims else size for i, size in enumerate(spec.shape))
    return tuple(size for i, size in enumerate(spec.shape) if i not in dims)


def _refuse_nothing(spec: TensorSpec, dims: Collection[int]) -> None:
    """An empty reduction that has no neutral element has no result."""
    empty = [dim for dim in sorted(dims) if dim < spec.rank and spec.shape[dim] == 0]
    if empty:
        raise UnfitArguments(
            f"input is {format_shape(spec.shape)}, but should have 1 or more elements along dimension {empty[0]}, "
            "which is reduced"
        )


def _require_float(spec: TensorSpec) -> None:
    if not spec.dtype.is_inexact:
        raise UnfitArguments(f"input is {spec.dtype}, but should be a float")

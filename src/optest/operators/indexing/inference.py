"""Shapes, dtypes and legal indices of operators that index and order elements; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optest.operators.shapes import Attributes, Shape, Specs, dense, given, normalize_dim, require_same_dtype
from optest.spec import DType, Interval, Kind, TensorSpec, UnfitArguments, dtype, format_shape

__all__ = [
    "embedding_domain",
    "index_domain",
    "infer_embedding",
    "infer_gather",
    "infer_index_select",
    "infer_random_sample",
    "infer_scatter_add",
    "infer_sort",
    "infer_topk",
    "longest_scatter",
]

_INDEX_DTYPES = ("int64", "int32")


def infer_gather(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """As large as index, which may be smaller than input in every dimension, and larger in dim."""
    source, index = given(specs, 0, "input"), given(specs, 1, "index")
    dim = normalize_dim(attributes["dim"], source.rank)
    if index.elements:  # torch looks at nothing of an index without elements
        _require_index(index, "index")
        _require_same_rank(source, index, "index")
        for each, (size, most) in enumerate(zip(_sizes(index.shape), _sizes(source.shape), strict=True)):
            if each != dim and size > most:
                raise UnfitArguments(
                    f"index is {format_shape(index.shape)}, but should be at most {most} at dimension {each}, as input"
                )
    return (dense(source.dtype, index.shape),)


def infer_index_select(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """The dimensions of index in place of dim; a scalar index is one of 1 element, and a scalar input too."""
    source, index = given(specs, 0, "input"), given(specs, 1, "index")
    dim = normalize_dim(attributes["dim"], source.rank)
    _require_index(index, "index")
    if not source.rank:
        if index.elements != 1:
            raise UnfitArguments(f"index is {format_shape(index.shape)}, but should have 1 element, as input has")
        return (dense(source.dtype, ()),)
    return (dense(source.dtype, (*source.shape[:dim], *_sizes(index.shape), *source.shape[dim + 1 :])),)


def infer_scatter_add(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """As large as input; index is no larger than src, and than input in every dimension but dim."""
    source, index, src = given(specs, 0, "input"), given(specs, 1, "index"), given(specs, 2, "src")
    dim = normalize_dim(attributes["dim"], source.rank)
    require_same_dtype(source, src, "src")
    if index.elements:
        _require_index(index, "index")
        _require_same_rank(source, index, "index")
        _require_same_rank(source, src, "src")
        sizes = zip(_sizes(index.shape), _sizes(source.shape), _sizes(src.shape), strict=True)
        for each, (size, in_input, in_src) in enumerate(sizes):
            if (each != dim and size > in_input) or size > in_src:
                raise UnfitArguments(
                    f"index is {format_shape(index.shape)}, but should be no larger than src, "
                    f"{format_shape(src.shape)}, and than input, {format_shape(source.shape)}, but for dimension {dim}"
                )
    return (dense(source.dtype, source.shape),)


def _require_index(spec: TensorSpec, name: str) -> None:
    if spec.dtype.name not in _INDEX_DTYPES:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be {' or '.join(_INDEX_DTYPES)}")


def _require_same_rank(source: TensorSpec, spec: TensorSpec, name: str) -> None:
    if max(spec.rank, 1) != max(source.rank, 1):
        raise UnfitArguments(
            f"{name} is {format_shape(spec.shape)}, but should have {source.rank} dimensions, as input has"
        )


def _sizes(shape: Shape) -> Shape:
    """A scalar counts as one dimension of 1, as in torch."""
    return shape or (1,)


def infer_embedding(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    weight, indices = given(specs, 0, "weight"), given(specs, 1, "indices")
    if weight.rank != 2:
        raise UnfitArguments(f"weight is {format_shape(weight.shape)}, but should have 2 dimensions")
    _require_index(indices, "indices")
    padding, rows = attributes.get("padding_idx"), weight.shape[0]
    if padding is not None and not -rows <= padding < rows:
        raise UnfitArguments(f"padding_idx is {padding}, but should be {-rows} to {rows - 1}, a row of weight")
    return (dense(weight.dtype, (*indices.shape, weight.shape[1])),)


def infer_topk(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    dim, k = normalize_dim(attributes.get("dim", -1), spec.rank), attributes["k"]
    size = _sizes(spec.shape)[dim]
    if not 0 <= k <= size:
        raise UnfitArguments(f"k is {k}, but should be 0 to {size}, the size of dimension {dim}")
    shape = (*spec.shape[:dim], k, *spec.shape[dim + 1 :]) if spec.rank else ()
    values = dense(spec.dtype, shape)
    return (values, replace(values, dtype=dtype("int64")))


def infer_sort(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    normalize_dim(attributes.get("dim", -1), spec.rank)
    return (dense(spec.dtype, spec.shape), dense(dtype("int64"), spec.shape))


def infer_random_sample(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """A 0-d index; attributes as libraries refuse them."""
    spec, index = given(specs, 0, "logits"), dtype(attributes.get("dtype", "int64"))
    if spec.rank != 1 or not spec.elements:
        raise UnfitArguments(f"logits is {format_shape(spec.shape)}, but should have 1 dimension and 1 element or more")
    if not index.is_integer or index.bits < 8 or spec.shape[0] - 1 > _largest(index):
        raise UnfitArguments(f"dtype is {index}, but should be an integer that holds the index {spec.shape[0] - 1}")
    if not 0 <= attributes["random_value"] <= 1:
        raise UnfitArguments(f"random_value is {attributes['random_value']:g}, but should be from 0 to 1")
    for name in ("top_p", "top_k", "temperature"):
        value = attributes.get(name)
        if value is not None and not value >= 0:
            raise UnfitArguments(f"{name} is {value:g}, but should be 0 or more")
    return (dense(index, ()),)


def _largest(index: DType) -> int:
    return int((1 << (index.bits - (index.kind is Kind.INT))) - 1)


def index_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Indices into dimension ``dim`` of the first input; no limits where the arguments do not fit at all."""
    source, dim = specs[0], attributes["dim"]
    if source is None or not -max(source.rank, 1) <= dim < max(source.rank, 1):
        return {}
    return {"index": _below(_sizes(source.shape)[dim])}


def embedding_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    weight = specs[0]
    return {"indices": _below(weight.shape[0])} if weight is not None and weight.rank else {}


def _below(size: int) -> Interval:
    """0 to size - 1; where there is no legal index, 0, which only an index tensor without elements may have."""
    return Interval(low=0.0, high=float(max(size - 1, 0)))


def longest_scatter(specs: Specs, attributes: Attributes) -> int:
    """All indices along ``dim`` may name one place, which holds an element already."""
    source, index = specs[0], specs[1]
    if source is None or index is None or not index.rank:
        return 2
    dim: int = attributes["dim"] % max(source.rank, 1)
    return index.shape[dim % index.rank] + 1

"""Shapes, dtypes, legal positions and lengths of sums of the attention family; standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from optest.operators.shapes import (
    Attributes,
    Shape,
    Specs,
    broadcast_shapes,
    broadcasts_to,
    dense,
    given,
    require_same_dtype,
)
from optest.spec import Interval, Kind, TensorSpec, UnfitArguments, format_shape

__all__ = [
    "attention_length",
    "infer_rope",
    "infer_scaled_dot_product_attention",
    "positions_domain",
    "rope_length",
    "rotated_size",
]


def infer_scaled_dot_product_attention(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """torch's: (…, heads, L, E), (…, heads, S, E), (…, heads, S, Ev) make (…, heads, L, Ev)."""
    query, key, value = (given(specs, index, name) for index, name in enumerate(("query", "key", "value")))
    for name, spec in (("query", query), ("key", key), ("value", value)):
        require_same_dtype(query, spec, name)
        if spec.rank < 2:
            raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have 2 dimensions or more")
    if key.shape[-1] != query.shape[-1]:
        raise UnfitArguments(
            f"key is {format_shape(key.shape)}, but should have vectors of {query.shape[-1]}, "
            f"as query is {format_shape(query.shape)}"
        )
    if value.shape[-2] != key.shape[-2]:
        raise UnfitArguments(
            f"value is {format_shape(value.shape)}, but should have {key.shape[-2]} rows, "
            f"as key is {format_shape(key.shape)}"
        )
    lead = (query.shape[:-2], key.shape[:-2], value.shape[:-2])
    batch = _grouped_batch(*lead) if attributes.get("enable_gqa") else broadcast_shapes(*lead)
    if len(specs) > 3 and specs[3] is not None:
        _require_mask(specs[3], query, (*batch, query.shape[-2], key.shape[-2]), attributes)
    return (dense(query.dtype, (*batch, query.shape[-2], value.shape[-1])),)


def _grouped_batch(query: Shape, key: Shape, value: Shape) -> Shape:
    """With grouped heads the last batch dimension counts heads; those of key and value divide those of query."""
    if not (query and key and value):
        raise UnfitArguments("query, key and value should have a dimension of heads, as enable_gqa is true")
    heads = query[-1]
    for name, shape in (("key", key), ("value", value)):
        if not shape[-1] or heads % shape[-1]:
            raise UnfitArguments(f"{name} has {shape[-1]} heads, but should have a divisor of {heads}, as query has")
    return (*broadcast_shapes(query[:-1], key[:-1], value[:-1]), heads)


def _require_mask(mask: TensorSpec, query: TensorSpec, scores: Shape, attributes: Attributes) -> None:
    if attributes.get("is_causal"):
        raise UnfitArguments("attn_mask is given and is_causal is true, but should be one of them")
    if mask.dtype.kind is not Kind.BOOL and mask.dtype != query.dtype:
        raise UnfitArguments(f"attn_mask is {mask.dtype}, but should be bool or {query.dtype}, as query")
    if mask.rank < 2 or not broadcasts_to(mask.shape, scores):
        raise UnfitArguments(
            f"attn_mask is {format_shape(mask.shape)}, but should have 2 dimensions or more and broadcast to "
            f"{format_shape(scores)}"
        )


def attention_length(specs: Specs, _attributes: Attributes) -> int:
    """The longer of the two sums: over the elements of a vector, and over the keys."""
    key = given(specs, 1, "key")
    return max(key.shape[-2:], default=1)


def infer_rope(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec, cos, sin = (given(specs, index, name) for index, name in enumerate(("input", "cos", "sin")))
    positions = specs[3] if len(specs) > 3 else None
    if spec.rank < 2:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have 2 dimensions or more")
    half = rotated_size(spec, attributes) // 2
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dtype != spec.dtype and not (spec.dtype.bits == 16 and table.dtype.name == "float32"):
            wide = " or float32" if spec.dtype.bits == 16 else ""
            raise UnfitArguments(f"{name} is {table.dtype}, but should be {spec.dtype}{wide}, as input")
    if sin.shape != cos.shape:
        raise UnfitArguments(f"sin is {format_shape(sin.shape)}, but should be {format_shape(cos.shape)}, as cos")
    if not cos.rank or cos.shape[-1] != half:
        raise UnfitArguments(
            f"cos is {format_shape(cos.shape)}, but should have rows of {half}, half of what is rotated"
        )
    if positions is None:
        _require_rows("cos", cos.shape[:-1], spec)
        return (dense(spec.dtype, spec.shape),)
    if cos.rank != 2 or not cos.shape[0]:
        raise UnfitArguments(f"cos is {format_shape(cos.shape)}, but should be a table, as position_ids are given")
    _require_rows("position_ids", positions.shape, spec)
    return (dense(spec.dtype, spec.shape),)


def rotated_size(spec: TensorSpec, attributes: Attributes) -> int:
    """How many elements of each vector are rotated; all if the attribute is 0."""
    size = attributes.get("rotary_embedding_dim", 0) or spec.shape[-1]
    if size % 2 or not 0 < size <= spec.shape[-1]:
        raise UnfitArguments(f"{size} elements are rotated, but should be an even number up to {spec.shape[-1]}")
    return size


def _require_rows(name: str, shape: Shape, spec: TensorSpec) -> None:
    """A row for each place of the sequence, the same for all or one set for each batch."""
    length = spec.shape[-2]
    allowed = [(length,), *([(spec.shape[0], length)] if spec.rank > 2 else [])]
    if shape not in allowed:
        listed = " or ".join(format_shape(each) for each in allowed)
        raise UnfitArguments(f"{name} has {format_shape(shape)} rows, but should have {listed}, as input")


def rope_length(_specs: Specs, _attributes: Attributes) -> int:
    return 2


def positions_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Positions are rows of the tables."""
    cos = specs[1] if len(specs) > 1 else None
    rows = cos.shape[0] if cos is not None and cos.rank else 1
    return {"position_ids": Interval(low=0, high=max(0, rows - 1))}

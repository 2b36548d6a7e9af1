"""References and error terms of rope and rotary_embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    infer_from_arrays,
    optional_input,
    quiet_hooks,
    spec_of,
)
from optest.operators.attention.rope import rotated_size
from optest.operators.attention.rotary_embedding import infer_rotary_embedding
from optest.operators.budgets import terms_of_products
from optest.operators.indexing.gather_reference import require_range
from optest.spec import Terms


def rope_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return (x₁·cos − x₂·sin, x₂·cos + x₁·sin) for each pair; elements beyond the rotated part are unchanged."""
    first, second, cos, sin = rope_parts(inputs, attributes)
    x = as_float64(inputs[0])
    return (with_pairs(x, first * cos - second * sin, second * cos + first * sin, attributes),)


def rope_parts(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array, Array]:
    """Return the first and the second elements of all pairs, and cos and sin, shaped to broadcast to them."""
    x, cos, sin = map(as_float64, inputs[:3])
    size = rotated_size(spec_of(np.asarray(inputs[0])), attributes)
    # With positions, cos and sin are tables; without, they have one row per position already.
    positions = optional_input(inputs, 3)
    if positions is not None:
        cos, sin = (table[positions.astype(np.int64)] for table in (cos, sin))
    if cos.ndim > 2:  # one set per batch: insert the dimensions of heads
        between = (cos.shape[0], *(1,) * (x.ndim - 3), *cos.shape[1:])
        cos, sin = cos.reshape(between), sin.reshape(between)
    part = x[..., :size]
    if attributes.get("interleaved"):
        return part[..., 0::2], part[..., 1::2], cos, sin
    return part[..., : size // 2], part[..., size // 2 :], cos, sin


def with_pairs(x: Array, first: Array, second: Array, attributes: Attributes) -> Array:
    """Return a copy of `x` with its pairs replaced by `first` and `second`."""
    out: Array = x.copy()
    half = first.shape[-1]
    if attributes.get("interleaved"):
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = first, second
    else:
        out[..., :half], out[..., half : 2 * half] = first, second
    return out


def rope_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output: its two products. Elements that are not rotated are exact."""
    parts = [np.abs(x) for x in rope_parts(inputs, attributes)]
    zeros, sums = np.zeros(np.shape(inputs[0])), []
    for first, second, cos, sin in (parts, [x * x for x in parts]):
        sums.append(with_pairs(zeros, first * cos + second * sin, second * cos + first * sin, attributes))
    absolute, squared = sums
    return (terms_of_products(absolute, squared, 2, np.asarray(inputs[0])),)


def rotary_embedding_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    infer_from_arrays(infer_rotary_embedding, inputs, attributes)
    return tuple(np.swapaxes(rope_reference(*call)[0], 0, 1) for call in _rope_calls(inputs, attributes))


def rotary_embedding_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of rope for query and for key, tokens x heads x E."""
    terms = (rope_terms(*call)[0] for call in _rope_calls(inputs, attributes))
    return tuple(Terms(np.swapaxes(x.absolute, 0, 1), np.swapaxes(x.squared, 0, 1), x.count) for x in terms)


def _rope_calls(inputs: Inputs, attributes: Attributes) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield inputs and attributes of rope for query and for key, heads x tokens x E."""
    positions, query, key, cache = (np.asarray(x) for x in inputs)
    # Shape inference cannot check the values of positions.
    require_range(positions, len(cache), "positions")
    half = cache.shape[1] // 2
    rope_attributes = {"interleaved": not attributes.get("is_neox", True), "rotary_embedding_dim": 2 * half}
    # rope has heads before tokens, serving frameworks tokens before heads.
    for heads in (query, key):
        yield [np.swapaxes(heads, 0, 1), cache[:, :half], cache[:, half:], positions], rope_attributes


quiet_hooks(globals())

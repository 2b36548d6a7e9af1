"""What rope and rotary_embedding compute, and their terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    inferred,
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
    """(x₁·cos − x₂·sin, x₂·cos + x₁·sin) for each pair; what is beyond the rotated part stays."""
    first, second, cos, sin = rope_parts(inputs, attributes)
    x = as_float64(inputs[0])
    return (rotated(x, first * cos - second * sin, second * cos + first * sin, attributes),)


def rope_parts(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array, Array]:
    """The first and the second elements of the pairs, and cos and sin broadcast to them."""
    x, cos, sin = (as_float64(each) for each in inputs[:3])
    size = rotated_size(spec_of(np.asarray(inputs[0])), attributes)
    positions = optional_input(inputs, 3)
    if positions is not None:
        cos, sin = (table[positions.astype(np.int64)] for table in (cos, sin))
    if cos.ndim > 2:  # one set for each batch: the heads lie between
        between = (cos.shape[0], *(1,) * (x.ndim - 3), *cos.shape[1:])
        cos, sin = cos.reshape(between), sin.reshape(between)
    part = x[..., :size]
    if attributes.get("interleaved"):
        return part[..., 0::2], part[..., 1::2], cos, sin
    return part[..., : size // 2], part[..., size // 2 :], cos, sin


def rotated(x: Array, first: Array, second: Array, attributes: Attributes) -> Array:
    """``x`` with its pairs replaced."""
    out: Array = x.copy()
    half = first.shape[-1]
    if attributes.get("interleaved"):
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = first, second
    else:
        out[..., :half], out[..., half : 2 * half] = first, second
    return out


def rope_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the two products of each element; what is not rotated has none and stays as it is."""
    first, second, cos, sin = (np.abs(each) for each in rope_parts(inputs, attributes))
    nothing = np.zeros(np.shape(inputs[0]))
    squares = [each * each for each in (first, second, cos, sin)]
    absolute = rotated(nothing, first * cos + second * sin, second * cos + first * sin, attributes)
    first, second, cos, sin = squares
    squared = rotated(nothing, first * cos + second * sin, second * cos + first * sin, attributes)
    return (terms_of_products(absolute, squared, 2, np.asarray(inputs[0])),)


def rotary_embedding_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_rotary_embedding, inputs, attributes)
    return tuple(np.swapaxes(rope_reference(*each)[0], 0, 1) for each in _of_heads(inputs, attributes))


def rotary_embedding_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    found = (rope_terms(*each)[0] for each in _of_heads(inputs, attributes))
    return tuple(Terms(np.swapaxes(each.absolute, 0, 1), np.swapaxes(each.squared, 0, 1), each.count) for each in found)


def _of_heads(inputs: Inputs, attributes: Attributes) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Inputs and attributes of rope, for query and key."""
    positions, query, key, cache = (np.asarray(each) for each in inputs)
    require_range(positions, len(cache), "positions")
    half = cache.shape[1] // 2
    stated = {"interleaved": not attributes.get("is_neox", True), "rotary_embedding_dim": 2 * half}
    for each in (query, key):
        yield [np.swapaxes(each, 0, 1), cache[:, :half], cache[:, half:], positions], stated


quiet_hooks(globals())

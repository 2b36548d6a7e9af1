"""What rotary_embedding computes, and its terms: rope of heads x tokens x E."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred
from optest.operators.attention.rope_reference import rope_reference, rope_terms
from optest.operators.attention.rotary_embedding import infer_rotary_embedding
from optest.operators.indexing.gather_reference import require_range
from optest.spec import Terms


def rotary_embedding_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_rotary_embedding, inputs, attributes)
    return tuple(np.swapaxes(rope_reference(*each)[0], 0, 1) for each in _calls(inputs, attributes))


def rotary_embedding_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    found = (rope_terms(*each)[0] for each in _calls(inputs, attributes))
    return tuple(Terms(np.swapaxes(each.absolute, 0, 1), np.swapaxes(each.squared, 0, 1), each.count) for each in found)


def _calls(inputs: Inputs, attributes: Attributes) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Inputs and attributes of rope, for query and key."""
    positions, query, key, cache = (np.asarray(each) for each in inputs)
    require_range(positions, len(cache), "positions")
    half = cache.shape[1] // 2
    stated = {"interleaved": not attributes.get("is_neox", True), "rotary_embedding_dim": 2 * half}
    for each in (query, key):
        yield [np.swapaxes(each, 0, 1), cache[:, :half], cache[:, half:], positions], stated

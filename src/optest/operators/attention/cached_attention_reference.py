"""What attention over caches computes and may lose: that of the keys and values which each query sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, optional_input
from optest.operators.attention.attention_reference import (
    scaled_dot_product_attention_reference,
    scaled_dot_product_attention_terms,
)
from optest.operators.attention.cached_attention import infer_attention, infer_paged_attention, infer_paged_caching
from optest.operators.indexing.gather_reference import require_range
from optest.operators.indexing.index_copy_reference import is_one_of
from optest.spec import ErrorBudget

_GROUPED = {"enable_gqa": True}
Calls = Iterator[tuple[list[Any], dict[str, Any]]]
"""Inputs and attributes of scaled_dot_product_attention."""


def attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_attention, inputs, attributes)
    (out,) = scaled_dot_product_attention_reference(_with_cache(inputs, attributes["pos"]), _GROUPED)
    return (np.swapaxes(out, 0, 1), *_completed(inputs, attributes["pos"]))


def attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Those of scaled_dot_product_attention over all tokens; the caches lose nothing."""
    (budget,) = scaled_dot_product_attention_terms(_with_cache(inputs, attributes["pos"]), _GROUPED)
    nothing = [np.zeros(np.asarray(cache).shape) for cache in inputs[3:]]
    return (
        _each(lambda values: np.swapaxes(values, 0, 1), [budget]),
        *(ErrorBudget(zeros, zeros) for zeros in nothing),
    )


def _completed(inputs: Inputs, pos: int) -> Iterator[Array]:
    """Each cache with the new tokens."""
    for cache, tokens in zip(inputs[3:], inputs[1:3], strict=True):
        whole = np.array(cache)
        whole[:, pos : pos + np.asarray(tokens).shape[1]] = tokens
        yield whole


def _with_cache(inputs: Inputs, pos: int) -> list[Any]:
    """query, all keys and values, and which of them each token sees."""
    query, key, value, *caches = (np.asarray(each) for each in inputs)
    seen = np.tri(query.shape[1], pos + query.shape[1], pos, dtype=np.bool_)
    whole = [np.concatenate([old[:, :pos], new], axis=1) for old, new in zip(caches, (key, value), strict=True)]
    return [query, *whole, seen]


def paged_attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    query = np.asarray(inputs[0])
    inferred(infer_paged_attention, inputs, attributes)
    outs = [scaled_dot_product_attention_reference(*each)[0][:, 0] for each in _sequences(inputs, attributes)]
    return (np.stack(outs) if outs else np.zeros(query.shape),)


def paged_attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Those of scaled_dot_product_attention over the tokens of each sequence."""
    budgets = [scaled_dot_product_attention_terms(*each)[0] for each in _sequences(inputs, attributes)]
    if not budgets:
        nothing = np.zeros(np.asarray(inputs[0]).shape)
        return (ErrorBudget(nothing, nothing),)
    return (_each(lambda *values: np.stack(values)[:, :, 0], budgets),)


def _sequences(inputs: Inputs, attributes: Attributes) -> Calls:
    """Each query with the keys and values of its sequence, and the bias of their distance."""
    query, key_cache, value_cache, tables, lengths = (np.asarray(each) for each in inputs[:5])
    slopes = optional_input(inputs, 5)
    require_range(lengths, tables.shape[1] * key_cache.shape[2] + 1, "seq_lens")
    size = max(key_cache.shape[2], 1)
    for row, (length, table) in enumerate(zip(lengths.tolist(), tables, strict=True)):
        blocks = table[: -(-length // size)]
        require_range(blocks, len(key_cache), "block_tables")
        key, value = (_tokens(cache[blocks])[:, :length] for cache in (key_cache, value_cache))
        bias = None if slopes is None else as_float64(slopes)[:, None, None] * np.arange(1.0 - length, 1.0)
        yield [query[row][:, None], key, value, bias], {**_GROUPED, "scale": attributes.get("scale")}


def _tokens(blocks: Array) -> Array:
    """heads x tokens x E of blocks x heads x tokens x E."""
    count, heads, tokens, size = blocks.shape
    return np.swapaxes(blocks, 0, 1).reshape(heads, count * tokens, size)


def _each(function: Callable[..., Array], budgets: Sequence[ErrorBudget]) -> ErrorBudget:
    """``function`` of all their parts of each kind."""
    worst, variance = (function(*parts) for parts in zip(*(each[:2] for each in budgets), strict=True))
    cut = [each.of_operands for each in budgets if each.of_operands is not None]
    of_operands = tuple(function(*parts) for parts in zip(*cut, strict=True)) if len(cut) == len(budgets) else None
    return ErrorBudget(worst, variance, of_operands)  # type: ignore[arg-type]


def paged_caching_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Where a slot repeats, the last token."""
    inferred(infer_paged_caching, inputs, attributes)
    outs = []
    for cache, places, tokens in _written(inputs):
        out = cache.copy()
        np.swapaxes(out, 1, 2)[places] = tokens
        outs.append(out)
    return tuple(outs)


def paged_caching_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Any of the tokens that go to a slot."""
    return tuple(
        np.swapaxes(is_one_of(np.swapaxes(cache, 1, 2), places, tokens, np.swapaxes(out, 1, 2)), 1, 2)
        for (cache, places, tokens), out in zip(_written(inputs), actual, strict=True)
    )


def _written(inputs: Inputs) -> Iterator[tuple[Array, tuple[Array, Array], Array]]:
    """Each cache, the blocks and places in them that are written, and what is."""
    *_, slots = (np.asarray(each) for each in inputs)
    for cache, tokens in zip(inputs[:2], inputs[2:4], strict=True):
        cache = np.asarray(cache)
        kept = slots >= 0
        require_range(slots[kept], cache.shape[0] * cache.shape[2], "slot_mapping")
        yield cache, np.divmod(slots[kept], max(cache.shape[2], 1)), np.asarray(tokens)[kept]

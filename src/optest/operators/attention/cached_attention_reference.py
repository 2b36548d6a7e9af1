"""What attention over caches and packed sequences computes and may lose: that of what each query sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, Reference, as_float64, inferred, optional_input
from optest.operators.attention.attention_reference import (
    log_sum_exp,
    scaled_dot_product_attention_reference,
    scaled_dot_product_attention_terms,
    seen_keys,
)
from optest.operators.attention.cached_attention import (
    infer_attention,
    infer_merge_attention_states,
    infer_paged_attention,
    infer_paged_caching,
    infer_paged_prefill_attention,
)
from optest.operators.attention.varlen_attention import infer_varlen_attention
from optest.operators.indexing.gather_reference import require_range
from optest.operators.indexing.index_copy_reference import is_one_of
from optest.operators.running_errors import Bounded, Number, budgets, either, exactly, exp, log, moved, softplus
from optest.operators.shapes import Inference
from optest.spec import ErrorBudget, UnfitArguments

Calls = Iterator[tuple[list[Any], dict[str, Any]]]
"""Inputs and attributes of scaled_dot_product_attention."""


def attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_attention, inputs, attributes)
    call = _with_cache(inputs, attributes)
    (out,) = scaled_dot_product_attention_reference(*call)
    lse = [log_sum_exp(*call)[0]] if attributes.get("return_lse") else []
    caches = [np.array(cache) for cache in inputs[3:]]
    for cache, tokens in zip(caches, inputs[1:3], strict=True):
        cache[:, attributes["pos"] : attributes["pos"] + np.asarray(tokens).shape[1]] = tokens
    return (np.swapaxes(out, 0, 1), *caches, *lse)


def attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Those of scaled_dot_product_attention over all tokens; the caches lose nothing."""
    call = _with_cache(inputs, attributes)
    (budget,) = scaled_dot_product_attention_terms(*call)
    nothing = [np.zeros(np.asarray(cache).shape) for cache in inputs[3:]]
    return (
        _each(lambda values: np.swapaxes(values, 0, 1), [budget]),
        *(ErrorBudget(zeros, zeros) for zeros in nothing),
        *([log_sum_exp(*call)[1]] if attributes.get("return_lse") else []),
    )


def _with_cache(inputs: Inputs, attributes: Attributes) -> tuple[list[Any], dict[str, Any]]:
    """query, all keys and values, and which of them each token sees."""
    query, key, value, *caches = (np.asarray(each) for each in inputs)
    pos = attributes["pos"]
    whole = [np.concatenate([old[:, :pos], new], axis=1) for old, new in zip(caches, (key, value), strict=True)]
    return _grouped(query, whole, attributes, first=pos)


def _grouped(
    query: Array, key_and_value: Sequence[Array], attributes: Attributes, first: int, slopes: Array | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """A call of scaled_dot_product_attention for the heads of one sequence, whose first query has the place ``first``:
    causal unless ``is_causal`` says otherwise, with the bias of ALiBi for ``slopes``."""
    causal = {**attributes, "is_causal": attributes.get("is_causal", True)}
    queries, keys = query.shape[1], key_and_value[0].shape[1]
    mask = seen_keys(queries, keys, causal, first)
    if slopes is not None:
        distance = np.arange(keys) - first - np.arange(queries)[:, None]
        bias = as_float64(slopes)[:, None, None] * distance
        mask = bias if mask is None else np.where(mask, bias, -np.inf)
    stated = {name: attributes[name] for name in ("scale", "softcap") if name in attributes}
    return [query, *key_and_value, mask], {"enable_gqa": True, **stated}


def _paged(inputs: Inputs, attributes: Attributes) -> Calls:
    query = np.asarray(inputs[0])
    return _sequences(inputs, attributes, np.arange(len(query) + 1), optional_input(inputs, 5))


def _prefilled(inputs: Inputs, attributes: Attributes) -> Calls:
    offsets = _offsets(inputs[5], len(np.asarray(inputs[0])), "cu_seqlens_q")
    return _sequences(inputs, attributes, offsets, optional_input(inputs, 6))


def _packed(inputs: Inputs, attributes: Attributes) -> Calls:
    query, key, value = (np.asarray(each) for each in inputs[:3])
    of_queries, of_keys = _offsets(inputs[3], len(query), "cu_seqlens_q"), _offsets(inputs[4], len(key), "cu_seqlens_k")
    for row in range(len(of_queries) - 1):
        own = np.swapaxes(query[of_queries[row] : of_queries[row + 1]], 0, 1)
        whole = [np.swapaxes(each[of_keys[row] : of_keys[row + 1]], 0, 1) for each in (key, value)]
        yield _grouped(own, whole, {"is_causal": False, **attributes}, whole[0].shape[1] - own.shape[1])


def _offsets(offsets: Any, tokens: int, name: str) -> Array:
    """Where sequences begin and end, from 0 on, not beyond ``tokens``.

    Raises:
        UnfitArguments: for offsets that fall or leave the tokens.
    """
    places = np.asarray(offsets).astype(np.int64)
    if places[0] != 0 or places[-1] > tokens or (np.diff(places) < 0).any():
        raise UnfitArguments(f"{name} is {places.tolist()}, but should rise from 0 to {tokens} at most")
    return places


def _sequences(inputs: Inputs, attributes: Attributes, offsets: Array, slopes: Array | None) -> Calls:
    """The queries of each sequence, which are its last tokens, with its keys and values."""
    query, key_cache, value_cache, tables, lengths = (np.asarray(each) for each in inputs[:5])
    if attributes.get("kv_layout", "HND") == "NHD":
        key_cache, value_cache = (np.swapaxes(each, 1, 2) for each in (key_cache, value_cache))
    require_range(lengths, tables.shape[1] * key_cache.shape[2] + 1, "seq_lens")
    size = max(key_cache.shape[2], 1)
    for row, (length, table) in enumerate(zip(lengths.tolist(), tables, strict=True)):
        blocks = table[: -(-length // size)]
        require_range(blocks, len(key_cache), "block_tables")
        whole = [_tokens(cache[blocks])[:, :length] for cache in (key_cache, value_cache)]
        own = np.swapaxes(query[offsets[row] : offsets[row + 1]], 0, 1)
        if own.shape[1] > max(length, 1):
            raise UnfitArguments(
                f"seq_lens is {length} at [{row}], but should be {own.shape[1]} or more, as it has queries"
            )
        yield _grouped(own, whole, attributes, length - own.shape[1], slopes)


def _tokens(blocks: Array) -> Array:
    """heads x tokens x E of blocks x heads x tokens x E."""
    count, heads, tokens, size = blocks.shape
    return np.swapaxes(blocks, 0, 1).reshape(heads, count * tokens, size)


def _of_sequences(
    infer: Inference, calls: Callable[[Inputs, Attributes], Calls]
) -> tuple[Reference, Callable[..., Any]]:
    """The reference and the error terms of attention within each sequence; ``calls`` has that of each."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        _, (out, *lse) = inferred(infer, inputs, attributes)
        every = list(calls(inputs, attributes))
        rows = [[log_sum_exp(*call)[0] for call in every] for _ in lse]
        outs = [scaled_dot_product_attention_reference(*call)[0] for call in every]
        return _joined(out.shape, outs), *(_joined(out.shape[:2], each).T for each in rows)

    def terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
        """Those of scaled_dot_product_attention over the keys of each sequence."""
        _, (out, *lse) = inferred(infer, inputs, attributes)
        every = list(calls(inputs, attributes))
        if not every:
            return tuple(ErrorBudget(np.zeros(each.shape), np.zeros(each.shape)) for each in (out, *lse))
        budgets = [scaled_dot_product_attention_terms(*call)[0] for call in every]
        rows = [[log_sum_exp(*call)[1] for call in every] for _ in lse]
        of_lse = [_each(lambda *values: _joined(out.shape[:2], values).T, each) for each in rows]
        return _each(lambda *values: _joined(out.shape, values), budgets), *of_lse

    return reference, terms


paged_attention_reference, paged_attention_terms = _of_sequences(infer_paged_attention, _paged)
paged_prefill_attention_reference, paged_prefill_attention_terms = _of_sequences(
    infer_paged_prefill_attention, _prefilled
)
varlen_attention_reference, varlen_attention_terms = _of_sequences(infer_varlen_attention, _packed)


def _joined(shape: tuple[int, ...], outs: Sequence[Array]) -> Array:
    """The heads x tokens x E of each sequence as tokens x heads x E; 0 behind the last."""
    whole = np.zeros(shape)
    rows = [np.swapaxes(each, 0, 1) for each in outs]
    if rows:
        whole[: sum(map(len, rows))] = np.concatenate(rows)
    return whole


def _behind_the_last(offsets: int) -> Callable[..., Sequence[Any]]:
    """Anything is right behind the last sequence, by the input that has the offsets."""

    def alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
        rows = np.arange(len(actual[0])) >= int(np.asarray(inputs[offsets])[-1])
        shaped = (rows[:, None, None], rows[None])
        return tuple(np.broadcast_to(each, out.shape) for each, out in zip(shaped, actual, strict=False))

    return alternatives


paged_prefill_attention_alternatives, varlen_attention_alternatives = _behind_the_last(5), _behind_the_last(3)


def _each(function: Callable[..., Array], budgets: Sequence[ErrorBudget]) -> ErrorBudget:
    """``function`` of all their parts of each kind."""
    worst = function(*(each.worst for each in budgets))
    has_variance = all(each.variance is not None for each in budgets)
    variance = function(*(each.variance for each in budgets)) if has_variance else None
    cut = [each.of_operands for each in budgets if each.of_operands is not None]
    of_operands = tuple(function(*parts) for parts in zip(*cut, strict=True)) if len(cut) == len(budgets) else None
    return ErrorBudget(worst, variance, of_operands)  # type: ignore[arg-type]


def paged_caching_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Where a slot repeats, the last token."""
    inferred(infer_paged_caching, inputs, attributes)
    outs = []
    for cache, places, tokens in _written(inputs, attributes):
        out = cache.copy()
        _by_token(out, attributes)[places] = tokens
        outs.append(out)
    return tuple(outs)


def paged_caching_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Any of the tokens that go to a slot."""
    return tuple(
        _by_token(is_one_of(_by_token(cache, attributes), places, tokens, _by_token(out, attributes)), attributes)
        for (cache, places, tokens), out in zip(_written(inputs, attributes), actual, strict=True)
    )


def _by_token(cache: Array, attributes: Attributes) -> Array:
    """blocks x tokens x heads x E of either layout, and back."""
    return cache if attributes.get("kv_layout", "HND") == "NHD" else np.swapaxes(cache, 1, 2)


def _written(inputs: Inputs, attributes: Attributes) -> Iterator[tuple[Array, tuple[Array, Array], Array]]:
    """Each cache, the blocks and places in them that are written, and what is."""
    *_, slots = (np.asarray(each) for each in inputs)
    for cache, tokens in zip(inputs[:2], inputs[2:4], strict=True):
        cache = np.asarray(cache)
        kept = slots >= 0
        blocks, size = _by_token(cache, attributes).shape[:2]
        require_range(slots[kept], blocks * size, "slot_mapping")
        yield cache, np.divmod(slots[kept], max(size, 1)), np.asarray(tokens)[kept]


@np.errstate(all="ignore")
def _merged(inputs: Sequence[Any], _attributes: Attributes) -> tuple[Number, ...]:
    prefix, prefix_lse, suffix, suffix_lse = (inputs[place] for place in range(4))
    largest = np.maximum(*(each.value if isinstance(each, Bounded) else each for each in (prefix_lse, suffix_lse)))
    both_empty = largest == -np.inf
    first, second = (exp(each - np.where(both_empty, 0.0, largest)) for each in (prefix_lse, suffix_lse))
    total = moved(first + second, lambda values: np.where(both_empty, 1.0, values))
    apart, lse = suffix_lse - prefix_lse, log(total) + largest
    # Each share by itself, as kernels that divide the sum of the products lose less where the two cancel.
    # FlashAttention takes the shares from the log-sum-exp of both, and ring attention moves the prefix by a sigmoid.
    shares = [either(first / total, exp(prefix_lse - lse)), either(second / total, exp(suffix_lse - lse))]
    first, second, step = (moved(each, lambda v: v.T[..., None]) for each in (*shares, 1.0 / (1.0 + exp(-apart))))
    out = either(prefix * first + suffix * second, prefix - step * (prefix - suffix))
    return out, either(lse, prefix_lse + softplus(apart))


def merge_attention_states_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_merge_attention_states, inputs, attributes)
    return exactly(_merged, inputs, attributes)


def merge_attention_states_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The running errors of the shift by the larger log-sum-exp, exp, the sum of both and its logarithm, and of both
    products of a share, which is a quotient or exp(each − lse), and an output; or those of prefix_output −
    σ(suffix_lse − prefix_lse)·(prefix_output − suffix_output), as in ring attention, where they are larger."""
    return budgets(_merged, inputs, attributes)

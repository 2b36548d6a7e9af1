"""References, error terms and accepted alternatives of attention over caches and packed sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, Reference, as_float64, infer_from_arrays, optional_input
from optest.operators.attention.attention_reference import (
    log_sum_exp,
    scaled_dot_product_attention_reference,
    scaled_dot_product_attention_terms,
    visible_keys_mask,
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
from optest.operators.running_errors import (
    Bounded,
    Number,
    budgets,
    evaluate,
    exp,
    larger_error_of,
    log,
    move_elements,
    softplus,
)
from optest.operators.shapes import Inference
from optest.spec import ErrorBudget, UnfitArguments

# Inputs and attributes of scaled_dot_product_attention.
Calls = Iterator[tuple[list[Any], dict[str, Any]]]


def attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    infer_from_arrays(infer_attention, inputs, attributes)
    call = _cached_call(inputs, attributes)
    (out,) = scaled_dot_product_attention_reference(*call)
    lse = [log_sum_exp(*call)[0]] if attributes.get("return_lse") else []
    caches = [np.array(cache) for cache in inputs[3:]]
    for cache, tokens in zip(caches, inputs[1:3], strict=True):
        cache[:, attributes["pos"] : attributes["pos"] + np.asarray(tokens).shape[1]] = tokens
    return (np.swapaxes(out, 0, 1), *caches, *lse)


def attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of scaled_dot_product_attention over all tokens; the caches are exact."""
    call = _cached_call(inputs, attributes)
    (budget,) = scaled_dot_product_attention_terms(*call)
    nothing = [np.zeros(np.asarray(cache).shape) for cache in inputs[3:]]
    return (
        _map_budgets(lambda values: np.swapaxes(values, 0, 1), [budget]),
        *(ErrorBudget(zeros, zeros) for zeros in nothing),
        *([log_sum_exp(*call)[1]] if attributes.get("return_lse") else []),
    )


def _cached_call(inputs: Inputs, attributes: Attributes) -> tuple[list[Any], dict[str, Any]]:
    """Return the scaled_dot_product_attention call of query over the cached and the new keys and values."""
    query, key, value, *caches = (np.asarray(x) for x in inputs)
    pos = attributes["pos"]
    tokens = [np.concatenate([old[:, :pos], new], axis=1) for old, new in zip(caches, (key, value), strict=True)]
    return _sequence_call(query, tokens, attributes, first=pos)


def _sequence_call(
    query: Array, key_and_value: Sequence[Array], attributes: Attributes, first: int, slopes: Array | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Return the scaled_dot_product_attention call of the heads of one sequence.

    The first query has the position `first`. It is causal unless is_causal is set to false; `slopes` add the bias of
    ALiBi.
    """
    causal = {**attributes, "is_causal": attributes.get("is_causal", True)}
    queries, keys = query.shape[1], key_and_value[0].shape[1]
    # Masks are computed here, as positions start at `first` and not at 0.
    mask = visible_keys_mask(queries, keys, causal, first)
    if slopes is not None:
        # ALiBi: a slope per head times the (negative) distance to the query.
        distance = np.arange(keys) - first - np.arange(queries)[:, None]
        bias = as_float64(slopes)[:, None, None] * distance
        mask = bias if mask is None else np.where(mask, bias, -np.inf)
    kept_attributes = {name: attributes[name] for name in ("scale", "softcap") if name in attributes}
    return [query, *key_and_value, mask], {"enable_gqa": True, **kept_attributes}


def _varlen_calls(inputs: Inputs, attributes: Attributes) -> Calls:
    """Yield the calls of a varlen_attention, one per sequence."""
    query, key, value = (np.asarray(x) for x in inputs[:3])
    of_queries = _checked_offsets(inputs[3], len(query), "cu_seqlens_q")
    of_keys = _checked_offsets(inputs[4], len(key), "cu_seqlens_k")
    for row in range(len(of_queries) - 1):
        queries = np.swapaxes(query[of_queries[row] : of_queries[row + 1]], 0, 1)
        tokens = [np.swapaxes(x[of_keys[row] : of_keys[row + 1]], 0, 1) for x in (key, value)]
        # The last query and the last key of a sequence have the same position.
        yield _sequence_call(queries, tokens, {"is_causal": False, **attributes}, tokens[0].shape[1] - queries.shape[1])


def _checked_offsets(offsets: Any, tokens: int, name: str) -> Array:
    """Return the boundaries of sequences as int64.

    Raises:
        UnfitArguments: unless they rise from 0 to at most `tokens`.
    """
    boundaries = np.asarray(offsets).astype(np.int64)
    if boundaries[0] != 0 or boundaries[-1] > tokens or (np.diff(boundaries) < 0).any():
        raise UnfitArguments(f"{name} is {boundaries.tolist()}, expected to rise from 0 to at most {tokens}")
    return boundaries


def _calls_over_cache(inputs: Inputs, attributes: Attributes, offsets: Array, slopes: Array | None) -> Calls:
    """Yield the call of each sequence: its queries, which are its last tokens, over its cached keys and values."""
    query, key_cache, value_cache, tables, lengths = (np.asarray(x) for x in inputs[:5])
    if attributes.get("kv_layout", "HND") == "NHD":
        key_cache, value_cache = (np.swapaxes(x, 1, 2) for x in (key_cache, value_cache))
    require_range(lengths, tables.shape[1] * key_cache.shape[2] + 1, "seq_lens")
    # A cache without slots has only empty sequences.
    size = max(key_cache.shape[2], 1)
    for row, (length, table) in enumerate(zip(lengths.tolist(), tables, strict=True)):
        blocks = table[: -(-length // size)]
        require_range(blocks, len(key_cache), "block_tables")
        # Blocks x heads x tokens x E become heads x all tokens x E.
        tokens = [
            np.swapaxes(cache[blocks], 0, 1).reshape(cache.shape[1], len(blocks) * cache.shape[2], cache.shape[3])
            for cache in (key_cache, value_cache)
        ]
        tokens = [x[:, :length] for x in tokens]
        queries = np.swapaxes(query[offsets[row] : offsets[row + 1]], 0, 1)
        # An empty sequence may have one query, which gives zeros.
        if (count := queries.shape[1]) > max(length, 1):
            raise UnfitArguments(f"seq_lens is {length} at [{row}], expected {count} or more, the number of queries")
        yield _sequence_call(queries, tokens, attributes, length - count, slopes)


def _reference_and_terms(
    infer: Inference, calls: Callable[[Inputs, Attributes], Calls]
) -> tuple[Reference, Callable[..., Any]]:
    """Return the reference and the error terms of an operator whose `calls` yields attention per sequence."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        _, (out, *lse) = infer_from_arrays(infer, inputs, attributes)
        sequence_calls = list(calls(inputs, attributes))
        rows = [[log_sum_exp(*call)[0] for call in sequence_calls] for _ in lse]
        outs = [scaled_dot_product_attention_reference(*call)[0] for call in sequence_calls]
        return _join_sequences(out.shape, outs), *(_join_sequences(out.shape[:2], parts).T for parts in rows)

    def terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
        """Return the budgets of scaled_dot_product_attention over the keys of each sequence."""
        _, (out, *lse) = infer_from_arrays(infer, inputs, attributes)
        sequence_calls = list(calls(inputs, attributes))
        # Without sequences there are no budgets to join.
        if not sequence_calls:
            return tuple(ErrorBudget(np.zeros(spec.shape), np.zeros(spec.shape)) for spec in (out, *lse))
        budgets = [scaled_dot_product_attention_terms(*call)[0] for call in sequence_calls]
        rows = [[log_sum_exp(*call)[1] for call in sequence_calls] for _ in lse]
        of_lse = [_map_budgets(lambda *values: _join_sequences(out.shape[:2], values).T, parts) for parts in rows]
        return _map_budgets(lambda *values: _join_sequences(out.shape, values), budgets), *of_lse

    return reference, terms


paged_attention_reference, paged_attention_terms = _reference_and_terms(
    infer_paged_attention,
    # One query per sequence.
    lambda inputs, attributes: _calls_over_cache(
        inputs, attributes, np.arange(len(np.asarray(inputs[0])) + 1), optional_input(inputs, 5)
    ),
)
paged_prefill_attention_reference, paged_prefill_attention_terms = _reference_and_terms(
    infer_paged_prefill_attention,
    lambda inputs, attributes: _calls_over_cache(
        inputs,
        attributes,
        _checked_offsets(inputs[5], len(np.asarray(inputs[0])), "cu_seqlens_q"),
        optional_input(inputs, 6),
    ),
)
varlen_attention_reference, varlen_attention_terms = _reference_and_terms(infer_varlen_attention, _varlen_calls)


def _join_sequences(shape: tuple[int, ...], outs: Sequence[Array]) -> Array:
    """Return heads x tokens x E outputs of sequences as one tokens x heads x E array, with zeros after the last."""
    joined = np.zeros(shape)
    rows = [np.swapaxes(out, 0, 1) for out in outs]
    if rows:
        joined[: sum(map(len, rows))] = np.concatenate(rows)
    return joined


def _accept_after_last_sequence(offsets: int) -> Callable[..., Sequence[Any]]:
    """Return an alternatives hook that accepts any value after the last sequence; `offsets` is an input index."""

    def alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
        """Return a mask for each output, True in rows after the last sequence, where any value is right."""
        rows = np.arange(len(actual[0])) >= int(np.asarray(inputs[offsets])[-1])
        masks = (rows[:, None, None], rows[None])
        return tuple(np.broadcast_to(mask, out.shape) for mask, out in zip(masks, actual, strict=False))

    return alternatives


paged_prefill_attention_alternatives = _accept_after_last_sequence(5)
varlen_attention_alternatives = _accept_after_last_sequence(3)


def _map_budgets(function: Callable[..., Array], budgets: Sequence[ErrorBudget]) -> ErrorBudget:
    """Return the budget whose parts are `function` of that part of all `budgets`; a part that one lacks is None."""
    worst = function(*(budget.worst for budget in budgets))
    has_variance = all(budget.variance is not None for budget in budgets)
    variance = function(*(budget.variance for budget in budgets)) if has_variance else None
    of_operands = None
    if all(budget.of_operands is not None for budget in budgets):
        pairs = zip(*(budget.of_operands for budget in budgets if budget.of_operands), strict=True)
        of_operands = tuple(function(*parts) for parts in pairs)
    return ErrorBudget(worst, variance, of_operands)  # type: ignore[arg-type]


def paged_caching_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return copies of the caches with the tokens in their slots; if a slot repeats, the last token wins."""
    infer_from_arrays(infer_paged_caching, inputs, attributes)
    outs = []
    for cache, indices, tokens in _writes(inputs, attributes):
        out = cache.copy()
        _in_token_order(out, attributes)[indices] = tokens
        outs.append(out)
    return tuple(outs)


def paged_caching_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept any of the tokens written to a slot."""
    masks = []
    for (cache, indices, tokens), out in zip(_writes(inputs, attributes), actual, strict=True):
        cache, out = (_in_token_order(x, attributes) for x in (cache, out))
        masks.append(_in_token_order(is_one_of(cache, indices, tokens, out), attributes))
    return tuple(masks)


def _in_token_order(cache: Array, attributes: Attributes) -> Array:
    """Return blocks x tokens x heads x E of a cache in either layout, or the inverse."""
    return cache if attributes.get("kv_layout", "HND") == "NHD" else np.swapaxes(cache, 1, 2)


def _writes(inputs: Inputs, attributes: Attributes) -> Iterator[tuple[Array, tuple[Array, Array], Array]]:
    """Yield each cache, the indices (block, token) that are written, and the tokens."""
    *_, slots = (np.asarray(x) for x in inputs)
    for cache, tokens in zip(inputs[:2], inputs[2:4], strict=True):
        cache, is_written = np.asarray(cache), slots >= 0
        blocks, size = _in_token_order(cache, attributes).shape[:2]
        require_range(slots[is_written], blocks * size, "slot_mapping")
        yield cache, np.divmod(slots[is_written], max(size, 1)), np.asarray(tokens)[is_written]


@np.errstate(all="ignore")
def _merged_states(inputs: Sequence[Any], _attributes: Attributes) -> tuple[Number, ...]:
    """Compute the merged output and its log-sum-exp, with running errors for Bounded inputs."""
    prefix, prefix_lse, suffix, suffix_lse = inputs
    largest = np.maximum(*(x.value if isinstance(x, Bounded) else x for x in (prefix_lse, suffix_lse)))
    both_empty = largest == -np.inf
    first, second = (exp(x - np.where(both_empty, 0.0, largest)) for x in (prefix_lse, suffix_lse))
    total = move_elements(first + second, lambda values: np.where(both_empty, 1.0, values))
    difference, lse = suffix_lse - prefix_lse, log(total) + largest
    # Weights are separate quotients: kernels that divide the sum of both products lose less if the products cancel.
    # FlashAttention computes weights from the merged log-sum-exp, ring attention moves the prefix by a sigmoid.
    weights = [
        larger_error_of(first / total, exp(prefix_lse - lse)),
        larger_error_of(second / total, exp(suffix_lse - lse)),
    ]
    first, second, step = (
        move_elements(x, lambda v: v.T[..., None]) for x in (*weights, 1.0 / (1.0 + exp(-difference)))
    )
    out = larger_error_of(prefix * first + suffix * second, prefix - step * (prefix - suffix))
    return out, larger_error_of(lse, prefix_lse + softplus(difference))


def merge_attention_states_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    infer_from_arrays(infer_merge_attention_states, inputs, attributes)
    return evaluate(_merged_states, inputs, attributes)


def merge_attention_states_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the running errors of the formula, the larger ones of two ways to compute it.

    One is the shift by the larger log-sum-exp, exp, the sum of both and its logarithm, and the products of the weights
    (a quotient, or exp(x_lse − lse)) and the outputs. The other, of ring attention, is prefix_output − σ(suffix_lse −
    prefix_lse)·(prefix_output − suffix_output).
    """
    return budgets(_merged_states, inputs, attributes)

"""References of moe_align and moe_combine, alternatives of moe_align, and error terms of moe_combine."""

from __future__ import annotations

from collections.abc import Sequence
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
)
from optest.operators.budgets import terms_of_products
from optest.operators.indexing.gather_reference import require_range
from optest.operators.indexing.moe import infer_moe_align, infer_moe_combine
from optest.spec import Terms


def moe_align_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the padded sorted indices, the expert of each block, and the end of the last block."""
    (ids,), (token_spec, block_spec, _) = infer_from_arrays(infer_moe_align, inputs, attributes)
    chosen = ids.reshape(-1)
    require_range(chosen, attributes["num_experts"], "topk_ids")
    # Elements behind the last block are n and expert 0. A stable sort keeps the indices of an expert rising.
    sorted_ids, expert_ids = np.full(token_spec.shape, chosen.size, np.int32), np.zeros(block_spec.shape, np.int32)
    order = np.argsort(chosen, kind="stable")
    start, block = 0, attributes["block_size"]
    for expert, count in enumerate(np.bincount(chosen, minlength=attributes["num_experts"]).tolist()):
        sorted_ids[start : start + count], order = order[:count], order[count:]
        stop = start + -(-count // block) * block
        expert_ids[start // block : stop // block] = expert
        start = stop
    return sorted_ids, expert_ids, np.array([start], np.int32)


def moe_align_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept the indices of an expert in any order, and any element behind the last block."""
    sorted_ids, expert_ids, (end,) = moe_align_reference(inputs, attributes)
    block = attributes["block_size"]
    # Kernels count with atomics, so that the order within an expert is not fixed.
    behind = np.arange(sorted_ids.size) >= end
    owners = np.where(behind, -1, np.repeat(expert_ids, block)[: sorted_ids.size])
    # Sorted by expert and value, a permutation within an expert equals the reference.
    by_owner = [ids[np.lexsort((ids, owners))] for ids in (sorted_ids, np.asarray(actual[0]))]
    wrong = owners[np.argsort(owners, kind="stable")[by_owner[0] != by_owner[1]]]
    return behind | ~np.isin(owners, wrong), np.arange(expert_ids.size) >= end // block, None


def moe_combine_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    rows, weights = _rows_and_weights(inputs, attributes)
    return (np.einsum("tk,tkh->th", weights, rows),)


def moe_combine_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output: the products of weights and rows."""
    rows, weights = (np.abs(x) for x in _rows_and_weights(inputs, attributes))
    absolute = np.einsum("tk,tkh->th", weights, rows)
    squared = np.einsum("tk,tkh->th", weights * weights, rows * rows)
    return (terms_of_products(absolute, squared, max(weights.shape[1], 1), np.asarray(inputs[0])),)


def _rows_and_weights(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Return the rows of each token (tokens x k x size) and their weights; both are 0 for a skipped index."""
    infer_from_arrays(infer_moe_combine, inputs, attributes)
    rows, weights, indices = as_float64(inputs[0]), as_float64(inputs[1]), optional_input(inputs, 2)
    if indices is None:
        return rows.reshape((*weights.shape, rows.shape[1])), weights
    # A negative index is an expert on another device, which contributes nothing.
    is_used = indices >= 0
    require_range(indices[is_used], len(rows), "inv_permuted_idx")
    chosen = np.zeros((*weights.shape, rows.shape[1]))
    chosen[is_used] = rows[indices[is_used].astype(np.int64)]
    return chosen, np.where(is_used, weights, 0.0)


quiet_hooks(globals())

"""What attention of packed sequences computes and may lose: that of each sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred
from optest.operators.attention.attention_reference import (
    scaled_dot_product_attention_reference,
    scaled_dot_product_attention_terms,
)
from optest.operators.attention.cached_attention_reference import (
    Calls,
    behind_the_last,
    grouped_call,
    joined,
    joined_budgets,
    sequence_offsets,
)
from optest.operators.attention.varlen_attention import infer_varlen_attention
from optest.spec import ErrorBudget


def varlen_attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    _, (out,) = inferred(infer_varlen_attention, inputs, attributes)
    outs = [scaled_dot_product_attention_reference(*each)[0] for each in _sequences(inputs, attributes)]
    return (joined(out.shape, outs),)


def varlen_attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Those of scaled_dot_product_attention over the keys of each sequence."""
    _, (out,) = inferred(infer_varlen_attention, inputs, attributes)
    budgets = [scaled_dot_product_attention_terms(*each)[0] for each in _sequences(inputs, attributes)]
    return joined_budgets(out.shape, budgets)


def varlen_attention_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Anything behind the last sequence."""
    return (behind_the_last(inputs[3], actual[0]),)


def _sequences(inputs: Inputs, attributes: Attributes) -> Calls:
    query, key, value = (np.asarray(each) for each in inputs[:3])
    of_queries = sequence_offsets(inputs[3], len(query), "cu_seqlens_q")
    of_keys = sequence_offsets(inputs[4], len(key), "cu_seqlens_k")
    for row in range(len(of_queries) - 1):
        own = np.swapaxes(query[of_queries[row] : of_queries[row + 1]], 0, 1)
        whole = [np.swapaxes(each[of_keys[row] : of_keys[row + 1]], 0, 1) for each in (key, value)]
        yield grouped_call(own, whole, {"is_causal": False, **attributes}, whole[0].shape[1] - own.shape[1])

"""How many operations attention is: those of its two products, over the pairs of query and key that see each other."""

from __future__ import annotations

from optest.operators.attention.inference import infer_scaled_dot_product_attention
from optest.operators.shapes import Attributes, Specs, given

__all__ = ["scaled_dot_product_attention_operations"]


def scaled_dot_product_attention_operations(specs: Specs, attributes: Attributes) -> int:
    """2·pairs·(E + Ev) for each head of each batch; a mask leaves no pair out, causality does."""
    out = infer_scaled_dot_product_attention(specs, attributes)[0]
    queries, width = out.shape[-2:]
    keys = given(specs, 1, "key").shape[-2]
    pairs = sum(min(row + 1, keys) for row in range(queries)) if attributes.get("is_causal") else queries * keys
    heads = 1
    for size in out.shape[:-2]:
        heads *= size
    return 2 * heads * pairs * (given(specs, 0, "query").shape[-1] + width)

"""Tables of the JAX function for each operator, and of the operators that JAX lacks."""

from __future__ import annotations

from optest.jax.operators import arithmetic, movement  # noqa: F401 - they add to CALLS
from optest.jax.operators.calls import CALLS as JAX_OPERATORS

__all__ = ["JAX_OPERATORS", "NOT_IN_JAX"]

# A composition of several calls would test the composition, not JAX.
_NOT = {
    "no single call; flax and others compose it": (
        "gelu_and_mul swiglu rope causal_softmax layer_norm rms_norm add_rms_norm group_norm batch_norm normalize "
        "cross_entropy causal_conv1d causal_conv1d_update selective_scan embedding_bag avg_pool2d adaptive_avg_pool2d"
    ),
    "no fused call of serving frameworks": (
        "attention paged_attention paged_prefill_attention paged_caching varlen_attention "
        "merge_attention_states rotary_embedding "
        "random_sample topksoftmax topkrouter moe_align moe_combine top_k_top_p_mask top_k_top_p_sampling"
    ),
    "jax.lax.ragged_dot takes sizes, not ends": "grouped_matmul",
    "no call that quantizes": (
        "quantize dequantize dequantize_awq awq_gemm dequantize_gptq gptq_gemm per_token_group_quant_fp8 "
        "per_token_quant_int8 "
        "fp8_block_scaled_matmul"
    ),
    "a gradient: jax.grad composes it": "rms_norm_backward layer_norm_backward cross_entropy_backward",
    "optax composes it": "adamw",
    "jnp.partition gives no index": "kthvalue",
}
NOT_IN_JAX: dict[str, str] = {name: why for why, names in _NOT.items() for name in names.split()}
"""Reason by name of each operator without a JAX call."""

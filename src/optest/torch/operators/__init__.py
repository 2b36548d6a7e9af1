"""Tables of the torch call for each operator, and of the operators that torch lacks."""

from __future__ import annotations

from optest.torch.operators import contraction, elementwise, kernels, movement, reduction
from optest.torch.operators.calls import TorchCall

__all__ = ["NOT_IN_TORCH", "TORCH_OPERATORS"]

_FAMILIES = (elementwise, reduction, contraction, movement, kernels)
TORCH_OPERATORS: dict[str, TorchCall] = {name: call for family in _FAMILIES for name, call in family.CALLS.items()}
"""Torch calls by canonical operator name."""

# A composition of several calls would test the composition, not torch.
_NOT = {
    "no single call; models compose it": (
        "swiglu gelu_and_mul rope causal_softmax add_rms_norm causal_conv1d causal_conv1d_update selective_scan"
    ),
    "no fused call of serving frameworks": (
        "attention paged_attention paged_prefill_attention paged_caching varlen_attention merge_attention_states "
        "rotary_embedding random_sample topksoftmax topkrouter moe_align moe_combine top_k_top_p_mask "
        "top_k_top_p_sampling"
    ),
    "no call for packed or block-scaled weights": (
        "dequantize_awq awq_gemm dequantize_gptq gptq_gemm per_token_group_quant_fp8 per_token_quant_int8 "
        "fp8_block_scaled_matmul"
    ),
}
NOT_IN_TORCH: dict[str, str] = {name: why for why, names in _NOT.items() for name in names.split()}
"""Reason by name of each operator without a torch call."""

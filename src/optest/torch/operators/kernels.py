"""Torch calls of operators with user-written kernels; those that torch lacks are composed in float32 or wider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, dtype
from optest.torch.operators import elementwise
from optest.torch.operators.calls import Attributes, Tensors, TorchCall
from optest.torch.tensors import TORCH_DTYPES


def _wide(*tensors: Any) -> list[Any]:
    """Return the tensors in float32, float64 and None unchanged."""
    return [tensor if tensor is None or tensor.dtype == torch.float64 else tensor.float() for tensor in tensors]


def _gradients(function: Callable[..., torch.Tensor], grad: torch.Tensor, *inputs: Any) -> list[torch.Tensor]:
    """Return the gradients of ``function`` for the inputs that are not None; ``grad`` is the upstream gradient."""
    with torch.enable_grad():
        leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in inputs]
        present = [leaf for leaf in leaves if leaf is not None]
        return list(torch.autograd.grad(function(*leaves), present, grad))


def _with_shape_checks(name: str, call: TorchCall) -> TorchCall:
    """Return ``call`` preceded by the operator's shape inference: composed calls would broadcast wrong shapes."""

    def checked(tensors: Tensors, attributes: Attributes) -> Any:
        specs = [
            None
            if tensor is None
            else TensorSpec(dtype=dtype(str(tensor.dtype).removeprefix("torch.")), shape=tuple(tensor.shape))
            for tensor in tensors
        ]
        load_object(operators.get(name).infer)(specs, attributes)
        return call(tensors, attributes)

    return checked


def _rms_norm_backward(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    grad, source, weight = (*tensors, None)[:3]
    shape, eps = tuple(attributes["normalized_shape"]), attributes.get("eps")
    wide = _wide(grad, source, weight)
    gradients = _gradients(lambda x, w: functional.rms_norm(x, shape, w, eps), *wide)
    return [gradients[0].to(source.dtype), *(tensor.to(weight.dtype) for tensor in gradients[1:])]


def _layer_norm_backward(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    grad, source, weight = (*tensors, None)[:3]
    shape, eps = tuple(attributes["normalized_shape"]), attributes.get("eps", 1e-5)
    wide, x, scale = _wide(grad, source, weight)
    bias = None if scale is None else torch.zeros_like(scale)
    _, mean, rstd = torch.native_layer_norm(x, shape, scale, bias, eps)
    # Which gradients to compute: of the input, the weight and the bias.
    mask = [True, scale is not None, scale is not None]
    gradients = torch.ops.aten.native_layer_norm_backward(wide, x, shape, mean, rstd, scale, bias, mask)
    if weight is None:
        return [gradients[0].to(source.dtype)]
    last = 3 if attributes.get("bias", True) else 2
    return [gradients[0].to(source.dtype), *(tensor.to(weight.dtype) for tensor in gradients[1:last])]


def _cross_entropy_backward(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    grad, source, target, weight = (*tensors, None)[:4]
    wide, x, scale = _wide(grad, source, weight)
    target = target.long() if target.dtype == torch.int32 else target
    gradients = _gradients(lambda logits: functional.cross_entropy(logits, target, scale, **attributes), wide, x)
    return [gradients[0].to(source.dtype)]


def _adamw(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    """Return torch's fused AdamW step of copies, in float32 or wider."""
    # Dense copies, because the step works in place, and on a CPU it ignores the strides of the gradient.
    param, grad, mean, square = (tensor.clone(memory_format=torch.contiguous_format) for tensor in _wide(*tensors))
    options = {name: attributes[name] for name in ("lr", "beta1", "beta2", "weight_decay", "eps")}
    steps = [torch.tensor(float(attributes["step"]), device=param.device)]
    step = torch.ops.aten._fused_adamw_.default
    maximize = attributes.get("maximize", False)
    step([param], [grad], [mean], [square], [], steps, amsgrad=False, maximize=maximize, **options)
    kinds = (tensors[0], *tensors[2:])
    return [tensor.to(kind.dtype) for tensor, kind in zip((param, mean, square), kinds, strict=True)]


def _causal_conv1d(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    x, weight, bias, state = _wide(*(*tensors, None, None)[:4])
    kept = weight.shape[1] - 1
    sequence = functional.pad(x, (kept, 0)) if state is None else torch.cat([state, x], -1)
    out = _convolve_end(sequence, weight, bias, x.shape[-1], attributes).to(tensors[0].dtype)
    last = sequence[..., sequence.shape[-1] - kept :].to(out.dtype)
    return [out, last] if attributes.get("return_final_states") else [out]


def _causal_conv1d_update(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    x, state, weight, bias = _wide(*(*tensors, None)[:4])
    sequence = torch.cat([state, x if x.dim() == 3 else x.unsqueeze(-1)], -1)
    length = sequence.shape[-1] - state.shape[-1]
    out = _convolve_end(sequence, weight, bias, length, attributes).reshape(x.shape)
    return [tensor.to(tensors[0].dtype) for tensor in (out, sequence[..., length:])]


def _convolve_end(
    sequence: torch.Tensor, weight: torch.Tensor, bias: Any, length: int, attributes: Attributes
) -> torch.Tensor:
    """Return the last ``length`` outputs of the depthwise convolution of a sequence, with SiLU if requested."""
    window = sequence[..., sequence.shape[-1] - length - weight.shape[1] + 1 :]
    # torch's conv1d refuses empty tensors.
    if 0 in sequence.shape or not length:
        return window[..., :length]
    out = functional.conv1d(window, weight.unsqueeze(1), bias, groups=len(weight))
    return functional.silu(out) if attributes.get("activation") else out


def _selective_scan(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    u, delta, a, b, c, d, z, bias, state = _wide(*(*tensors, *[None] * 4)[:9])
    if bias is not None:
        delta = delta + bias[:, None]
    if attributes.get("delta_softplus"):
        delta = functional.softplus(delta)
    if state is None:
        state = u.new_zeros(*u.shape[:2], a.shape[1])
    out = torch.empty_like(u, memory_format=torch.contiguous_format)
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        state = torch.exp(step * a) * state + step * u[:, :, t, None] * _at_time(b, t, u.shape[1])
        out[:, :, t] = (state * _at_time(c, t, u.shape[1])).sum(-1)
    if d is not None:
        out = out + u * d[:, None]
    if z is not None:
        out = out * functional.silu(z)
    out = out.to(tensors[0].dtype)
    return [out, state.to(tensors[2].dtype)] if attributes.get("return_last_state") else [out]


def _at_time(values: torch.Tensor, t: int, dim: int) -> torch.Tensor:
    """Return the parameter B or C at step ``t``, in a shape that broadcasts with batch x dim x states."""
    if values.dim() == 2:
        return values[None]
    if values.dim() == 3:
        return values[:, None, :, t]
    return values[..., t].repeat_interleave(dim // values.shape[1], 1)


def _embedding_bag(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    weight, indices, offsets, factors = (*tensors, None, None)[:4]
    # torch refuses 2-d indices without columns, bags that are all empty, but accepts them as offsets.
    if indices.dim() == 2 and not indices.shape[1]:
        offsets, indices = indices.new_zeros(len(indices)), indices.flatten()
        factors = None if factors is None else factors.flatten()
    return functional.embedding_bag(indices, weight, offsets, per_sample_weights=factors, **attributes)


def _per_token_group_quant_fp8(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    (x,), size = _wide(*tensors), attributes["group_size"]
    # The last group of a row may be shorter: padding with 0 does not change its largest magnitude.
    rest = -x.shape[-1] % size
    groups = (
        functional.pad(x, (0, rest)).unflatten(-1, (-1, size))
        if x.numel()
        else x.new_zeros(*x.shape[:-1], -(-x.shape[-1] // size), size)
    )
    # 448 is the largest finite float8_e4m3fn.
    scale = groups.abs().amax(-1).clamp(min=attributes["eps"]) / 448.0
    if attributes.get("use_ue8m0"):
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    out = (groups / scale.unsqueeze(-1)).clamp(-448.0, 448.0).flatten(-2)[..., : x.shape[-1]]
    return out.to(torch.float8_e4m3fn), scale


def _per_token_quant_int8(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    (x,) = _wide(*tensors)
    largest = x.abs().amax(-1, keepdim=True) if x.shape[-1] else x.new_zeros(*x.shape[:-1], 1)
    largest = largest.clamp(min=attributes["eps"])
    inverse = torch.where(largest > 0.0, 127.0 / largest, 0.0)
    return torch.round(x * inverse).to(torch.int8), largest / 127.0


def _merge_attention_states(tensors: Tensors, _attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    prefix, prefix_lse, suffix, suffix_lse = _wide(*tensors)
    lse = torch.logaddexp(prefix_lse, suffix_lse)
    shift = torch.where(lse == float("-inf"), 0.0, torch.maximum(prefix_lse, suffix_lse))
    shares = [torch.exp(tensor - shift).T.unsqueeze(-1) for tensor in (prefix_lse, suffix_lse)]
    # The sum is 0 if both sets of keys are empty.
    total = (shares[0] + shares[1]).clamp(min=torch.finfo(lse.dtype).tiny)
    out = prefix * (shares[0] / total) + suffix * (shares[1] / total)
    return out.to(tensors[0].dtype), lse


def _fp8_block_scaled_matmul(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, a_scale, b_scale = _wide(*tensors)
    rows, columns = attributes["block_size"]
    out = a.new_zeros(len(a), len(b))
    by_row = b_scale.repeat_interleave(rows, 0)[: len(b)]
    for block, start in enumerate(range(0, a.shape[1], columns)):
        part = a[:, start : start + columns] @ b[:, start : start + columns].T
        out += part * a_scale[:, block, None] * by_row[:, block]
    return out.to(TORCH_DTYPES[attributes["out_dtype"]])


def _dequantize_gptq(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    packed, zeros, scales, group_of = (*tensors, None)[:4]
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    rows = len(packed) * len(shifts)
    weight = (packed.unsqueeze(1) >> shifts[:, None] & 15).reshape(rows, packed.shape[1])
    zero = (zeros.unsqueeze(2) >> shifts & 15).reshape(len(zeros), packed.shape[1])
    # The first format of GPTQ stores zero points minus 1.
    if not attributes.get("use_v2_format"):
        zero = zero + 1
    if group_of is None:
        group_of = torch.arange(rows, device=packed.device) // max(1, rows // len(scales))
    return ((weight - zero[group_of]) * scales.float()[group_of]).to(scales.dtype)


def _matmul_with(dequantize: TorchCall) -> TorchCall:
    """Return a call that multiplies the first tensor by weights that ``dequantize`` makes of the others."""

    def product(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        x, weight = _wide(tensors[0], dequantize(tensors[1:], attributes))
        return (x @ weight).to(tensors[0].dtype)

    return product


_CALLS: dict[str, TorchCall] = {
    "rms_norm_backward": _rms_norm_backward,
    "cross_entropy_backward": _cross_entropy_backward,
    "layer_norm_backward": _layer_norm_backward,
    "adamw": _adamw,
    "causal_conv1d": _causal_conv1d,
    "causal_conv1d_update": _causal_conv1d_update,
    "embedding_bag": _embedding_bag,
    "merge_attention_states": _merge_attention_states,
    "per_token_quant_int8": _per_token_quant_int8,
    "per_token_group_quant_fp8": _per_token_group_quant_fp8,
    "fp8_block_scaled_matmul": _fp8_block_scaled_matmul,
    "dequantize_gptq": _dequantize_gptq,
    "gptq_gemm": _matmul_with(_dequantize_gptq),
    "awq_gemm": _matmul_with(elementwise.CALLS["dequantize_awq"]),
    "selective_scan": _selective_scan,
}
CALLS: dict[str, TorchCall] = {name: _with_shape_checks(name, call) for name, call in _CALLS.items()}

"""Torch calls of gradients, an optimizer step and the sum of bags, in float32 or wider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, dtype
from optest.torch.operators.calls import Attributes, Tensors, TorchCall


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


def _embedding_bag(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    weight, indices, offsets, factors = (*tensors, None, None)[:4]
    # torch refuses 2-d indices without columns, bags that are all empty, but accepts them as offsets.
    if indices.dim() == 2 and not indices.shape[1]:
        offsets, indices = indices.new_zeros(len(indices)), indices.flatten()
        factors = None if factors is None else factors.flatten()
    return functional.embedding_bag(indices, weight, offsets, per_sample_weights=factors, **attributes)


_CALLS: dict[str, TorchCall] = {
    "rms_norm_backward": _rms_norm_backward,
    "cross_entropy_backward": _cross_entropy_backward,
    "layer_norm_backward": _layer_norm_backward,
    "adamw": _adamw,
    "embedding_bag": _embedding_bag,
}
CALLS: dict[str, TorchCall] = {name: _with_shape_checks(name, call) for name, call in _CALLS.items()}

"""Initialise a module with random weights that reveal faults; presets differ in scale.

With the usual initialisation (biases and running means 0, gains and variances 1) a missing or exchanged parameter has
no effect. No single scale reveals all: a norm's epsilon needs small activations, the two forms of gelu large ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from optest.errors import UnknownName
from optest.torch.models.torch_model import normal_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scales:
    """Standard deviations of a preset's weights."""

    embedding: float
    # Of the outputs of a matrix or kernel for inputs of variance 1; ``branch`` is a factor at the end of a branch.
    gain: float
    branch: float
    # Relative to the layer's outputs.
    bias: float
    # Exponents of two: the range of output scales, by channel, of a kernel before a batch norm.
    channels: tuple[int, int]


_PRESETS: Mapping[str, _Scales] = {
    # The residual stream is small, so that epsilons have an effect; within the branches values are about 1.
    "balanced": _Scales(embedding=0.03, gain=1.5, branch=0.03, bias=0.1, channels=(-5, 0)),
    # The scale at the start of training: 0.02 at width 768.
    "small": _Scales(embedding=0.02, gain=0.55, branch=0.2, bias=0.02, channels=(-5, -5)),
    # Peaked attention and saturated activations.
    "large": _Scales(embedding=1.0, gain=3.0, branch=1.0, bias=0.5, channels=(0, 3)),
}
# The first one is the default.
PRESETS = tuple(_PRESETS)

_BRANCH_END = re.compile(r"(^|\.)(c_proj|o_proj|out_proj|down_proj)$")
_BRANCH_END_NORM = re.compile(r"(^|\.)(bn2|bn3|conv\.[23])$")
# Gain of kernels before a batch norm: between 1, for a linear input, and √2, for one that relu has halved.
_KERNEL_GAIN = 1.25
# Standard deviation of gains around 1, small enough that no gain is near 0.
_GAIN_DEVIATION = 0.15
# Standard deviation of running means, relative to the channel's.
_MEAN_DEVIATION = 0.3
# Gain of a batch norm at the end of a branch: below 1, so that the variance of sums along the shortcuts stays moderate.
_BRANCH_GAIN = 0.7


def initialise(module: nn.Module, preset: str, stream: str) -> None:
    """Draw all parameters and running statistics of a module, each by stream, preset, name and shape only."""
    preset = preset or PRESETS[0]
    if preset not in _PRESETS:
        raise UnknownName("preset", preset, PRESETS)
    # Tied parameters are drawn once.
    scales, drawn = _PRESETS[preset], set[int]()
    kernel: nn.Module | None = None
    with torch.no_grad():
        for name, part in module.named_modules():

            def draw(key: str, like: torch.Tensor, part_name: str = name) -> torch.Tensor:
                return normal_tensor(f"{stream} {preset} {part_name}.{key}", tuple(like.shape)).to(like.dtype)

            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_var is not None:
                _draw_batch_norm(part, kernel, scales, draw, is_end=bool(_BRANCH_END_NORM.search(name)))
                kernel = None
            else:
                new = {key: tensor for key, tensor in part.named_parameters(recurse=False) if id(tensor) not in drawn}
                drawn |= {*map(id, new.values())}
                _draw_parameters(part, new, scales, draw, scales.branch if _BRANCH_END.search(name) else 1.0)
                kernel = part if isinstance(part, nn.modules.conv._ConvNd) else kernel


# Random values for a tensor of a module, by its name in the module.
_Draw = Callable[[str, torch.Tensor], torch.Tensor]


def _draw_parameters(
    module: nn.Module, parameters: dict[str, torch.Tensor], scales: _Scales, draw: _Draw, branch: float
) -> None:
    """Draw a module's parameters: biases and gains by dimension and name, embeddings, and weights scaled by fan-in."""
    for name, tensor in parameters.items():
        values = draw(name, tensor)
        if tensor.ndim < 2:
            tensor.copy_(values * scales.bias * branch if "bias" in name else 1 + values * _GAIN_DEVIATION)
        elif isinstance(module, nn.Embedding):
            tensor.copy_(values * scales.embedding)
        else:
            # The weight of GPT-2's Conv1D is [in, out].
            is_transposed = type(module).__name__ == "Conv1D"
            fan_in = tensor.shape[0] if is_transposed else tensor[0].numel()
            tensor.copy_(values * (scales.gain * branch / math.sqrt(fan_in)))


def _draw_batch_norm(norm: nn.Module, kernel: nn.Module | None, scales: _Scales, draw: _Draw, *, is_end: bool) -> None:
    """Scale the kernel before a batch norm by channel, and draw statistics of the norm that fit its outputs."""
    mean, variance = norm.running_mean, norm.running_var
    low, high = scales.channels
    # Neighbouring channels differ in scale, so that exchanged channels change the output.
    scale = torch.tensor([2.0 ** (low + channel % (high - low + 1)) for channel in range(len(mean))])
    if kernel is not None and kernel.weight.shape[0] == len(mean):
        kernel.weight.mul_((scale * _KERNEL_GAIN / scales.gain).view(-1, *[1] * (kernel.weight.ndim - 1)))
    mean.copy_(draw("running_mean", mean) * _MEAN_DEVIATION * scale)
    variance.copy_(((1 + draw("running_var", variance) * _GAIN_DEVIATION) * scale) ** 2)
    if norm.affine:
        norm.weight.copy_((1 + draw("weight", norm.weight) * _GAIN_DEVIATION) * (_BRANCH_GAIN if is_end else 1))
        norm.bias.copy_(draw("bias", norm.bias) * scales.bias)

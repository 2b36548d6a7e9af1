"""Random weights that show faults: stress initialisations of a module, by name.

The usual initialisation hides faults: biases of zero, gains of one, running means of zero and variances of one make
what is left out or exchanged invisible, and no single scale shows all: a norm's epsilon shows beside small activations,
the two forms of gelu beside large ones. So everything is random here, and scales differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from optest.errors import UnknownName
from optest.torch.models.adapters import normal_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scales:
    """Standard deviations, but for ``channels``.

    ``embedding``: of embeddings. ``gain``: of what a matrix or kernel makes of inputs of variance 1. ``branch``: the
    same of the last matrix of a residual branch. ``bias``: of biases, beside the same layer's outputs. ``channels``:
    the powers of two between which the outputs of a kernel lie that a batch norm follows, each channel with its own.
    """

    embedding: float
    gain: float
    branch: float
    bias: float
    channels: tuple[int, int]


_PRESETS: Mapping[str, _Scales] = {
    # Between the norms the stream is small, so that epsilons show; inside of the branches values are about 1.
    "balanced": _Scales(embedding=0.03, gain=1.5, branch=0.03, bias=0.1, channels=(-5, 0)),
    # As models begin their training: 0.02 at the width 768.
    "small": _Scales(embedding=0.02, gain=0.55, branch=0.2, bias=0.02, channels=(-5, -5)),
    # Peaked attention and saturated activations.
    "large": _Scales(embedding=1.0, gain=3.0, branch=1.0, bias=0.5, channels=(0, 3)),
}
PRESETS = tuple(_PRESETS)
"""The names of the initialisations; the first one is the default."""

_BRANCH_END = re.compile(r"(^|\.)(c_proj|o_proj|out_proj|down_proj)$")
_BRANCH_END_NORM = re.compile(r"(^|\.)(bn2|bn3|conv\.[23])$")
_RECTIFIED = 1.25
"""Gain of kernels before a batch norm: between 1, of a linear input, and √2, of one that relu has halved."""
_GAINS = 0.15
"""Standard deviation of gains around 1, small enough that none of them is near 0."""
_MEANS = 0.3
"""Standard deviation of running means, beside a channel's own."""
_BRANCH_GAIN = 0.7
"""Gain of a batch norm at the end of a branch: of sums along the shortcuts the variance stays moderate."""


def initialise(module: nn.Module, preset: str, stream: str) -> None:
    """Draw all parameters and running statistics; a tensor's values depend on ``stream``, its name and shape alone.

    Raises:
        UnknownName: for a preset that there is not.
    """
    preset = preset or PRESETS[0]
    if preset not in _PRESETS:
        raise UnknownName("preset", preset, PRESETS)
    scales, drawn = _PRESETS[preset], set[int]()  # those of tied parameters are drawn once
    kernel: nn.Module | None = None
    with torch.no_grad():
        for name, each in module.named_modules():
            draw = partial(_normal, f"{stream} {preset} {name}")
            if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.running_var is not None:
                _batch_norm(each, kernel, scales, draw, is_end=bool(_BRANCH_END_NORM.search(name)))
                kernel = None
            else:
                own = {part: tensor for part, tensor in each.named_parameters(recurse=False) if id(tensor) not in drawn}
                drawn |= {*map(id, own.values())}
                _parameters(each, own, scales, draw, scales.branch if _BRANCH_END.search(name) else 1.0)
                kernel = each if isinstance(each, nn.modules.conv._ConvNd) else kernel


_Draw = Callable[[str, torch.Tensor], torch.Tensor]
"""Random values for a tensor of a module, by its name there."""


def _normal(stream: str, part: str, like: torch.Tensor) -> torch.Tensor:
    return normal_tensor(f"{stream}.{part}", tuple(like.shape)).to(like.dtype)


def _parameters(module: nn.Module, own: dict[str, torch.Tensor], scales: _Scales, draw: _Draw, branch: float) -> None:
    for name, tensor in own.items():
        values = draw(name, tensor)
        if tensor.ndim < 2:
            tensor.copy_(values * scales.bias * branch if "bias" in name else 1 + values * _GAINS)
        elif isinstance(module, nn.Embedding):
            tensor.copy_(values * scales.embedding)
        else:
            is_transposed = type(module).__name__ == "Conv1D"  # of GPT-2: [in, out]
            fan_in = tensor.shape[0] if is_transposed else tensor[0].numel()
            tensor.copy_(values * (scales.gain * branch / math.sqrt(fan_in)))


def _batch_norm(norm: nn.Module, kernel: nn.Module | None, scales: _Scales, draw: _Draw, *, is_end: bool) -> None:
    """Draw a batch norm whose statistics fit what the kernel before it yields, once that is scaled by channel."""
    mean, variance = norm.running_mean, norm.running_var
    low, high = scales.channels
    scale = torch.tensor([2.0 ** (low + channel % (high - low + 1)) for channel in range(len(mean))])
    if kernel is not None and kernel.weight.shape[0] == len(mean):
        kernel.weight.mul_((scale * _RECTIFIED / scales.gain).view(-1, *[1] * (kernel.weight.ndim - 1)))
    mean.copy_(draw("running_mean", mean) * _MEANS * scale)
    variance.copy_(((1 + draw("running_var", variance) * _GAINS) * scale) ** 2)
    if norm.affine:
        norm.weight.copy_((1 + draw("weight", norm.weight) * _GAINS) * (_BRANCH_GAIN if is_end else 1))
        norm.bias.copy_(draw("bias", norm.bias) * scales.bias)

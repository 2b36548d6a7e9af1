"""A torch model that is ready to run, and tools to build one: its configuration and its random inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from optest.errors import UsageError, did_you_mean
from optest.generators.counter import Stream
from optest.generators.draws import drawn, normal
from optest.numerics import Array
from optest.spec import dtype
from optest.torch.tensors import cpu_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchModel:
    """A module that is ready to run: in eval mode, float32, on the CPU.

    ``inputs(seed)`` returns example inputs by the names of forward's parameters, in their order. ``outputs`` names the
    tensors in forward's value, nested ones in order. ``causal``: logits depend only on earlier and current tokens;
    then ``vocabulary`` and ``context``, the maximum number of tokens, are set.
    """

    name: str
    module: torch.nn.Module
    inputs: Callable[[int], dict[str, torch.Tensor]]
    outputs: tuple[str, ...]
    causal: bool = False
    vocabulary: int = 0
    context: int = 0
    notes: tuple[str, ...] = ()


def effective_config(
    name: str, config: Mapping[str, Any], small: Mapping[str, Any], full: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``small``, updated by ``full`` if ``size=full``, and by ``config``; UsageError for a bad key or value."""
    config = dict(config)
    size = config.pop("size", "small")
    if size not in ("small", "full"):
        raise UsageError(f"size of {name} is {size!r}, expected small or full")
    effective = {**small, **(full if size == "full" else {})}
    for key, value in config.items():
        if key not in effective:
            hint = did_you_mean(key, effective, text="; did you mean {}?")
            raise UsageError(f"{name} has no {key}{hint}\n  known: {', '.join(['size', *effective])}")
        kind = type(effective[key])
        effective[key] = float(value) if kind is float and type(value) is int else value
        if type(effective[key]) is not kind or (kind is not bool and not value > 0):
            words = {bool: "true or false", int: "a whole number above 0", float: "a number above 0"}[kind]
            raise UsageError(f"{key} of {name} is {value!r}, expected {words}")
    return effective


def normal_tensor(stream: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return standard normal values in float32 from a named random stream, with the same bits on every machine."""
    values = drawn(normal(dtype("float32"), None, None, None), Stream("torch model", stream), torch.Size(shape).numel())
    return torch.from_numpy(values.copy()).view(shape)


def images(name: str, shape: tuple[int, ...]) -> Callable[[int], dict[str, torch.Tensor]]:
    """Return an ``inputs`` function of random float32 images for the parameter ``name``; ``shape`` is [N, C, H, W]."""
    return lambda seed: {name: normal_tensor(f"image {seed}", shape)}


def as_tensors(feeds: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """Return copies of the arrays as CPU tensors."""
    return dict(zip(feeds, cpu_copies(list(feeds.values())), strict=True))


def tensors_in(returned: Any) -> list[torch.Tensor]:
    """Return the tensors in a model's value, nested ones in order."""
    return [leaf for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]

"""Names to models: the built-in ones, those of plug-ins, of transformers and timm, and a user's own by its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from optest.errors import UsageError, did_you_mean
from optest.generators.counter import Stream
from optest.generators.draws import drawn, normal
from optest.numerics import Array
from optest.registry import Registry
from optest.spec import dtype
from optest.torch.tensors import on_cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchModel:
    """A module that is ready to run: in eval mode, float32, on the CPU.

    ``inputs`` makes example inputs by seed, in the order of forward's parameters, whose names are the keys.
    ``outputs`` names the tensors of what forward returns, nested ones in order. ``causal``: logits of a position depend
    on inputs up to it alone; ``vocabulary`` and ``context`` (the most tokens) are then stated.
    """

    name: str
    module: torch.nn.Module
    inputs: Callable[[int], dict[str, torch.Tensor]]
    outputs: tuple[str, ...]
    causal: bool = False
    vocabulary: int = 0
    context: int = 0
    notes: tuple[str, ...] = ()


Factory = Callable[[Mapping[str, Any]], TorchModel]

MODELS: Registry[Factory] = Registry("model")


def register_model(name: str, factory: Factory | str) -> None:
    """Let ``factory(config)`` make the model called ``name``; optest draws its weights. A text is an import path."""
    MODELS.register(name, factory)


register_model("gpt2", "optest.torch.models.language:gpt2")
register_model("llama", "optest.torch.models.language:llama")
register_model("resnet34", "optest.torch.models.vision:resnet34")
register_model("mobilenet_v2", "optest.torch.models.vision:mobilenet_v2")


def effective_config(
    name: str, config: Mapping[str, Any], small: Mapping[str, Any], full: Mapping[str, Any]
) -> dict[str, Any]:
    """``small``, which has every key, what ``size=full`` changes of it, and over both what ``config`` states.

    Raises:
        UsageError: for a key that there is not, or a value of another type or below what is possible.
    """
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


def presets_of(name: str, weights: Path | None = None) -> tuple[str, ...]:
    """The initialisations that a model can be validated with; "" alone where it has weights already."""
    from optest.torch.models.initialisation import PRESETS

    return ("",) if weights is not None or _is_path(name) else PRESETS


def opened_model(
    name: str, *, config: Mapping[str, Any] = {}, preset: str = "", weights: Path | None = None, seed: int = 0
) -> TorchModel:
    """The model called ``name``: registered, ``hf:CLASS``, ``timm:NAME``, ``FILE.py:NAME`` or ``module:NAME``.

    Weights are those of ``weights`` or, but for a user's own model, drawn as ``preset`` says (the first of
    :data:`~optest.torch.models.initialisation.PRESETS` if it is empty) from ``seed``.

    Raises:
        UsageError: for a name, a configuration, a preset or weights that do not fit.
        Unavailable: if it needs a package that is not installed.
    """
    from optest.torch.models import foreign
    from optest.torch.models.initialisation import initialise
    from optest.torch.models.weights import load_weights

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        source, colon, own = name.partition(":")
        if _is_path(name) and config:
            raise UsageError(f"a configuration is given, but {name} builds its model itself")
        if _is_path(name):
            model = foreign.of_user(name)
        elif colon:
            model = (foreign.of_transformers if source == "hf" else foreign.of_timm)(own, config)
        else:
            model = MODELS.get(name)(config)
    model.module.eval().requires_grad_(False)
    if weights is not None:
        if preset:
            raise UsageError(f"preset is {preset}, but the weights are those of {weights}")
        return replace(model, notes=(*model.notes, *load_weights(model.module, weights)))
    if preset or not _is_path(name):
        initialise(model.module, preset, f"{name} {seed}")
    return model


def _is_path(name: str) -> bool:
    return not name.startswith(("hf:", "timm:")) and (":" in name or name.endswith(".py") or "/" in name)


def normal_tensor(stream: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Standard normal values in float32, the same bits on every machine."""
    values = drawn(normal(dtype("float32"), None, None, None), Stream("torch model", stream), torch.Size(shape).numel())
    return torch.from_numpy(values.copy()).view(shape)


def images(name: str, shape: tuple[int, ...]) -> Callable[[int], dict[str, torch.Tensor]]:
    """What makes float32 images of that shape, [batch, channels, height, width], for the parameter ``name``."""
    return lambda seed: {name: normal_tensor(f"image {seed}", shape)}


def as_tensors(feeds: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """On the CPU, in memory of their own."""
    return dict(zip(feeds, on_cpu(list(feeds.values())), strict=True))


def tensors_in(returned: Any) -> list[torch.Tensor]:
    """The tensors of what a model returns, nested ones in order."""
    return [each for each in _pytree.tree_leaves(returned) if isinstance(each, torch.Tensor)]

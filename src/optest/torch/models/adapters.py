"""Open a model by name: built-in, registered by a plug-in, of transformers or timm, or user-defined by its path."""

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


Factory = Callable[[Mapping[str, Any]], TorchModel]

MODELS: Registry[Factory] = Registry("model")


def register_model(name: str, factory: Factory | str) -> None:
    """Register ``factory(config)``, or its import path, as the factory of model ``name``; optest draws its weights."""
    MODELS.register(name, factory)


register_model("gpt2", "optest.torch.models.language:gpt2")
register_model("llama", "optest.torch.models.language:llama")
register_model("resnet34", "optest.torch.models.vision:resnet34")
register_model("mobilenet_v2", "optest.torch.models.vision:mobilenet_v2")


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


def presets_of(name: str, weights: Path | None = None) -> tuple[str, ...]:
    """Return the names of the initialisations for a model; only "" if it has weights already."""
    from optest.torch.models.initialisation import PRESETS

    return ("",) if weights is not None or _is_path(name) else PRESETS


def open_model(
    name: str, *, config: Mapping[str, Any] = {}, preset: str = "", weights: Path | None = None, seed: int = 0
) -> TorchModel:
    """Return the model ``name``: a registered one, ``hf:CLASS``, ``timm:NAME``, ``FILE.py:NAME`` or ``module:NAME``.

    Weights come from the file ``weights``, else from ``seed`` by the initialisation ``preset``; a user-defined model
    (by path) keeps its weights if neither is set.

    Raises:
        UsageError: for an unknown name or preset, or a configuration or weights that do not fit.
        Unavailable: if the model needs a package that is not installed.
    """
    from optest.torch.models import foreign
    from optest.torch.models.initialisation import initialise
    from optest.torch.models.weights import load_weights

    # Constructors draw initial weights: seed them, and restore the process's random state.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        source, colon, rest = name.partition(":")
        if _is_path(name) and config:
            raise UsageError(f"{name} builds its model itself, so --config cannot be used; set its values in the code")
        if _is_path(name):
            model = foreign.open_user_model(name)
        elif colon:
            model = (foreign.open_transformers_model if source == "hf" else foreign.open_timm_model)(rest, config)
        else:
            model = MODELS.get(name)(config)
    model.module.eval().requires_grad_(False)
    if weights is not None:
        if preset:
            raise UsageError(f"preset {preset} cannot be used with the weights of {weights}; name one of them")
        return replace(model, notes=(*model.notes, *load_weights(model.module, weights)))
    if preset or not _is_path(name):
        initialise(model.module, preset, f"{name} {seed}")
    return model


def _is_path(name: str) -> bool:
    return not name.startswith(("hf:", "timm:")) and (":" in name or name.endswith(".py") or "/" in name)


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

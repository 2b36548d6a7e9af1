"""Open a model by name: built-in, registered by a plug-in, of transformers or timm, or user-defined by its path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from optest.errors import UsageError
from optest.registry import Registry
from optest.torch.capture.targets import load_named_object, user_code_errors
from optest.torch.models.initialisation import PRESETS, initialise
from optest.torch.models.torch_model import TorchModel, images, tensors_in
from optest.torch.models.transformers_models import library, transformers_model
from optest.torch.models.weights import load_weights

Factory = Callable[[Mapping[str, Any]], TorchModel]

# A plug-in registers ``factory(config)``, or its import path; optest draws the weights.
MODELS: Registry[Factory] = Registry("model")
MODELS.register("gpt2", "optest.torch.models.language:gpt2")
MODELS.register("llama", "optest.torch.models.language:llama")
MODELS.register("resnet34", "optest.torch.models.vision:resnet34")
MODELS.register("mobilenet_v2", "optest.torch.models.vision:mobilenet_v2")


def presets_of(name: str, weights: Path | None = None) -> tuple[str, ...]:
    """Return the names of the initialisations for a model; only "" if it has weights already."""
    return ("",) if weights is not None or _is_import_path(name) else PRESETS


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
    # Constructors draw initial weights: seed them, and restore the process's random state.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        source, colon, rest = name.partition(":")
        if _is_import_path(name) and config:
            raise UsageError(f"{name} builds its model itself, so --config cannot be used; set its values in the code")
        if _is_import_path(name):
            model = _open_user_model(name)
        elif colon:
            model = (_open_transformers_model if source == "hf" else _open_timm_model)(rest, config)
        else:
            model = MODELS.get(name)(config)
    model.module.eval().requires_grad_(False)
    if weights is not None:
        if preset:
            raise UsageError(f"preset {preset} cannot be used with the weights of {weights}; name one of them")
        return replace(model, notes=(*model.notes, *load_weights(model.module, weights)))
    if preset or not _is_import_path(name):
        initialise(model.module, preset, f"{name} {seed}")
    return model


def _is_import_path(name: str) -> bool:
    return not name.startswith(("hf:", "timm:")) and (":" in name or name.endswith(".py") or "/" in name)


def _open_user_model(path: str) -> TorchModel:
    """Return the model and inputs of ``FILE.py:NAME`` or ``package.module:NAME``; UsageError if it has neither."""
    with load_named_object(path) as target, user_code_errors(path):
        value = target() if callable(target) and not isinstance(target, torch.nn.Module) else target
        module, examples = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
        if not isinstance(module, torch.nn.Module) or examples is None:
            kind = f"{type(module).__name__} without inputs" if examples is None else type(module).__name__
            raise UsageError(f"{path} returns {kind}, expected (torch.nn.Module, example inputs)")
        # Examples are a mapping, a sequence, or one tensor, in the order of forward's parameters.
        parameters = list(inspect.signature(module.eval().forward).parameters)
        examples = (examples,) if isinstance(examples, torch.Tensor) else examples
        named = examples if isinstance(examples, Mapping) else dict(zip(parameters, examples, strict=False))
        wrong = [name for name, x in named.items() if name not in parameters or not isinstance(x, torch.Tensor)]
        if wrong or (isinstance(examples, Sequence) and len(examples) > len(parameters)) or not named:
            names = ", ".join(wrong or named) or "nothing"
            kinds = ", ".join(dict.fromkeys(type(named[name]).__name__ for name in wrong if name in parameters))
            given = f"{len(examples)} example inputs of {path}" if not wrong and named else f"example inputs of {path}"
            of_kinds = f" and of type {kinds}" if kinds else ""
            raise UsageError(f"{given} are for {names}{of_kinds}, expected tensors for {', '.join(parameters)}")
        inputs = {name: named[name] for name in parameters if name in named}
        outputs = _output_names(module, inputs)
    return TorchModel(name=path, module=module, inputs=lambda _: dict(inputs), outputs=outputs)


def _output_names(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Run the module; return its outputs' keys (``output`` if it returns no mapping), numbered if one has several."""
    with torch.no_grad():
        returned = module(**inputs)
    names: list[str] = []
    # The output classes of transformers are mappings, too.
    for name, part in (returned if isinstance(returned, Mapping) else {"output": returned}).items():
        count = len(tensors_in(part))
        names += [f"{name}_{index}" for index in range(count)] if count > 1 else [str(name)] * count
    return tuple(names)


def _open_transformers_model(name: str, config: Mapping[str, Any]) -> TorchModel:
    """Return a model of transformers, without a cache; raise UsageError, too, for errors of its code."""
    with user_code_errors(f"hf:{name}"):
        module, draw_inputs = transformers_model(name, config)
        model_config = module.config
        model_config.use_cache = False

        def inputs(seed: int) -> dict[str, torch.Tensor]:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return draw_inputs()

        examples = inputs(0)
        outputs = _output_names(module, examples)
    is_language_model = name.endswith(("ForCausalLM", "LMHeadModel"))
    causal = is_language_model and list(examples) == ["input_ids"] and outputs[0] == "logits"
    keys = {"vocabulary": "vocab_size", "context": "max_position_embeddings"} if causal else {}
    sizes: dict[str, Any] = {field: getattr(model_config, key, 0) for field, key in keys.items()}
    return TorchModel(name=f"hf:{name}", module=module, inputs=inputs, outputs=outputs, causal=causal, **sizes)


def _open_timm_model(name: str, config: Mapping[str, Any]) -> TorchModel:
    """Return timm's model ``name``, created with ``config``, without pretrained weights; Unavailable without timm."""
    create = library("timm", _TIMM).create_model
    with user_code_errors(f"timm:{name}"):
        module = create(name, pretrained=False, **config).eval()
    image = next(iter(inspect.signature(module.forward).parameters))
    shape = (2, *getattr(module, "default_cfg", {}).get("input_size", (3, 224, 224)))
    return TorchModel(name=f"timm:{name}", module=module, inputs=images(image, shape), outputs=("logits",))


_TIMM = "pip install timm, and a torchvision of the same release and build as torch: the usual one needs CUDA"

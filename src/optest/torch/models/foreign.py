"""Open models of other code: of transformers and timm by name, with random weights, and user-defined ones by path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from optest.errors import UsageError
from optest.torch.capture.targets import load_named_object, user_code_errors
from optest.torch.models.adapters import TorchModel, images, tensors_in
from optest.torch.models.transformers_models import library, transformers_model

_TIMM = "pip install timm, and a torchvision of the same release and build as torch: the usual one needs CUDA"


def open_user_model(path: str) -> TorchModel:
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
            wanted = f"tensors for {', '.join(parameters)}"
            raise UsageError(f"example inputs of {path} are for {names}, expected {wanted}")
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


def open_transformers_model(name: str, config: Mapping[str, Any]) -> TorchModel:
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


def open_timm_model(name: str, config: Mapping[str, Any]) -> TorchModel:
    """Return timm's model ``name``, created with ``config``, without pretrained weights; Unavailable without timm."""
    create = library("timm", _TIMM).create_model
    with user_code_errors(f"timm:{name}"):
        module = create(name, pretrained=False, **config).eval()
    image = next(iter(inspect.signature(module.forward).parameters))
    shape = (2, *getattr(module, "default_cfg", {}).get("input_size", (3, 224, 224)))
    return TorchModel(name=f"timm:{name}", module=module, inputs=images(image, shape), outputs=("logits",))

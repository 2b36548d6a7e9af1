"""Models of others: of transformers and timm by their names, with random weights, and a user's own by its path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from optest.errors import UsageError
from optest.torch.capture.targets import model_code, named_object
from optest.torch.models.adapters import TorchModel, images, tensors_in
from optest.torch.models.transformers_models import library, transformers_model

_TIMM = "pip install timm, and a torchvision of the same release and build as torch: the usual one needs CUDA"


def of_user(path: str) -> TorchModel:
    """The model that ``FILE.py:FUNCTION`` or ``package.module:FUNCTION`` returns, with its example inputs.

    Raises:
        UsageError: if there is no such function, or it returns anything but a module and tensors for its forward.
    """
    with named_object(path) as found, model_code(path):
        made = found() if callable(found) and not isinstance(found, torch.nn.Module) else found
        module, given = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        if not isinstance(module, torch.nn.Module) or given is None:
            kind = f"{type(module).__name__} without inputs" if given is None else type(module).__name__
            raise UsageError(f"{path} yields {kind}, but should return (torch.nn.Module, example inputs)")
        # A dictionary, a sequence, or one tensor, in the order of forward's parameters.
        parameters = list(inspect.signature(module.eval().forward).parameters)
        given = (given,) if isinstance(given, torch.Tensor) else given
        named = given if isinstance(given, Mapping) else dict(zip(parameters, given, strict=False))
        wrong = [name for name, each in named.items() if name not in parameters or not isinstance(each, torch.Tensor)]
        if wrong or (isinstance(given, Sequence) and len(given) > len(parameters)) or not named:
            stated = ", ".join(wrong or named) or "nothing"
            wanted = f"tensors for {', '.join(parameters)}"
            raise UsageError(f"example inputs of {path} are for {stated}, expected {wanted}")
        inputs = {name: named[name] for name in parameters if name in named}
        outputs = _output_names(module, inputs)
    return TorchModel(name=path, module=module, inputs=lambda _: dict(inputs), outputs=outputs)


def _output_names(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Keys of a dictionary or record that is returned; numbered where there are several tensors without."""
    with torch.no_grad():
        returned = module(**inputs)
    names: list[str] = []
    for name, part in (returned if isinstance(returned, Mapping) else {"output": returned}).items():
        count = len(tensors_in(part))  # records of transformers are dictionaries
        names += [f"{name}_{place}" for place in range(count)] if count > 1 else [str(name)] * count
    return tuple(names)


def of_transformers(name: str, config: Mapping[str, Any]) -> TorchModel:
    """A model of transformers, without a cache of keys and values.

    Raises:
        Unavailable, UsageError: as :func:`transformers_model`, and for whatever its code raises.
    """
    with model_code(f"hf:{name}"):
        module, make = transformers_model(name, config)
        stated = module.config
        stated.use_cache = False

        def inputs(seed: int) -> dict[str, torch.Tensor]:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return make()

        given = inputs(0)
        outputs = _output_names(module, given)
    causal = name.endswith(("ForCausalLM", "LMHeadModel")) and list(given) == ["input_ids"] and outputs[0] == "logits"
    sizes = {"vocabulary": "vocab_size", "context": "max_position_embeddings"} if causal else {}
    about: dict[str, Any] = {each: getattr(stated, key, 0) for each, key in sizes.items()}
    return TorchModel(name=f"hf:{name}", module=module, inputs=inputs, outputs=outputs, causal=causal, **about)


def of_timm(name: str, config: Mapping[str, Any]) -> TorchModel:
    """A model of timm; ``config`` goes to its ``create_model``.

    Raises:
        Unavailable: if timm is not installed, or the torchvision that it needs does not fit torch.
    """
    create = library("timm", _TIMM).create_model
    with model_code(f"timm:{name}"):
        module = create(name, pretrained=False, **config).eval()
    image = next(iter(inspect.signature(module.forward).parameters))
    shape = (2, *getattr(module, "default_cfg", {}).get("input_size", (3, 224, 224)))
    return TorchModel(name=f"timm:{name}", module=module, inputs=images(image, shape), outputs=("logits",))

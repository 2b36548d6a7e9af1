"""Models of Hugging Face's transformers by class, with random weights and random inputs: ``hf:CLASS``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch

from optest.errors import Unavailable, UsageError, did_you_mean
from optest.registry import is_installed, load_extension
from optest.torch.calls.memory_needed import default_limit

_REMEDY = "pip install transformers; or capture a script of your own, or name its model: model.py:FUNCTION"
_TOKENS = (1, 16)
# Samples of raw sound: a quarter of a second at 16 kHz.
_SAMPLES = 4000
# Pixels per side for models that accept images of any size.
_IMAGE = 64


def transformers_model(name: str, config: Mapping[str, Any]) -> tuple[Any, Callable[[], dict[str, torch.Tensor]]]:
    """Return a model of class ``name``, and a function that draws its inputs: token ids, pixels or sound.

    ``config`` overrides keys of the class's configuration. The model's size is printed to standard error.

    Raises:
        Unavailable: if transformers is not installed.
        UsageError: for an unknown class or key, or a model that does not fit into memory; from the returned function,
            for a model that needs other inputs.
    """
    package = library("transformers", _REMEDY)
    model_class = getattr(package, name, None)
    config_class = getattr(model_class, "config_class", None)
    if model_class is None or config_class is None:
        public = [attribute for attribute in dir(package) if attribute[0] != "_"]
        hint = did_you_mean(name, public, text="; did you mean hf:{}?")
        raise UsageError(f"transformers has no model {name}{hint}")
    defaults = config_class()
    for key in config:
        if not hasattr(defaults, key):
            hint = did_you_mean(key, vars(defaults), text="; did you mean {}?")
            raise UsageError(f"{config_class.__name__} has no {key}{hint}")
    # Keys are not set one by one, because some follow from others, such as the width of a head.
    model_config = config_class(**config)
    # A few models compute with values, which the device ``meta`` does not have: their size is not checked.
    with suppress(RuntimeError, NotImplementedError), torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in model_class(model_config).parameters())
        needed, limit = parameters * torch.get_default_dtype().itemsize / 2**30, default_limit() / 2**30
        size = f"{name}: {parameters:,} parameters, {needed:.1f} GiB"
        if needed > limit:
            raise UsageError(f"{size} of memory, expected at most {limit:.1f}, half of the free memory\n  see --config")
        sys.stderr.write(f"{size}\n")
    model = model_class(model_config).eval()
    return model, lambda: _draw_inputs(model, model_config, name)


def library(name: str, remedy: str) -> Any:
    """Import a package of models and return it; raise ``Unavailable`` with ``remedy`` if it cannot be imported."""
    try:
        load_extension(name, f"{name}:__version__")
    except (UsageError, Unavailable) as error:
        reason = f"cannot be imported ({str(error).splitlines()[0]})" if is_installed(name) else "its models need"
        raise Unavailable(f"{name}, which {reason},", remedy) from None
    return sys.modules[name]


def _draw_inputs(model: Any, config: Any, name: str) -> dict[str, torch.Tensor]:
    """Return random inputs of the model's forward by name; raise UsageError if it needs one of an unknown kind."""
    parameters = inspect.signature(model.forward).parameters
    needed = [getattr(model, "main_input_name", "input_ids")]
    if "pixel_values" in parameters and hasattr(config, "vision_config"):
        needed.append("pixel_values")
    if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", False):
        needed.append("decoder_input_ids")
    inputs = {key: _draw_input(key, config) for key in needed}
    for key, tensor in inputs.items():
        if tensor is None:
            remedy = "write a script that creates it, and name its function: model.py:FUNCTION"
            raise UsageError(f"{name} needs the input {key}, which hf: cannot create\n  {remedy}")
    return inputs


def _draw_input(name: str, config: Any) -> Any:
    """Return a random input with the sizes of a configuration, None if the name or the sizes are unknown."""
    match name:
        case "input_ids" | "decoder_input_ids":
            size = _config_value(config, "text_config", "vocab_size")
            return None if size is None else torch.randint(size, _TOKENS)
        case "pixel_values":
            size = _config_value(config, "vision_config", "image_size") or _IMAGE
            height, width = size if isinstance(size, (list, tuple)) else (size, size)
            return torch.randn(1, _config_value(config, "vision_config", "num_channels") or 3, height, width)
        case "input_features":
            # Bands by time; a stride of 2 halves the steps to the number of the encoder's positions.
            bands, steps = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
            return torch.randn(1, bands, 2 * steps) if bands and steps else None
        case "input_values" if hasattr(config, "conv_kernel"):
            # The first layers are convolutions over the samples, so that any number of them fits.
            return torch.randn(1, _SAMPLES)
    return None


def _config_value(config: Any, part: str, key: str) -> Any:
    """Return a value of a configuration, or of its part for one kind of input; None if both lack it."""
    return getattr(config, key, None) or getattr(getattr(config, part, None), key, None)

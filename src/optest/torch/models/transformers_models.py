"""Models of Hugging Face's transformers by their class, with random weights and made-up inputs: ``hf:CLASS``."""

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
_SAMPLES = 4000
"""Of raw sound: a quarter of a second at 16 kHz."""
_IMAGE = 64
"""Pixels of a side, where a model takes images of any size."""


def transformers_model(name: str, config: Mapping[str, Any]) -> tuple[Any, Callable[[], dict[str, torch.Tensor]]]:
    """A model of that class, and what makes inputs of its kind by torch's random numbers: token ids, pixels, or sound.

    Raises:
        Unavailable: if transformers is not installed.
        UsageError: for an unknown class or key, or more than fits into memory; from making inputs, for other kinds.
    """
    package = library("transformers", _REMEDY)
    kind = getattr(package, name, None)
    configuration = getattr(kind, "config_class", None)
    if kind is None or configuration is None:
        public = [each for each in dir(package) if each[0] != "_"]
        hint = did_you_mean(name, public, text="; did you mean hf:{}?")
        raise UsageError(f"transformers has no model {name}{hint}")
    stated = configuration()
    for key in config:
        if not hasattr(stated, key):
            hint = did_you_mean(key, vars(stated), text="; did you mean {}?")
            raise UsageError(f"{configuration.__name__} has no {key}{hint}")
    stated = configuration(**config)  # not set one by one: some follow from others, as the width of a head does
    with suppress(RuntimeError, NotImplementedError), torch.device("meta"):  # a few models compute with values of it
        parameters = sum(each.numel() for each in kind(stated).parameters())
        needed, most = parameters * torch.get_default_dtype().itemsize / 2**30, default_limit() / 2**30
        size = f"{name}: {parameters:,} parameters, {needed:.1f} GiB"
        if needed > most:
            raise UsageError(f"{size} of memory, expected at most {most:.1f}, half of what is free\n  see --config")
        sys.stderr.write(f"{size}\n")
    model = kind(stated).eval()
    return model, lambda: _inputs_of(model, stated, name)


def library(name: str, remedy: str) -> Any:
    """A package of models, imported; raises ``Unavailable``, with ``remedy``, if it cannot be."""
    try:
        load_extension(name, f"{name}:__version__")
    except (UsageError, Unavailable) as error:
        why = f"cannot be imported ({str(error).splitlines()[0]})" if is_installed(name) else "its models need"
        raise Unavailable(f"{name}, which {why},", remedy) from None
    return sys.modules[name]


def _inputs_of(model: Any, config: Any, name: str) -> dict[str, torch.Tensor]:
    """The tensors that the model's forward needs, by name.

    Raises:
        UsageError: if one of them is of another kind.
    """
    takes = inspect.signature(model.forward).parameters
    needed = [getattr(model, "main_input_name", "input_ids")]
    if "pixel_values" in takes and hasattr(config, "vision_config"):
        needed.append("pixel_values")
    if "decoder_input_ids" in takes and getattr(config, "is_encoder_decoder", False):
        needed.append("decoder_input_ids")
    given = {each: _made_up(each, config) for each in needed}
    for each, made in given.items():
        if made is None:
            remedy = "write a script that does, and name a function of it: model.py:FUNCTION"
            raise UsageError(f"{name} takes {each}, which hf: cannot make up\n  {remedy}")
    return given


def _made_up(name: str, config: Any) -> Any:
    """An input as a configuration wants it, None for what is not known."""
    match name:
        case "input_ids" | "decoder_input_ids":
            size = _config_value(config, "text_config", "vocab_size")
            return None if size is None else torch.randint(size, _TOKENS)
        case "pixel_values":
            size = _config_value(config, "vision_config", "image_size") or _IMAGE
            height, width = size if isinstance(size, (list, tuple)) else (size, size)
            return torch.randn(1, _config_value(config, "vision_config", "num_channels") or 3, height, width)
        case "input_features":  # bands by time, as many steps as the encoder's positions, which two strides halve
            bands, steps = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
            return torch.randn(1, bands, 2 * steps) if bands and steps else None
        case "input_values" if hasattr(config, "conv_kernel"):  # where convolutions over samples are the first layers
            return torch.randn(1, _SAMPLES)
    return None


def _config_value(config: Any, part: str, key: str) -> Any:
    """A key of a configuration, or of its part for one kind of input."""
    return getattr(config, key, None) or getattr(getattr(config, part, None), key, None)

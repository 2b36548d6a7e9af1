"""Models of Hugging Face's transformers by their class, with random weights and made-up inputs: ``hf:CLASS``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from optest.errors import Unavailable, UsageError, did_you_mean
from optest.registry import load_object

__all__ = ["transformers_model"]

_REMEDY = "pip install transformers; or capture a script of your own, or name its model: model.py:FUNCTION"


def transformers_model(name: str, config: Mapping[str, Any]) -> tuple[Any, Callable[[], dict[str, torch.Tensor]]]:
    """A model of that class, and what makes inputs of its kind by torch's random numbers: token ids, pixels, or sound.

    Raises:
        Unavailable: if transformers is not installed.
        UsageError: for a class or a key of its configuration that does not exist; from making inputs, for other kinds.
    """
    library = _library()
    kind = getattr(library, name, None)
    configuration = getattr(kind, "config_class", None)
    if kind is None or configuration is None:
        public = [each for each in dir(library) if each[0] != "_"]
        hint = did_you_mean(name, public, text="; did you mean hf:{}?")
        raise UsageError(f"transformers has no model {name}{hint}")
    stated = configuration()
    for key in config:
        if not hasattr(stated, key):
            hint = did_you_mean(key, vars(stated), text="; did you mean {}?")
            raise UsageError(f"{configuration.__name__} has no {key}{hint}")
    stated = configuration(**config)  # not set one by one: some follow from others, as the width of a head does
    model = kind(stated).eval()
    return model, lambda: _inputs_of(model, stated, name)


def _library() -> Any:
    try:
        load_object("transformers:__version__")
    except (UsageError, Unavailable):
        raise Unavailable("transformers, which hf: needs,", _REMEDY) from None
    return sys.modules["transformers"]


# Inputs for a model of Hugging Face's transformers, made up from what its forward takes and its configuration says.

_TOKENS = (1, 16)
_SAMPLES = 4000
"""Of raw sound: a quarter of a second at 16 kHz."""

_IMAGE = 64
"""Pixels of a side, where a model takes images of any size."""


def _inputs_of(model: Any, config: Any, name: str) -> dict[str, torch.Tensor]:
    """The tensors that the model's forward needs, by name.

    Raises:
        UsageError: if one of them is of another kind.
    """
    main = getattr(model, "main_input_name", "input_ids")
    takes = inspect.signature(model.forward).parameters
    needed = [main]
    if "pixel_values" in takes and hasattr(config, "vision_config"):
        needed.append("pixel_values")
    if "decoder_input_ids" in takes and getattr(config, "is_encoder_decoder", False):
        needed.append("decoder_input_ids")
    given = {}
    for each in needed:
        made = _MAKERS.get(each, lambda _: None)(config)
        if made is None:
            raise UsageError(
                f"{name} takes {each}, which hf: cannot make up\n"
                "  write a script that does, and name a function of it: model.py:FUNCTION"
            )
        given[each] = made
    return given


def _tokens(config: Any) -> torch.Tensor | None:
    size = _config_value(config, "text_config", "vocab_size")
    return None if size is None else torch.randint(size, _TOKENS)


def _pixels(config: Any) -> torch.Tensor:
    size = _config_value(config, "vision_config", "image_size") or _IMAGE
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(1, _config_value(config, "vision_config", "num_channels") or 3, height, width)


def _sound(config: Any) -> torch.Tensor | None:
    """Samples of a wave, where the model begins with convolutions over them."""
    return torch.randn(1, _SAMPLES) if hasattr(config, "conv_kernel") else None


def _spectrum(config: Any) -> torch.Tensor | None:
    """Bands by time, as many steps as the encoder's positions, which two strides halve."""
    bands, steps = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
    return torch.randn(1, bands, 2 * steps) if bands and steps else None


_MAKERS: Mapping[str, Callable[[Any], torch.Tensor | None]] = {
    "input_ids": _tokens,
    "decoder_input_ids": _tokens,
    "pixel_values": _pixels,
    "input_features": _spectrum,
    "input_values": _sound,
}


def _config_value(config: Any, part: str, key: str) -> Any:
    """A key of a configuration, or of its part for one kind of input."""
    return getattr(config, key, None) or getattr(getattr(config, part, None), key, None)

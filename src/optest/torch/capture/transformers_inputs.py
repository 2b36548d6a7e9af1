"""Inputs for a model of Hugging Face's transformers, made up from what its forward takes and its configuration says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from optest.errors import UsageError

__all__ = ["inputs_of"]

_TOKENS = (1, 16)
_SAMPLES = 4000
"""Of raw sound: a quarter of a second at 16 kHz."""

_IMAGE = 64
"""Pixels of a side, where a model takes images of any size."""


def inputs_of(model: Any, config: Any, name: str) -> dict[str, torch.Tensor]:
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
        made = _MAKERS.get(each, _unknown)(config)
        if made is None:
            raise UsageError(
                f"{name} takes {each}, which hf: cannot make up\n"
                "  write a script that does, and capture that: optest capture model.py:forward -o model.yaml"
            )
        given[each] = made
    return given


def _unknown(_: Any) -> None:
    return None


def _tokens(config: Any) -> torch.Tensor | None:
    size = _stated(config, "text_config", "vocab_size")
    return None if size is None else torch.randint(size, _TOKENS)


def _pixels(config: Any) -> torch.Tensor:
    size = _stated(config, "vision_config", "image_size") or _IMAGE
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(1, _stated(config, "vision_config", "num_channels") or 3, height, width)


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


def _stated(config: Any, part: str, key: str) -> Any:
    """A key of a configuration, or of its part for one kind of input."""
    return getattr(config, key, None) or getattr(getattr(config, part, None), key, None)

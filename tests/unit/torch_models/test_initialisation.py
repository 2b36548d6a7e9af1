"""Random weights reveal faults of a model: each changes the logits by more than float32's rounding error."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from model_results import results

from optest.torch.models.adapters import open_model
from optest.torch.models.initialisation import PRESETS

HEAD = 16
# Minimum change of the logits by a fault, in units of float32's error against float64.
SHOWN = 3


class WithoutMask(torch.nn.Module):
    def forward(self, query, key, value):
        return torch.softmax(query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5, -1) @ value


class LateForKeys(torch.nn.Module):
    """Rotary positions of keys are one behind; for queries and keys alike it would be no fault."""

    def __init__(self, rotary) -> None:
        super().__init__()
        self.rotary, self.calls = rotary, 0

    def forward(self, x, cos, sin):
        self.calls += 1
        return self.rotary(x, cos, sin) if self.calls % 2 else self.rotary(x, cos.roll(1, 0), sin.roll(1, 0))


TWO_HEADS = slice(0, 2 * HEAD)
FAULTS: dict[str, Callable] = {
    "without_mask": lambda attention: setattr(attention, "attention", WithoutMask()),
    "late_for_keys": lambda attention: setattr(attention, "rotary", LateForKeys(attention.rotary)),
    "eps": lambda norm: setattr(norm, "eps", 1e-6),
    "erf": lambda act: setattr(act, "approximate", "none"),
    "no_bias": lambda layer: layer.bias.zero_(),
    "heads_of_rows": lambda layer: layer.weight[TWO_HEADS].copy_(layer.weight[TWO_HEADS].roll(HEAD, 0)),
    "heads_of_columns": lambda layer: layer.weight[:, TWO_HEADS].copy_(layer.weight[:, TWO_HEADS].roll(HEAD, 1)),
    "mean": lambda norm: norm.running_mean[0].add_(0.05 * norm.running_var[0].sqrt()),
    "unclipped": lambda act: setattr(act, "max_val", 1e9),
}


ALL = {
    "gpt2": {
        "eps": "transformer.h.*.ln_1 transformer.h.*.ln_2 transformer.ln_f",
        "erf": "transformer.h.*.mlp.act",
        "without_mask": "transformer.h.*.attn",
        "heads_of_rows": "transformer.h.*.attn.c_proj",
        "no_bias": "transformer.h.*.ln_1 transformer.h.*.ln_2 transformer.h.*.attn.c_attn transformer.h.*.attn.c_proj "
        "transformer.h.*.mlp.c_fc transformer.h.*.mlp.c_proj transformer.ln_f",
    },
    "llama": {
        "eps": "model.layers.*.input_layernorm model.layers.*.post_attention_layernorm model.norm",
        "without_mask": "model.layers.*.self_attn",
        "late_for_keys": "model.layers.*.self_attn",
        "heads_of_columns": "model.layers.*.self_attn.o_proj",
    },
    "resnet34": {
        "mean": "bn1 layer1.0.bn1 layer2.3.bn2 layer3.0.downsample.1 layer4.2.bn1",
        "no_bias": "layer4.2.bn2 fc",
        "eps": "bn1 layer4.0.bn2",
    },
    "mobilenet_v2": {
        "mean": "features.0.1 features.17.conv.3",
        "eps": "features.9.conv.0.1",
        "unclipped": "features.0.2",
    },
}
"""Modules by model and fault; the star is both blocks."""


@pytest.mark.heavy
@pytest.mark.parametrize("name", ALL)
def test_default_initialisation_reveals_faults(name: str) -> None:
    shown = dict(changes(name, PRESETS[0], ALL[name]))
    assert not {fault: change for fault, change in shown.items() if not change > SHOWN}


def test_no_single_scale_reveals_all_faults() -> None:
    faults = {"eps": "transformer.ln_f", "erf": "transformer.h.0.mlp.act"}
    small, large = (dict(changes("gpt2", preset, faults)) for preset in ("small", "large"))
    epsilon, gelu = small
    assert small[epsilon] > SHOWN > 1 > large[epsilon]
    assert large[gelu] > SHOWN


def changes(name: str, preset: str, faults: dict[str, str]):
    """Yield each fault with its change of the logits, in units of float32's error."""
    model = open_model(name, preset=preset)
    inputs = model.inputs(0)
    wide = copy.deepcopy(model.module).double()
    in_wide = {key: each.double() if each.is_floating_point() else each for key, each in inputs.items()}
    with torch.no_grad():
        right = wide(**in_wide)
        error = (results(model, inputs)["logits"] - right).abs().max()
        assert 0 < error < 1e-4
        for fault, path in ((fault, path) for fault, paths in faults.items() for path in both_blocks(paths)):
            faulty = copy.deepcopy(wide)
            FAULTS[fault](faulty.get_submodule(path))
            yield f"{fault} of {path}", float((faulty(**in_wide) - right).abs().max() / error)


def both_blocks(paths: str) -> list[str]:
    return [path.replace("*", block) for path in paths.split() for block in ("01" if "*" in path else "0")]

"""Random weights reveal faults of a model: each changes the logits by more than float32's rounding error."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch
from model_results import results

from optest.torch.models.adapters import open_model
from optest.torch.models.initialisation import PRESETS

pytestmark = pytest.mark.torch
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


def without_mask(attention) -> None:
    attention.attention = WithoutMask()


def late_for_keys(attention) -> None:
    attention.rotary = LateForKeys(attention.rotary)


def eps(norm) -> None:
    norm.eps = 1e-6


def erf(act) -> None:
    act.approximate = "none"


def no_bias(layer) -> None:
    layer.bias.zero_()


def heads_of_rows(layer) -> None:
    layer.weight[: 2 * HEAD] = layer.weight[: 2 * HEAD].roll(HEAD, 0)


def heads_of_columns(layer) -> None:
    layer.weight[:, : 2 * HEAD] = layer.weight[:, : 2 * HEAD].roll(HEAD, 1)


def mean(norm) -> None:
    norm.running_mean[0] += 0.05 * norm.running_var[0].sqrt()


def unclipped(act) -> None:
    act.max_val = 1e9


GPT2 = [
    *((f"transformer.h.{block}.{part}", fault) for block in (0, 1) for part, fault in (
        ("ln_1", eps), ("ln_2", eps), ("mlp.act", erf), ("attn", without_mask), ("attn.c_proj", heads_of_rows),
        ("ln_1", no_bias), ("ln_2", no_bias), ("attn.c_attn", no_bias), ("attn.c_proj", no_bias),
        ("mlp.c_fc", no_bias), ("mlp.c_proj", no_bias),
    )),
    ("transformer.ln_f", eps),
    ("transformer.ln_f", no_bias),
]  # fmt: skip
LLAMA = [
    *((f"model.layers.{block}.{part}", fault) for block in (0, 1) for part, fault in (
        ("input_layernorm", eps), ("post_attention_layernorm", eps), ("self_attn", without_mask),
        ("self_attn", late_for_keys), ("self_attn.o_proj", heads_of_columns),
    )),
    ("model.norm", eps),
]  # fmt: skip
RESNET = [
    ("bn1", mean), ("layer1.0.bn1", mean), ("layer2.3.bn2", mean), ("layer3.0.downsample.1", mean),
    ("layer4.2.bn1", mean), ("layer4.2.bn2", no_bias), ("fc", no_bias), ("bn1", eps), ("layer4.0.bn2", eps),
]  # fmt: skip
MOBILENET = [
    ("features.0.1", mean), ("features.17.conv.3", mean), ("features.9.conv.0.1", eps), ("features.0.2", unclipped),
]  # fmt: skip
ALL = {"gpt2": GPT2, "llama": LLAMA, "resnet34": RESNET, "mobilenet_v2": MOBILENET}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ALL)
def test_default_initialisation_reveals_faults(name: str) -> None:
    shown = dict(changes(name, PRESETS[0], ALL[name]))
    assert not {fault: change for fault, change in shown.items() if not change > SHOWN}


def test_no_single_scale_reveals_all_faults() -> None:
    faults = [("transformer.ln_f", eps), ("transformer.h.0.mlp.act", erf)]
    small, large = (dict(changes("gpt2", preset, faults)) for preset in ("small", "large"))
    epsilon, gelu = small
    assert small[epsilon] > SHOWN > 1 > large[epsilon]
    assert large[gelu] > SHOWN


def changes(name: str, preset: str, faults: list[tuple[str, Callable]]):
    """Yield each fault with its change of the logits, in units of float32's error."""
    model = open_model(name, preset=preset)
    inputs = model.inputs(0)
    wide = copy.deepcopy(model.module).double()
    in_wide = {key: each.double() if each.is_floating_point() else each for key, each in inputs.items()}
    with torch.no_grad():
        right = wide(**in_wide)
        error = (results(model, inputs)["logits"] - right).abs().max()
        assert 0 < error < 1e-4
        for path, fault in faults:
            faulty = copy.deepcopy(wide)
            fault(faulty.get_submodule(path))
            yield f"{fault.__name__} of {path}", float((faulty(**in_wide) - right).abs().max() / error)

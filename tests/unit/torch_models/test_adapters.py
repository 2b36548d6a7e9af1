"""Opening models by name: weights, inputs, configuration, and errors."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
from model_results import results
from texts import refusal

from optest.errors import OptestError, Unavailable, UsageError
from optest.torch.models.adapters import MODELS, TorchModel, open_model, presets_of
from optest.torch.models.initialisation import PRESETS

OWN = ("gpt2", "llama", "resnet34", "mobilenet_v2")
LIGHT = {"resnet34": {"image_size": 32}, "mobilenet_v2": {"image_size": 32}}


def bits(module: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in module.state_dict().values()]


@pytest.mark.parametrize("name", OWN)
def test_weights_depend_only_on_name_and_seed(name: str) -> None:
    torch.manual_seed(1)
    one = open_model(name, config=LIGHT.get(name, {}))
    before = torch.rand(1)
    torch.manual_seed(2)
    two, reseeded = (open_model(name, config=LIGHT.get(name, {}), seed=seed) for seed in (0, 1))
    assert all(map(torch.equal, bits(one.module), bits(two.module)))
    assert not any(map(torch.equal, one.module.parameters(), reseeded.module.parameters()))
    first, again, second = (next(iter(one.inputs(seed).values())) for seed in (0, 0, 1))
    assert (torch.equal(first, again), torch.equal(first, second)) == (True, False)
    torch.manual_seed(1)
    assert torch.equal(before, torch.rand(1)), "torch's random state is unchanged"


def test_weights_have_same_bits_in_every_version() -> None:
    weight = open_model("gpt2").module.transformer.h[0].attn.c_attn.weight
    bits = ["0x1.6f15240000000p-2", "-0x1.3bd12a0000000p-8", "0x1.783e980000000p-5"]
    assert [value.hex() for value in weight[0, :3].tolist()] == bits


@pytest.mark.parametrize(
    "preset", [pytest.param(each, marks=() if each == "balanced" else pytest.mark.heavy) for each in PRESETS]
)
@pytest.mark.parametrize("name", OWN)
def test_activations_stay_moderate(name: str, preset: str) -> None:
    model = open_model(name, preset=preset, config=LIGHT.get(name, {}))
    seen: dict[str, torch.Tensor] = {}
    for path, module in model.module.named_modules():
        module.register_forward_hook(lambda _, __, value, path=path: seen.update({path: value}))
    (logits,) = results(model, model.inputs(0)).values()
    assert logits.dtype == torch.float32
    assert 0.1 < logits.std() < 100
    spread = {path: float(value.std()) for path, value in seen.items()}
    assert all(0.005 < deviation < 200 for deviation in spread.values()), spread


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_language_model_is_causal(name: str) -> None:
    model = open_model(name)
    inputs = model.inputs(0)
    changed = {"input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][:, 9:] = 0
    before, after = results(model, inputs)["logits"], results(model, changed)["logits"]
    assert model.causal
    assert torch.equal(before[:, :9], after[:, :9])
    assert before.shape[-1] == model.vocabulary
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_configuration_changes_sizes() -> None:
    model = open_model("gpt2", config={"n_layer": 1, "batch": 1, "tokens": 5, "tied": True})
    table = model.module.transformer.wte.weight
    assert (len(model.module.transformer.h), table.shape[1]) == (1, 64)
    assert model.module.lm_head.weight is table
    image = open_model("resnet34", config={"width": 8, "image_size": 32, "num_classes": 3, "batch": 1})
    shapes = [results(each, each.inputs(0))["logits"].shape for each in (model, image)]
    assert shapes == [(1, 5, 512), (1, 3)]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt2", 124_439_808), ("llama", 1_100_048_384), ("resnet34", 21_797_672), ("mobilenet_v2", 3_504_872)],
)
def test_full_sizes_match_published_models(name: str, parameters: int) -> None:
    with torch.device("meta"):
        module = MODELS.get(name)({"size": "full"}).module
    assert sum(each.numel() for each in module.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("gpt", {}, "unknown model 'gpt'; did you mean 'gpt2'"),
        ("gpt2", {"n_layers": 3}, r"gpt2 has no n_layers; did you mean n_layer\?\n  known: size, n_layer, n_embd"),
        ("gpt2", {"n_layer": "3"}, "n_layer of gpt2 is '3', expected a whole number above 0"),
        ("gpt2", {"n_layer": True}, "n_layer of gpt2 is True, expected a whole number above 0"),
        ("gpt2", {"tied": 1}, "tied of gpt2 is 1, expected true or false"),
        ("gpt2", {"tokens": 512}, "tokens is 512, expected at most 256, the value of n_positions"),
        ("gpt2", {"n_embd": 66}, "n_embd is 66, expected a multiple of n_head, which is 4"),
        ("llama", {"num_key_value_heads": 3}, "num_attention_heads is 4, expected a multiple of"),
        ("llama", {"hidden_size": 12}, "hidden_size / num_attention_heads is odd"),
        ("gpt2", {"size": "huge"}, "size of gpt2 is 'huge', expected small or full"),
        ("mine.py", {}, "mine.py is a script, expected one of its functions"),
        ("mine.py:good", {"a": 1}, "mine.py:good builds its model itself"),
        ("mine.py:god", {}, "mine.py has no god; did you mean good"),
        ("mine.py:bare", {}, "returns Linear without inputs, expected"),
        ("mine.py:number", {}, "returns int without inputs"),
        ("mine.py:misnamed", {}, "example inputs of mine.py:misnamed are for y, expected tensors for input"),
        ("mine.py:unfit", {}, r"raised RuntimeError: .*\n  at .*mine.py:\d+, in forward"),
        ("nowhere.models:build", {}, "module 'nowhere.models' does not exist"),
    ],
)
def test_invalid_model_or_configuration_is_an_error(mine: Path, name: str, config: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_model(name, config=config)


def test_unknown_preset_is_an_error() -> None:
    with refusal(UsageError, "torch_models.unknown_preset_smal_did"):
        open_model("gpt2", preset="smal")
    assert presets_of("gpt2") == presets_of("hf:BertModel") == PRESETS
    assert presets_of("gpt2", Path("w.safetensors")) == ("",)  # which has weights


MINE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x, scale=None):
        y = self.linear(x)
        return {"y": y, "pair": (y, y if scale is None else y * scale)}
def good():
    return Model(), {"scale": torch.tensor(2.0), "x": torch.ones(2, 4)}
def bare():
    return torch.nn.Linear(2, 2)
def number():
    return 3
def misnamed():
    return torch.nn.Linear(2, 2), {"y": torch.ones(2)}
def unfit():
    return Model(), torch.ones(5)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def test_user_model_keeps_its_weights(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_model("mine.py:good")
    inputs = model.inputs(5)
    assert list(inputs) == ["x", "scale"]  # in the order of forward's parameters
    assert model.outputs == ("y", "pair_0", "pair_1")
    outputs = results(model, inputs)
    assert torch.equal(outputs["pair_1"], 2 * outputs["y"])
    again = open_model("mine.py:good")
    assert torch.equal(model.module.linear.weight, again.module.linear.weight)  # drawn by torch's seed
    assert presets_of("mine.py:good") == ("",)
    drawn = open_model("mine.py:good", preset="large")
    assert not torch.equal(drawn.module.linear.weight, again.module.linear.weight)
    monkeypatch.syspath_prepend(str(mine))
    assert open_model("mine:good").outputs == model.outputs


def test_registered_model_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(_: dict) -> TorchModel:
        module = torch.nn.Linear(4, 2)
        return TorchModel(name="line", module=module, inputs=lambda seed: {"input": torch.ones(1, 4)}, outputs=("y",))

    monkeypatch.setattr(MODELS, "_entries", dict(MODELS._entries))
    MODELS.register("line", factory)
    assert results(open_model("line"), {"input": torch.ones(1, 4)})["y"].shape == (1, 2)


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: object) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(content, __version__="1")
    monkeypatch.setitem(sys.modules, name, module)


class AConfig:
    def __init__(self, width: int = 8) -> None:
        self.width, self.vocab_size, self.use_cache, self.max_position_embeddings = width, 11, True, 40


class AnLMHeadModel(torch.nn.Module):
    config_class = AConfig
    main_input_name = "input_ids"

    def __init__(self, config: AConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = torch.nn.Embedding(config.vocab_size, config.width)

    def forward(self, input_ids: torch.Tensor) -> dict:
        logits = self.embed(input_ids) @ self.embed.weight.T
        return {"logits": logits, "past": (logits,)} if self.config.use_cache else {"logits": logits}


def test_transformers_model_opens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch, "transformers", AnLMHeadModel=AnLMHeadModel)
    model = open_model("hf:AnLMHeadModel", config={"width": 6})
    assert (model.outputs, model.causal, model.vocabulary, model.context) == (("logits",), True, 11, 40)
    assert model.module.embed.weight.shape == (11, 6)
    first, again, other = (model.inputs(seed)["input_ids"] for seed in (3, 3, 4))
    assert (torch.equal(first, again), torch.equal(first, other)) == (True, False)
    assert "AnLMHeadModel: 66 parameters" in capsys.readouterr().err
    with refusal(UsageError, "torch_models.parameters_gib_of_memory"):
        open_model("hf:AnLMHeadModel", config={"width": 1 << 40})


def test_timm_model_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, *, pretrained: bool, width: int) -> torch.nn.Module:
        assert name == "tiny"
        assert not pretrained
        module = torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.Flatten())
        module.default_cfg = {"input_size": (3, 8, 8)}
        return module

    stand_in(monkeypatch, "timm", create_model=create_model)
    model = open_model("timm:tiny", config={"width": 2})
    assert results(model, model.inputs(0))["logits"].shape == (2, 72)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package, name in (("transformers", "hf:GPT2LMHeadModel"), ("timm", "timm:resnet18")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(Unavailable, match=f"pip install {package}"):
            open_model(name)
    monkeypatch.delitem(sys.modules, "timm")
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptestError, match=r"(?s)timm.*torchvision::nms does not exist.*needs CUDA"):
        open_model("timm:resnet18")

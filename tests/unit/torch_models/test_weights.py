"""Weights in files: same bits after loading, published layouts, and one error with all mismatches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from model_results import results
from safetensors.torch import save_file
from texts import refusal

from optest.errors import UsageError
from optest.generators.files import tensors_in_file
from optest.torch.models.adapters import open_model
from optest.torch.models.weights import save_weights

pytestmark = pytest.mark.torch
SMALL_IMAGE = {"image_size": 32}
SMALL = {"gpt2": {}, "llama": {"tied": True}, "resnet34": {"width": 8, **SMALL_IMAGE}, "mobilenet_v2": SMALL_IMAGE}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize("name", SMALL)
def test_loaded_weights_have_same_bits(file: Path, name: str) -> None:
    model = open_model(name, config=SMALL[name], preset="large", seed=3)
    save_weights(model, file)
    again = open_model(name, config=SMALL[name], weights=file)
    assert again.notes == ()
    state, back = model.module.state_dict(), again.module.state_dict()
    assert list(state) == list(back)
    assert all(torch.equal(state[key], back[key]) for key in state)
    inputs = model.inputs(0)
    assert torch.equal(results(model, inputs)["logits"], results(again, inputs)["logits"])
    with refusal(UsageError, "torch_models.preset_is_small_but"):
        open_model(name, config=SMALL[name], weights=file, preset="small")


def test_strided_views_are_saved(file: Path) -> None:
    module = torch.nn.Module()
    rows = torch.arange(12.0).view(4, 3)
    module.w = torch.nn.Parameter(torch.arange(9.0).view(3, 3))
    for name, view in {"t": module.w.t(), "every_second": rows[::2], "tied": module.w[:]}.items():
        module.register_buffer(name, view.detach())
    save_weights(SimpleNamespace(module=module, name="m"), file)  # type: ignore[arg-type]
    stored, _ = tensors_in_file(file)
    assert {*stored} == {"w", "t", "every_second"}, "a transposed view is no second name of the same tensor"
    assert all((stored[name] == module.state_dict()[name].numpy()).all() for name in stored)


def test_published_layout_of_gpt2_loads(file: Path) -> None:
    model = open_model("gpt2", config={"tied": True})
    state = model.module.state_dict()
    bare = {
        name.removeprefix("transformer."): tensor.clone() for name, tensor in state.items() if name != "lm_head.weight"
    }
    bare["h.0.attn.bias"] = torch.ones(1, 1, 32, 32)  # the causal mask, which they hold
    save_file(bare, file)
    again = open_model("gpt2", config={"tied": True}, weights=file)
    inputs = model.inputs(0)
    assert torch.equal(results(model, inputs)["logits"], results(again, inputs)["logits"])
    with pytest.raises(UsageError, match=r"missing: lm_head.weight$"):
        open_model("gpt2", weights=file)
    save_file({name: tensor.clone() + (name == "lm_head.weight") for name, tensor in state.items()}, file)
    with pytest.raises(UsageError, match=r"differs from the name that it is tied to: lm_head.weight$"):
        open_model("gpt2", config={"tied": True}, weights=file)


def test_state_dict_names_match_checkpoints() -> None:
    names = {name: open_model(name, config=SMALL[name]).module.state_dict() for name in SMALL}
    assert {"transformer.wte.weight", "transformer.h.1.mlp.c_proj.bias", "lm_head.weight"} <= names["gpt2"].keys()
    assert names["gpt2"]["transformer.h.0.attn.c_attn.weight"].shape == (64, 192)
    assert {"model.layers.1.self_attn.k_proj.weight", "model.norm.weight"} <= names["llama"].keys()
    assert {"layer2.0.downsample.1.running_mean", "bn1.num_batches_tracked", "fc.bias"} <= names["resnet34"].keys()
    expected = {"features.1.conv.0.0.weight", "features.18.1.running_var", "classifier.1.weight"}
    assert expected <= names["mobilenet_v2"].keys()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_are_widened_with_a_note(file: Path, dtype: torch.dtype) -> None:
    state = open_model("llama").module.state_dict()
    save_file({name: tensor.to(dtype) for name, tensor in state.items()}, file)
    model = open_model("llama", weights=file)
    assert model.notes == (f"weights of w.safetensors are {dtype}".replace("torch.", "") + ", widened to float32",)
    assert all(
        torch.equal(tensor, state[name].to(dtype).to(torch.float32))
        for name, tensor in model.module.state_dict().items()
    )


def test_all_mismatches_are_reported_together(file: Path) -> None:
    state = {name: tensor.clone() for name, tensor in open_model("gpt2").module.state_dict().items()}
    state["transformer.ln_F.bias"] = state.pop("transformer.ln_f.bias")
    state["transformer.wpe.weight"] = torch.zeros(16, 64)
    state["transformer.h.0.ln_1.weight"] = torch.ones(64, dtype=torch.float64)
    save_file(state, file)
    with pytest.raises(UsageError) as caught:
        open_model("gpt2", weights=file)
    assert str(caught.value).splitlines() == [
        f"{file} does not fit the model",
        "  missing: transformer.ln_f.bias",
        "  unexpected: transformer.ln_F.bias",
        "  shape: transformer.wpe.weight is [16, 64], expected [256, 64]",
        "  dtype: transformer.h.0.ln_1.weight is float64, expected float32",
    ]
    with pytest.raises(UsageError, match=r"missing: (\S+, ){7}\S+ and \d+ more\n  unexpected"):
        open_model("llama", weights=file)


def test_invalid_weight_files_are_errors(file: Path, tmp_path: Path) -> None:
    with refusal(UsageError, "torch_models.cannot_be_read_no"):
        open_model("gpt2", weights=file)
    file.write_bytes(b"nothing of the kind")
    with refusal(UsageError, "torch_models.safetensors_is_no_file"):
        open_model("gpt2", weights=file)
    with refusal(UsageError, "torch_models.bin_is_no_safetensors"):
        open_model("gpt2", weights=tmp_path / "w.bin")
    with pytest.raises(UsageError, match="cannot be written"):
        save_weights(open_model("gpt2"), tmp_path / "nowhere" / "w.safetensors")

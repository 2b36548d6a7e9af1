"""Weights in files: same bits after loading, published layouts, and one error with all mismatches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from model_results import results
from safetensors.torch import save_file
from texts import refusal

from optest.errors import UsageError
from optest.generators.files import tensors_in_file
from optest.torch.models.adapters import TorchModel, open_model
from optest.torch.models.weights import save_weights

SMALL_IMAGE = {"image_size": 32}
SMALL = {"gpt2": {}, "llama": {"tied": True}, "resnet34": {"width": 8, **SMALL_IMAGE}, "mobilenet_v2": SMALL_IMAGE}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.safetensors"


def same_logits(one: TorchModel, other: TorchModel) -> bool:
    inputs = one.inputs(0)
    return torch.equal(results(one, inputs)["logits"], results(other, inputs)["logits"])


@pytest.mark.parametrize("name", SMALL)
def test_loaded_weights_have_same_bits(file: Path, name: str) -> None:
    model = open_model(name, config=SMALL[name], preset="large", seed=3)
    save_weights(model, file)
    again = open_model(name, config=SMALL[name], weights=file)
    assert again.notes == ()
    state, back = model.module.state_dict(), again.module.state_dict()
    assert list(state) == list(back)
    assert all(torch.equal(state[key], back[key]) for key in state)
    assert same_logits(model, again)
    with refusal(UsageError, "torch_models.preset_is_small_but"):
        open_model(name, config=SMALL[name], weights=file, preset="small")


def test_published_layout_of_gpt2_loads(file: Path) -> None:
    model = open_model("gpt2", config={"tied": True})
    state = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    bare = {name.removeprefix("transformer."): tensor for name, tensor in state.items() if name != "lm_head.weight"}
    save_file({**bare, "h.0.attn.bias": torch.ones(1, 1, 32, 32)}, file)  # the causal mask, which they hold
    assert same_logits(model, open_model("gpt2", config={"tied": True}, weights=file))
    with pytest.raises(UsageError, match=r"missing: lm_head.weight$"):
        open_model("gpt2", weights=file)
    save_file({**state, "lm_head.weight": state["lm_head.weight"] + 1}, file)
    with pytest.raises(UsageError, match=r"differs from the name that it is tied to: lm_head.weight$"):
        open_model("gpt2", config={"tied": True}, weights=file)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_are_widened_with_a_note(file: Path, dtype: torch.dtype) -> None:
    narrow = {name: tensor.to(dtype) for name, tensor in open_model("llama").module.state_dict().items()}
    save_file(narrow, file)
    model = open_model("llama", weights=file)
    assert model.notes == (f"weights of w.safetensors are {dtype}".replace("torch.", "") + ", widened to float32",)
    assert all(torch.equal(tensor, narrow[name].float()) for name, tensor in model.module.state_dict().items())


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", "transformer.wte.weight transformer.h.1.mlp.c_proj.bias lm_head.weight"),
        ("llama", "model.layers.1.self_attn.k_proj.weight model.norm.weight"),
        ("resnet34", "layer2.0.downsample.1.running_mean bn1.num_batches_tracked fc.bias"),
        ("mobilenet_v2", "features.1.conv.0.0.weight features.18.1.running_var classifier.1.weight"),
    ],
)
def test_state_dict_names_match_checkpoints(name: str, expected: str) -> None:
    state = open_model(name, config=SMALL[name]).module.state_dict()
    assert set(expected.split()) <= state.keys()
    assert name != "gpt2" or state["transformer.h.0.attn.c_attn.weight"].shape == (64, 192)


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
    (tmp_path / "no_w.safetensors").write_bytes(b"nothing of the kind")
    for path, text in (
        (file, "torch_models.cannot_be_read_no"),
        (tmp_path / "no_w.safetensors", "torch_models.safetensors_is_no_file"),
        (tmp_path / "w.bin", "torch_models.bin_is_no_safetensors"),
    ):
        with refusal(UsageError, text):
            open_model("gpt2", weights=path)
    with pytest.raises(UsageError, match="cannot be written"):
        save_weights(open_model("gpt2"), tmp_path / "nowhere" / "w.safetensors")

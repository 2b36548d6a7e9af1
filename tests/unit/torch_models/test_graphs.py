"""Graphs of models: each step alone, in float32 and float64, with its place; and the ONNX model of the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from optest.errors import Unavailable
from optest.spec import Fault, Reason
from optest.torch.models.adapters import TorchModel, opened_model
from optest.torch.models.graphs import Graph, exported, exported_with_graph, graph_of

pytestmark = pytest.mark.torch
LIGHT = {"image_size": 32, "batch": 1}
SMALL = {"gpt2": {}, "llama": {}, "resnet34": {"width": 8, **LIGHT}, "mobilenet_v2": LIGHT}


def model_of(forward: Callable, *outputs: str) -> TorchModel:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.relu = torch.nn.ReLU(inplace=True)

    Model.forward = forward
    inputs = {"x": torch.linspace(-1, 1, 8).reshape(2, 4)}
    return TorchModel(name="mine", module=Model().eval(), inputs=lambda _: inputs, outputs=outputs or ("y",))


NAMES = [
    pytest.param(name, marks=[pytest.mark.heavy] if name in ("resnet34", "mobilenet_v2") else []) for name in SMALL
]


@pytest.mark.parametrize("name", NAMES)
def test_steps_compute_what_the_model_does(name: str) -> None:
    model = opened_model(name, config=SMALL[name])
    inputs = model.inputs(0)
    graph = graph_of(model, inputs)
    assert graph.inputs == tuple(inputs)
    assert torch.equal(graph.run(inputs)["logits"], model.run(inputs)["logits"])
    wide = copy.deepcopy(model.module).double()
    with torch.no_grad():
        expected = wide(**{key: each.double() if each.is_floating_point() else each for key, each in inputs.items()})
    found = replace(graph, wide=True).run(inputs)["logits"]
    if name != "llama":  # which computes norms and angles in float32, whatever its dtype is
        assert torch.equal(found, expected)
    assert found.dtype == torch.float64
    assert 0 < (found - model.run(inputs)["logits"]).abs().max() < 1e-4
    assert torch.get_default_dtype() == torch.float32


def test_steps_know_their_module_and_line() -> None:
    model = opened_model("gpt2")
    steps = {step.name: step for step in graph_of(model, model.inputs(0)).steps}
    norm, softmax = steps["layer_norm_2"], steps["softmax_1"]
    assert (norm.operator, norm.module) == ("aten.layer_norm.default", "transformer.h.1.ln_1")
    assert norm.code == "x = x + self.attn(self.ln_1(x))"  # the model's line, and not that of torch
    assert (softmax.operator, softmax.module) == ("aten.softmax.int", "transformer.h.1.attn.attention")
    assert softmax.place.startswith("optest/torch/models/language.py:")
    assert softmax.code.startswith("weights = torch.softmax(")
    assert steps["getitem"].operator == "getitem"
    assert steps["getitem"].uses == ("split",)


def test_one_step_runs_alone() -> None:
    model = opened_model("gpt2")
    inputs = model.inputs(0)
    graph = graph_of(model, inputs)
    values = {**inputs, **{step.name: value for step, value in graph.values(inputs)}}
    wide = replace(graph, wide=True)
    for step in graph.steps:
        operands = {name: values[name] for name in step.uses}  # nothing else
        assert identical(graph.run_step(step, operands), values[step.name])
        value = wide.run_step(step, operands)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            torch.testing.assert_close(value.float(), values[step.name], rtol=2e-4, atol=2e-5)


def identical(one: object, other: object) -> bool:
    pairs = zip(one, other, strict=True) if isinstance(one, (tuple, list)) else [(one, other)]
    return all(torch.equal(*pair) for pair in pairs)


def test_values_are_released_after_their_last_use() -> None:
    graph = graph_of(model := opened_model("gpt2"), model.inputs(0))
    released: list[str] = []
    for step in graph.steps:
        assert not set(step.uses) & set(released)
        released += step.releases
    kept = {step.name for step in graph.steps} - set(released)
    assert len(released) == len(set(released))
    assert kept == set()  # the output, too, once it has been handed out


def test_steps_stop_when_nobody_asks_for_more() -> None:
    graph = graph_of(model := opened_model("gpt2"), model.inputs(0))
    computed: list[str] = []

    class Watched(Graph):
        def run_step(self, step, values):
            computed.append(step.name)
            return super().run_step(step, values)

    watched = Watched(inputs=graph.inputs, outputs=graph.outputs, steps=graph.steps, program=graph.program)
    for step, _ in watched.values(model.inputs(0)):
        if step.operator == "aten.softmax.int":
            break
    assert computed[-1] == "softmax"
    assert len(computed) < len(graph.steps) / 2


def test_float64_reaches_casts_constants_and_default_dtypes() -> None:
    def forward(self, x):
        third = torch.arange(4) / 3
        tenth = torch.ones(4).div(10) + torch.tensor([0.5, 0.25, 0.125, 1.0])
        return (self.linear(x).to(torch.float32) * third + tenth).softmax(-1, dtype=torch.float32)

    model = model_of(forward)
    graph = replace(graph_of(model, model.inputs(0)), wide=True)
    found = graph.run(model.inputs(0))["y"]
    weight, bias = (
        model.module.linear.weight.detach().double().numpy(),
        model.module.linear.bias.detach().double().numpy(),
    )
    y = (model.inputs(0)["x"].double().numpy() @ weight.T + bias) * (np.arange(4) / 3)
    y += np.full(4, 0.1) + np.array([0.5, 0.25, 0.125, 1.0])
    expected = np.exp(y) / np.exp(y).sum(-1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


def test_float32_in_a_float64_graph_is_refused() -> None:
    def forward(self, x):
        return torch.sin(x) + x.int().view(torch.float32)

    model = model_of(forward)
    graph = graph_of(model, model.inputs(0))
    assert graph.run(model.inputs(0))["y"].dtype == torch.float32
    step = next(each for each in graph.steps if each.operator == "aten.sin.default")
    narrow = replace(step, node=NarrowSine(step.node))
    with pytest.raises(Fault, match=r"aten.sin.default \(sin\) yields float32 from float64") as caught:
        replace(graph, wide=True).run_step(narrow, model.inputs(0))
    assert caught.value.reason is Reason.REFERENCE_FAILED
    assert torch.get_default_dtype() == torch.float32


class NarrowSine:
    """A node whose operator computes in float32, whatever it is given."""

    def __init__(self, node) -> None:
        self.args, self.kwargs = node.args, node.kwargs

    @staticmethod
    def target(x):
        return torch.sin(x).float()


def test_operators_in_place_and_regions_become_steps_that_stand_alone() -> None:
    def forward(self, x):
        y = self.linear(x)
        before = y * 2
        self.relu(y)
        y[:, 0] = 3
        with torch.autocast("cpu", enabled=False):
            z = y.float() + before
        return {"z": z, "parts": y.split(2, 1)}

    model = model_of(forward, "z", "parts_0", "parts_1")
    inputs = model.inputs(0)
    graph = graph_of(model, inputs)
    expected = model.run(inputs)
    kept = {step.name: (value, copy.deepcopy(value)) for step, value in graph.values(inputs)}
    assert all(identical(*pair) for pair in kept.values())  # no later step wrote into one
    assert all(torch.equal(value, expected[name]) for name, value in graph.run(inputs).items())
    assert replace(graph, wide=True).run(inputs)["z"].dtype == torch.float64


def test_an_export_that_fails_is_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x

    model = model_of(forward)
    pytest.importorskip("onnxscript")
    for export in (graph_of, exported):
        with pytest.raises(
            Fault, match=r"^export failed: mine to .*: GuardOnDataDependentSymNode: Could not guard"
        ) as caught:
            export(model, model.inputs(0))
        assert caught.value.reason is Reason.COMPILE
        assert len(str(caught.value).splitlines()) == 1
    assert capfd.readouterr() == ("", "")


def test_export_without_onnxscript(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.torch.models.graphs.is_installed", lambda name: name != "onnxscript")
    with pytest.raises(Unavailable, match=r"without onnxscript is unavailable: pip install optest\[onnx\]"):
        exported(model := opened_model("gpt2"), model.inputs(0))


@pytest.mark.parametrize("name", NAMES)
def test_the_onnx_model_has_the_names_places_and_results(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = opened_model(name, config=SMALL[name])
    inputs = model.inputs(0)
    content, graph = exported_with_graph(model, inputs)
    assert capfd.readouterr() == ("", "")
    proto = onnx.load_from_string(content)
    assert [each.name for each in proto.graph.input] == list(inputs)
    assert [each.name for each in proto.graph.output] == ["logits"]
    entries = [{each.key: each.value for each in node.metadata_props} for node in proto.graph.node]
    assert all("pkg.torch.onnx.stack_trace" in each and "pkg.torch.onnx.name_scopes" in each for each in entries)
    names = {each for node in proto.graph.node for each in node.output}
    steps = {step.name for step in graph.steps}
    assert len(names & steps) > 0.75 * len(names)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {key: each.numpy() for key, each in inputs.items()})
    expected = model.run(inputs)["logits"]
    assert torch.equal(graph.run(inputs)["logits"], expected)
    assert np.abs(found - expected.numpy()).max() < 5e-5

"""Graphs of models: single nodes in float32 and float64, their locations, and the exported ONNX model."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from model_results import results
from texts import refusal

from optest.errors import Unavailable
from optest.spec import Fault, Reason
from optest.torch.models.adapters import TorchModel, open_model
from optest.torch.models.graphs import Graph, exported_content, graph_of
from optest.torch.tensors import from_torch

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


def arrays(inputs: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: from_torch(each) for name, each in inputs.items()}


def opened(name_or_model: str | TorchModel, **config: Any) -> tuple[TorchModel, dict[str, np.ndarray], Graph]:
    """Return a model, its example inputs and its graph."""
    is_name = isinstance(name_or_model, str)
    model = open_model(name_or_model, config=config) if is_name else name_or_model
    given = arrays(model.inputs(0))
    return model, given, graph_of(model, given)


def run(graph: Graph, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the model's outputs by name."""
    values = all_values(graph, given)
    return {name: values[value] for name, value in graph.outputs_of.items()}


def all_values(graph: Graph, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**given, **dict(graph.stream(graph.region(graph.outputs, given), given))}


@pytest.mark.parametrize("name", NAMES)
def test_nodes_compute_the_model_outputs(name: str) -> None:
    model, given, graph = opened(name, **SMALL[name])
    inputs = model.inputs(0)
    assert graph.inputs == tuple(inputs)
    narrow = results(model, inputs)["logits"].numpy()
    assert np.array_equal(run(graph, given)["logits"], narrow)
    wide = copy.deepcopy(model.module).double()
    with torch.no_grad():
        expected = wide(**{key: each.double() if each.is_floating_point() else each for key, each in inputs.items()})
    found = run(graph.widened, given)["logits"]
    if name != "llama":  # which computes norms and angles in float32, whatever its dtype is
        assert np.array_equal(found, expected.numpy())
    assert found.dtype == np.float64
    assert 0 < np.abs(found - narrow).max() < 1e-4
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("value", "operator", "module", "source"),
    [
        # The model's line, and not that of torch.
        ("layer_norm_2", "aten.layer_norm.default", "transformer.h.1.ln_1", ": x = x + attention(norm(x), *angles)"),
        ("softmax_1", "aten.softmax.int", "transformer.h.1.attn.attention", ": weights = torch.softmax("),
    ],
)
def test_nodes_know_their_module_and_line(value: str, operator: str, module: str, source: str) -> None:
    _, _, graph = opened("gpt2")
    node = graph.node_of_value[value]
    assert graph.operator(node) == operator
    assert graph.origin_of(node).startswith(f"{module}, language.py:")
    assert source in graph.origin_of(node)
    assert graph.operator(graph.node_of_value["getitem"]) == "getitem"
    assert graph.region(["getitem"], ["split"]).inputs == ("split",)


def test_single_node_runs() -> None:
    _, given, graph = opened("gpt2")
    values = all_values(graph, given)
    for name in values.keys() - given.keys():
        region = graph.region([name], values)
        operands = {each: values[each] for each in region.inputs}  # nothing else
        assert np.array_equal(dict(graph.stream(region, operands))[name], values[name])
        wide = dict(graph.widened.stream(region, operands))[name]
        if wide.dtype.kind == "f":
            np.testing.assert_allclose(wide, values[name], rtol=2e-4, atol=2e-5)


def test_stream_runs_no_node_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    _, given, graph = opened("gpt2")
    computed, value_of = [], Graph.value_of

    def watched(self: Graph, node, values):
        computed.append(node.name)
        assert len(values) < 12  # others are released after their last use
        return value_of(self, node, values)

    monkeypatch.setattr(Graph, "value_of", watched)
    for name, _ in graph.stream(graph.region(graph.outputs, given), given):
        if name == "softmax":
            break
    assert computed[-1] == "softmax"
    assert len(computed) < len(graph.nodes) / 2


def test_float64_reaches_casts_constants_and_default_dtypes() -> None:
    def forward(self, x):
        third = torch.arange(4) / 3
        tenth = torch.ones(4).div(10) + torch.tensor([0.5, 0.25, 0.125, 1.0])
        return (self.linear(x).to(torch.float32) * third + tenth).softmax(-1, dtype=torch.float32)

    model, given, graph = opened(model_of(forward))
    linear = model.module.linear
    weight, bias = (parameter.detach().double().numpy() for parameter in (linear.weight, linear.bias))
    y = (given["x"].astype(np.float64) @ weight.T + bias) * (np.arange(4) / 3)
    y += np.full(4, 0.1) + np.array([0.5, 0.25, 0.125, 1.0])
    expected = np.exp(y) / np.exp(y).sum(-1, keepdims=True)
    np.testing.assert_allclose(run(graph.widened, given)["y"], expected, rtol=1e-14)


class NarrowSine:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x).float()

    def __str__(self) -> str:
        return "narrow sine"


def test_float32_in_float64_graph_is_an_error() -> None:
    model, given, graph = opened(model_of(lambda self, x: torch.sin(x)))
    assert run(graph, given)["y"].dtype == np.float32
    (node,) = graph.nodes
    narrow = types.SimpleNamespace(name=node.name, args=node.args, kwargs=node.kwargs, target=NarrowSine())
    with refusal(Fault, "torch_models.sine_sin_yields_float") as caught:
        graph.widened.value_of(narrow, model.inputs(0))
    assert caught.value.reason is Reason.REFERENCE_FAILED
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("forward", "drawn"),
    [
        (lambda self, x: torch.nn.functional.dropout(x, 0.2, self.training) + 1, ""),
        (lambda self, x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]), ""),
        (lambda self, x: torch.nn.functional.rrelu(x) + 1, ""),
        (lambda self, x: torch.nn.functional.dropout(x, 0.2, True) + 1, "aten.dropout.default"),
        (lambda self, x: x + torch.rand_like(x), "aten.rand_like.default"),
    ],
    ids=["dropout not trained", "attention", "rrelu not trained", "dropout trained", "drawn"],
)
def test_random_operators_are_detected(forward: Callable, drawn: str) -> None:
    assert opened(model_of(forward))[2].random == drawn


def test_inplace_operators_and_regions_are_decomposed() -> None:
    def forward(self, x):
        y = self.linear(x)
        before = y * 2
        self.relu(y)
        y[:, 0] = 3
        with torch.autocast("cpu", enabled=False):
            z = y.float() + before
        return {"z": z, "parts": y.split(2, 1)}

    model, given, graph = opened(model_of(forward, "z", "parts_0", "parts_1"))
    expected = results(model, model.inputs(0))
    made = ((value, value.copy()) for _, value in graph.stream(graph.region(graph.outputs, given), given))
    assert all(np.array_equal(*pair) for pair in list(made))  # no later node wrote into one
    assert all(np.array_equal(value, expected[name].numpy()) for name, value in run(graph, given).items())
    assert run(graph.widened, given)["z"].dtype == np.float64


@pytest.mark.heavy
def test_export_failure_is_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x

    model = model_of(forward)
    pytest.importorskip("onnxscript")
    for export in (graph_of, exported_content):
        message = r"^export failed: mine to .*: GuardOnDataDependentSymNode: Could not guard"
        with pytest.raises(Fault, match=message) as caught:
            export(model, arrays(model.inputs(0)))
        assert caught.value.reason is Reason.COMPILE
        assert len(str(caught.value).splitlines()) == 1
    assert capfd.readouterr() == ("", "")


def test_export_without_onnxscript_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.torch.models.graphs.is_installed", lambda name: name != "onnxscript")
    with refusal(Unavailable, "torch_models.without_onnxscript_is_unavailable"):
        exported_content(model := open_model("gpt2"), arrays(model.inputs(0)))


@pytest.mark.heavy
@pytest.mark.parametrize("name", SMALL)
def test_onnx_model_has_names_locations_and_outputs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = open_model(name, config=SMALL[name])
    inputs = model.inputs(0)
    content = exported_content(model, arrays(inputs))
    assert capfd.readouterr() == ("", "")
    proto = onnx.load_from_string(content)
    assert [each.name for each in proto.graph.input] == list(inputs)
    assert [each.name for each in proto.graph.output] == ["logits"]
    entries = [{each.key: each.value for each in node.metadata_props} for node in proto.graph.node]
    assert all("pkg.torch.onnx.stack_trace" in each and "pkg.torch.onnx.name_scopes" in each for each in entries)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {key: each.numpy() for key, each in inputs.items()})
    expected = results(model, inputs)["logits"]
    assert np.abs(found - expected.numpy()).max() < 5e-5

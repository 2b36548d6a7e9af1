"""What a value inside a model may be off by, and what of a graph cannot be compared at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from optest.backends import backend_manager  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.errors import UsageError  # noqa: E402
from optest.models.driver import ModelDriver, descriptor_of  # noqa: E402
from optest.models.subjects import Subject, accuracy_output  # noqa: E402
from optest.onnx.graphs import Graph  # noqa: E402
from optest.onnx.whole_models import OnnxProgram  # noqa: E402
from optest.spec import BackendTarget, Fault, Reason, Status, TestCase, Verdict  # noqa: E402


def model(nodes: list[Any], *, constants: Any = (), outputs: str = "y") -> bytes:
    """A model of x with outputs of the same shape."""
    x, *made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 8)) for name in ("x", *outputs.split()))
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()]
    graph = helper.make_graph(nodes, "g", [x], made, tensors)
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    ).SerializeToString()
    return content


def softmax_of(scale: float) -> bytes:
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"]),
    ]
    mask = np.where(np.arange(8) < 4, 0, np.finfo(np.float32).min).astype(np.float32)
    return model(nodes, constants={"scale": np.float32(scale), "mask": mask})


def verdict_of(
    tmp_path: Path, content: bytes, optimized: bytes, part: str, values: str = "y", given: str = ""
) -> Verdict:
    for name, each in (("model", content), ("optimized", optimized)):
        (tmp_path / f"{name}.onnx").write_bytes(each)
    files = {"file": str(tmp_path / "model.onnx"), "optimized": str(tmp_path / "optimized.onnx")}
    runs = {"backend": "onnxruntime", "variant": "disabled"}
    case = TestCase(
        descriptor=descriptor_of("model.m"),
        inputs=(),
        name=part,
        attributes={**files, **runs, "part": part, "values": values, "given": given},
        generator="optest.models.driver:ModelValues",
        backend=BackendTarget(name="model", kind="model"),
    )
    return execute([case], ModelDriver()).verdicts[0]


@pytest.mark.parametrize(("part", "given"), [("isolated", "x"), ("accumulated", "")])
def test_huge_elements_hide_nothing_of_the_others(tmp_path: Path, part: str, given: str) -> None:
    right, wrong = softmax_of(0.5), softmax_of(0.5001)
    assert verdict_of(tmp_path / "a", right, right, part, "masked", given).status is Status.PASSED
    assert verdict_of(tmp_path / "b", right, wrong, part, "masked", given).reason is Reason.VALUE


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()


def test_small_elements_share_error_of_others() -> None:
    wide = np.array([0.0, 1e-3, 1.0, -3.0])
    narrow = (wide + np.array([0, 0, 2e-7, 0])).astype(np.float32)
    named = accuracy_output("y", narrow, wide, wide)
    worst = named.terms.worst * 2.0**-24
    assert worst[0] == worst[1] > 0
    assert worst[2] == worst[3] >= 3 * abs(float(narrow[2]) - 1.0)


def test_float32_overflow_is_infinite_and_widens_nothing() -> None:
    wide = np.array([1.0, 1e40, 2.0])
    named = accuracy_output("y", np.array([1, np.inf, np.inf], np.float32), wide, wide)
    assert named.value.values.tolist() == [1.0, np.inf, 2.0]
    assert np.all(named.terms.worst * 2.0**-24 < 1e-5)


def test_nan_everywhere_compares_nothing() -> None:
    nan = np.full(3, np.nan)
    with pytest.raises(Fault) as caught:
        accuracy_output("y", nan.astype(np.float32), nan, nan)
    assert caught.value.reason is Reason.NOTHING_COMPARED


def test_node_with_fewer_inputs_is_compared(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "x"], ["y"])]
    dropped = [nodes[0], helper.make_node("Identity", ["r"], ["y"])]
    assert verdict_of(tmp_path / "a", model(nodes), model(dropped), "isolated", "y", "r").reason is Reason.VALUE


@pytest.mark.parametrize("outputs", ["z", "y r", "r y"])
def test_another_model_has_other_outputs(outputs: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    other = [*nodes, helper.make_node("Identity", ["y"], ["z"])]
    driver = backend_manager.get("onnxruntime")
    with pytest.raises(UsageError, match="outputs"):
        str(OnnxProgram(driver, Graph(model(nodes)), "disabled", model(other, outputs=outputs)))  # type: ignore[arg-type]


def test_a_model_that_draws_numbers_is_refused() -> None:
    graph = Graph(model([helper.make_node("RandomNormalLike", ["x"], ["y"])]))
    with pytest.raises(UsageError, match="RandomNormalLike"):
        Subject(graph, {"x": np.zeros((4, 8), np.float32)})

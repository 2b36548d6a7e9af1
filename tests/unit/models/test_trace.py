"""Which values of a model a trace rejects: none of an honest one, and the one that a fault is planted in."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import toy_optimizer
from onnx import helper, numpy_helper
from onnxruntime.datasets import get_example
from planted_faults import CONFIGS, FAULTS
from safetensors.numpy import save_file
from small_models import CONTRIB, VALUES, contrib_model, renamed, weighted_model, written
from texts import refusal, says, says_exactly

from optest.api import bootstrap
from optest.backends import backend_manager
from optest.core.runner import execute
from optest.errors import UsageError
from optest.models import opened
from optest.models.commands import models_of, traced, with_part
from optest.models.driver import ModelDriver, program_of, subject_of
from optest.models.subjects import read_tensors, subject_of_file
from optest.onnx.graphs import Graph
from optest.onnx.whole_models import OnnxProgram
from optest.spec import BAD_STATUSES, Fault, Reason, Status, TestCase, Verdict

GIVEN: dict[str, Any] = {
    "config": [],
    "preset": None,
    "weights": None,
    "inputs": None,
    "seed": 0,
    "backend": "onnxruntime",
    "variant": None,
    "optimized": None,
    "torch_device": None,
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    bootstrap()
    toy_optimizer.register()
    monkeypatch.chdir(tmp_path)
    yield
    opened.subject_for.cache_clear()
    opened.program_for.cache_clear()


BOTH = ("isolated", "accumulated")


def model(what: Any, **given: Any) -> TestCase:
    return next(models_of({**GIVEN, "what": str(what), **given}))


def statuses(case: TestCase, mode: str) -> dict[str, Status]:
    cases = {named(each): each for each in traced(case, mode)}
    return {name: execute([each], ModelDriver()).verdicts[0].status for name, each in cases.items()}


def named(case: TestCase) -> str:
    """The first value of a case, or the part of the model that it is about."""
    part = case.attributes["part"]
    return case.attributes["values"].split("\n")[0] if part in ("isolated", "accumulated") else part


def rejections(case: TestCase, mode: str) -> Iterator[str]:
    """The values that fail, without the outputs of the whole model."""
    for each in traced(case, mode):
        if each.attributes["part"] != "outputs" and execute([each], ModelDriver()).verdicts[0].status in BAD_STATUSES:
            yield named(each)


def rejected(case: TestCase, mode: str) -> list[str]:
    return list(rejections(case, mode))


def verdicts_of(case: TestCase) -> list[Verdict]:
    return [execute([part], ModelDriver()).verdicts[0] for part in traced(case, "isolated")]


def passes(case: TestCase, *modes: str) -> bool:
    """Whether all cases of a trace pass: in these modes, else isolated."""
    return all({*statuses(case, mode).values()} == {Status.PASSED} for mode in modes or ("isolated",))


def saved(graph: Any, file: str = "m.onnx", **given: Any) -> TestCase:
    """The case of a model that is written to a file."""
    onnx.save(graph, file)
    return model(file, **given)


def wrong_values(graph: Any, **given: Any) -> list[str]:
    """The values that fail where this model runs in place of ``m.onnx``."""
    onnx.save(graph, "wrong.onnx")
    return rejected(model("m.onnx", optimized="wrong.onnx", **given), "isolated")


def outputs_of(case: TestCase) -> Status:
    whole = with_part(case, "outputs", "outputs", values="\n".join(subject_of(case).graph.outputs))
    return execute([whole], ModelDriver()).verdicts[0].status


@pytest.mark.torch
@pytest.mark.heavy
@pytest.mark.parametrize("name", CONFIGS)
def test_trace_names_only_node_of_planted_fault(name: str, tmp_path: Path) -> None:
    honest = model(name, config=CONFIGS[name], preset="balanced")
    assert outputs_of(honest) is Status.PASSED
    for mode in BOTH:
        found = statuses(honest, mode)
        assert {*found.values()} == {Status.PASSED}
        assert found.keys() > {"watched", "logits"}
    runtime = backend_manager.get("onnxruntime")
    file = Path(honest.attributes["file"])
    named = {**GIVEN, "what": name, "config": CONFIGS[name], "preset": "balanced"}
    state = opened.named_model(named).module.state_dict()
    for fault in (each for each in FAULTS if each.model == name):
        optimized = onnx.load_from_string(runtime.optimized(file.read_bytes(), fault.level)[0])
        values = fault.edit(optimized.graph, state)
        onnx.save(optimized, tmp_path / "faulty.onnx")
        faulty = model(file, inputs=str(file.with_name("inputs.safetensors")), optimized=str(tmp_path / "faulty.onnx"))
        assert rejected(faulty, "isolated") == list(values), fault.what
        assert next(rejections(faulty, "accumulated")) == values[0], fault.what
        opened.program_for.cache_clear()


@pytest.mark.parametrize(
    ("backend", "variant"),
    [("onnxruntime", "basic"), ("onnxruntime", "all"), ("onnx-reference", ""), ("openvino", "f32")],
)
def test_honest_backends_are_not_rejected(backend: str, variant: str, tmp_path: Path) -> None:
    case = model(written(tmp_path / "m.onnx"), backend=backend, variant=variant or None)
    assert outputs_of(case) is Status.PASSED
    for mode in BOTH:
        found = statuses(case, mode)
        assert {*found.values()} == {Status.PASSED}
        # OpenVINO does not say what it runs, so that there is nothing to hold its answers against.
        assert ("watched" in found) == (backend != "openvino")
        assert "out" in found


def test_every_value_is_traced_where_nothing_is_optimised(tmp_path: Path) -> None:
    case = model(written(tmp_path / "m.onnx"), variant="disabled")
    assert [*statuses(case, "isolated")] == [*VALUES, "watched", "outputs"]


def test_merged_nodes_are_compared_from_their_inputs(tmp_path: Path) -> None:
    def wrong_inside(changed: Any) -> None:
        changed.graph.node[3].attribute[0].s = b"none"
        renamed(changed)

    whole = written(tmp_path / "m.onnx")
    case = model(whole, optimized=str(written(tmp_path / "o.onnx", renamed)))
    assert passes(case)
    case = model(whole, optimized=str(written(tmp_path / "w.onnx", wrong_inside)))
    assert rejected(case, "isolated") == ["out"]


def test_optimiser_may_merge_equal_values(tmp_path: Path) -> None:
    """Two branches that compute the same become one: what it leaves out is no input of the nodes behind it."""

    def doubled(changed: Any) -> None:
        node = changed.graph.node.add()
        node.CopyFrom(changed.graph.node[3])
        node.output[0] = "twin"
        total = helper.make_node("Add", ["gelu", "twin"], ["total"])
        del changed.graph.node[-1]
        nodes = [*changed.graph.node[:4], node, total, *changed.graph.node[4:]]
        nodes[6].input[0] = "total"
        del changed.graph.node[:]
        changed.graph.node.extend(nodes)

    def merged(changed: Any) -> None:
        doubled(changed)
        changed.graph.node[5].input[1] = "gelu"

    def merged_wrongly(changed: Any) -> None:
        doubled(changed)
        changed.graph.node[5].input[1] = "biased"

    whole = written(tmp_path / "m.onnx", doubled)
    assert rejected(model(whole, optimized=str(written(tmp_path / "o.onnx", merged))), "isolated") == []
    assert rejected(model(whole, optimized=str(written(tmp_path / "w.onnx", merged_wrongly))), "isolated") == ["total"]


def test_constants_declared_as_inputs_may_be_merged(tmp_path: Path) -> None:
    """As files of IR version 3 have to state them, all of the ONNX model zoo's: the optimised file keeps the inputs."""
    constants = [numpy_helper.from_array(np.array([4], np.int64), name) for name in ("size", "same")]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 4])]
    inputs += [helper.make_tensor_value_info(each.name, onnx.TensorProto.INT64, [1]) for each in constants]
    value = numpy_helper.from_array(np.array([0.5], np.float32))
    nodes = [helper.make_node("ConstantOfShape", [each], [f"row {each}"], value=value) for each in ("size", "same")]
    nodes += [helper.make_node("Add", ["x", "row size"], ["sum"]), helper.make_node("Mul", ["sum", "row same"], ["y"])]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 4])
    graph = helper.make_graph(nodes, "m", inputs, [output], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3), tmp_path / "old.onnx")
    case = model(tmp_path / "old.onnx")
    assert len(program_of(case).graph._model.graph.input) == 2
    assert {*statuses(case, "isolated").values(), *statuses(case, "accumulated").values()} == {Status.PASSED}


def test_optimiser_with_other_outputs_is_refused(tmp_path: Path) -> None:
    def another(changed: Any) -> None:
        changed.graph.output.append(helper.make_tensor_value_info("gelu", 1, ["batch", 16]))

    def dropped(changed: Any) -> None:
        del changed.graph.node[-1]
        changed.graph.output[0].name = "scores"

    whole = written(tmp_path / "m.onnx")
    for change, words in (
        (lambda each: renamed(each, outputs=True), "outputs of the optimised model are other_out, expected out"),
        (another, "outputs of the optimised model are out, gelu, expected out"),
        (dropped, "outputs of the optimised model are scores, expected out"),
    ):
        case = model(whole, optimized=str(written(tmp_path / "o.onnx", change)))
        with pytest.raises(UsageError, match=words):
            list(traced(case, "isolated"))
        opened.program_for.cache_clear()


@pytest.mark.parametrize("is_shown", [True, False])
def test_outputs_wrong_while_each_node_is_right(
    is_shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy_optimizer.Unfaithful, "shows_its_graph", is_shown)
    case = model(written(tmp_path / "m.onnx"), backend="unfaithful", variant="disabled")
    for mode in BOTH:
        wrong = [name for name, status in statuses(case, mode).items() if status is not Status.PASSED]
        assert wrong == ["watched", "outputs"][not is_shown :]


def test_bits_that_threads_change_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = OnnxProgram.outputs

    def by_threads(self: OnnxProgram, feeds: Any) -> Any:
        return {name: np.nextafter(value, np.float32(9)) for name, value in right(self, feeds).items()}

    monkeypatch.setattr(OnnxProgram, "outputs", by_threads)
    case = model(written(tmp_path / "m.onnx"), variant="disabled")
    assert passes(case)
    (watched,) = [each for each in traced(case, "isolated") if each.attributes["part"] == "watched"]
    checks = {each.name: each.detail for each in execute([watched], ModelDriver()).verdicts[0].checks}
    assert checks["threads"].startswith("4 output elements differ in bits"), checks


def test_accumulated_shows_what_comes_of_a_fault(tmp_path: Path) -> None:
    def by_erf(changed: Any) -> None:
        changed.graph.node[3].attribute[0].s = b"none"

    case = model(written(tmp_path / "m.onnx"), optimized=str(written(tmp_path / "o.onnx", by_erf)))
    assert rejected(case, "isolated") == ["gelu"]
    assert rejected(case, "accumulated") == ["gelu", "scores", "out"]


def test_nodes_are_run_once_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: OnnxProgram, region: Any, given: Any) -> Any:
            made.append(region.outputs[0])
            return original(self, region, given)

        return call

    monkeypatch.setattr(OnnxProgram, "run_region", counted(OnnxProgram.run_region))
    case = model(written(tmp_path / "m.onnx"), variant="disabled")
    assert rejected(case, "accumulated") == []
    assert made == [*VALUES]


def test_refused_node_does_not_affect_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of nodes are loaded before their turn."""
    runtime = type(backend_manager.get("onnxruntime"))
    loaded = runtime.loaded_nodes

    def refusing(self: Any, content: bytes, variant: str) -> Any:
        if b"Gelu" in content:
            raise Fault(Reason.UNSUPPORTED, "no kernel")
        return loaded(self, content, variant)

    monkeypatch.setattr(runtime, "loaded_nodes", refusing)
    found = statuses(model(written(tmp_path / "m.onnx"), variant="disabled"), "isolated")
    assert [name for name, status in found.items() if status is not Status.PASSED] == ["gelu", "watched"]


def test_a_value_is_made_of_the_values_given(tmp_path: Path) -> None:
    """By the nodes between, whatever is loaded before its turn."""
    case = model(written(tmp_path / "m.onnx"), variant="disabled")
    program, subject = program_of(case), subject_of(case)
    given = {name: subject.activation(name) for name in ("norm", "product")}
    program.run_region(program.graph.region(["norm"], ["x"]), subject.feeds)
    made = [program.run_region(program.graph.region(["biased"], [name]), given)["biased"] for name in given]
    np.testing.assert_allclose(made[0], made[1], rtol=1e-5, atol=1e-6)


def test_reference_is_float64_with_error_of_sums(tmp_path: Path) -> None:
    graph = Graph(written(tmp_path / "m.onnx").read_bytes())
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 8))}
    region = graph.region(["out"], feeds)
    wide, perturbed = (dict(each.stream(region, feeds)) for each in (graph.widened, graph.perturbed))
    assert {value.dtype for value in wide.values()} == {np.dtype(np.float64)}
    exact = 0.5 * wide["biased"] * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide["biased"] + 0.044715 * wide["biased"] ** 3)))
    np.testing.assert_allclose(wide["gelu"], exact, rtol=1e-14)
    np.testing.assert_array_equal(wide["norm"], perturbed["norm"])
    errors = np.abs(perturbed["product"] - wide["product"])
    assert 0 < errors.max() < 1e-5
    assert errors.max() > 2.0**-24 * np.abs(wide["product"]).max()


@pytest.mark.parametrize(("is_trained", "drawn"), [(False, ""), (True, "Dropout")])
def test_dropout_draws_where_the_model_is_trained(is_trained: bool, drawn: str) -> None:
    node = onnx.helper.make_node("Dropout", ["x", "", "trained"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy")
    constants = [onnx.helper.make_tensor("trained", onnx.TensorProto.BOOL, [], [is_trained])]
    content = onnx.helper.make_model(onnx.helper.make_graph([node], "m", [x], [y], constants)).SerializeToString()
    assert Graph(content).random == drawn


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_how_far_good_implementations_of_gelu_are_off(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's tanh is off by some ulp, which is all that is left where 1 + tanh(x) is nearly 0."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4096]) for name in "xy")
    node = helper.make_node("Gelu", ["x"], ["y"], approximate=form)
    opset = [onnx.helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(helper.make_graph([node], "m", [x], [y]), opset_imports=opset, ir_version=10), "m.onnx")
    save_file({"x": np.linspace(-7, 7, 4096, dtype=np.float32)}, "x.safetensors")
    case = model("m.onnx", inputs="x.safetensors")
    assert rejected(case, "isolated") == []
    right = OnnxProgram.run_region
    monkeypatch.setattr(
        OnnxProgram, "run_region", lambda *given: {k: v + np.float32(3e-6) for k, v in right(*given).items()}
    )
    assert rejected(case, "isolated") == ["y"]


WEIGHTS = ("rows", "turned", "gain")


def folded(changed: Any, values: dict[str, np.ndarray], wrong: str = "") -> None:
    """Put the values of weights in place of the nodes that compute them, one of them wrong."""
    nodes = [each for each in changed.graph.node if each.output[0] not in values]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    for name, value in values.items():
        changed.graph.initializer.append(numpy_helper.from_array(value[::-1].copy() if name == wrong else value, name))


def test_values_of_weights_are_compared() -> None:
    onnx.save(weighted_model(), "m.onnx")
    case = model("m.onnx", variant="disabled")
    assert statuses(case, "isolated") == dict.fromkeys(
        (*WEIGHTS, "product", "scaled", "out", "watched", "outputs"), Status.PASSED
    )
    values = {name: subject_of(case).activation(name) for name in WEIGHTS}
    for name, attribute, number in (("turned", "perm", 1), ("rows", "axis", 0)):
        changed = weighted_model()
        stated = changed.graph.node[number].attribute[0]
        assert stated.name == attribute
        stated.CopyFrom(helper.make_attribute(attribute, [0, 1] if attribute == "perm" else 1))
        onnx.save(changed, f"{name}.onnx")
        assert rejected(model("m.onnx", optimized=f"{name}.onnx"), "isolated") == [name, "product"]
    for wrong, names in (("", []), ("turned", ["turned", "product"]), ("gain", ["gain", "scaled"])):
        changed = weighted_model()
        folded(changed, values, wrong)
        onnx.save(changed, f"folded_{wrong}.onnx")
        assert rejected(model("m.onnx", optimized=f"folded_{wrong}.onnx"), "isolated") == names


def test_weights_changed_together_with_their_readers_are_right() -> None:
    """A scale that an optimizer takes into the weight, which keeps its name."""
    onnx.save(weighted_model(), "m.onnx")
    subject = subject_of(model("m.onnx", variant="disabled"))
    turned, gain = (subject.activation(name) for name in ("turned", "gain"))
    changed = weighted_model()
    folded(changed, {"rows": turned, "turned": turned * gain, "gain": gain})
    del changed.graph.node[1]
    changed.graph.node[0].output[0] = "scaled"
    onnx.save(changed, "fused.onnx")
    assert passes(model("m.onnx", optimized="fused.onnx"))


def numbered(changed: Any, first: int = 0) -> None:
    """Give all values inside new names, or with ``first`` each the name of the value behind it."""
    inside = [name for node in changed.graph.node for name in node.output if name != "out"]
    names = {name: [*inside, "new"][place + 1] if first else f"v{place}" for place, name in enumerate(inside)}
    for node in changed.graph.node:
        node.input[:] = [names.get(each, each) for each in node.input]
        node.output[:] = [names.get(each, each) for each in node.output]


@pytest.mark.parametrize("first", [0, 1])
def test_values_with_other_names_are_matched_by_structure(first: int, tmp_path: Path) -> None:
    def wrong(changed: Any) -> None:
        changed.graph.node[3].attribute[0].s = b"none"
        numbered(changed, first)

    whole = written(tmp_path / "m.onnx")
    right = model(whole, optimized=str(written(tmp_path / "o.onnx", lambda each: numbered(each, first))))
    assert statuses(right, "isolated") == dict.fromkeys((*VALUES, "watched", "outputs"), Status.PASSED)
    found = statuses(model(whole, optimized=str(written(tmp_path / "w.onnx", wrong))), "isolated")
    assert [name for name, status in found.items() if status is Status.PASSED] == [*VALUES[:3], "watched"]
    assert [name for name, status in found.items() if status is Status.FAILED] == ["out", "outputs"]


def test_renamed_folded_weights_are_matched_by_content() -> None:
    onnx.save(weighted_model(), "m.onnx")
    subject = subject_of(model("m.onnx", variant="disabled"))
    changed = weighted_model()
    folded(changed, {name: subject.activation(name) for name in WEIGHTS})
    numbered(changed)
    for each in changed.graph.initializer:
        for node in changed.graph.node:
            node.input[:] = [f"w_{name}" if name == each.name else name for name in node.input]
        each.name = f"w_{each.name}"
    onnx.save(changed, "other.onnx")
    assert {"product", "scaled"} <= statuses(model("m.onnx", optimized="other.onnx"), "isolated").keys()


@pytest.mark.parametrize("file", ["x.npz", "x.npy", "x.pb"])
def test_inputs_are_read_from_numpy_and_onnx(file: str, tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    np.savez("x.npz", x=x)
    np.save("x.npy", x)
    Path("x.pb").write_bytes(numpy_helper.from_array(x, "any").SerializeToString())
    case = model(written(tmp_path / "m.onnx"), inputs=file)
    np.testing.assert_array_equal(subject_of(case).feeds["x"], x)


@pytest.mark.parametrize("file", ["x.npz", "X.NPY"])
def test_inputs_may_have_any_byte_order(file: str, tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    stored = np.asfortranarray(x).astype(">f4")
    np.savez("x.npz", x=stored)
    with open("X.NPY", "wb") as opened:
        np.save(opened, stored)
    found = subject_of(model(written(tmp_path / "m.onnx"), inputs=file)).feeds["x"]
    assert found.dtype == np.float32
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, x)


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }"


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("{", "{{"),
        HEADER.replace("(3, 8)", "(3, -8)"),
        HEADER.replace("(3, 8)", "(9999999999999, 8)"),
        HEADER.replace("(3, 8)", "(999999999999999999999, 8)"),
    ],
)
def test_inputs_with_a_damaged_header_are_refused(kind: str, header: str, tmp_path: Path) -> None:
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(96)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(UsageError, match=f"x.{kind} cannot be read"):
        read_tensors(tmp_path / f"x.{kind}", ["x"])


def test_inputs_of_another_format_are_named_so(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(bytes(range(200)))
    with refusal(UsageError, "models.pt_is_no_file"):
        read_tensors(tmp_path / "x.pt", ["x"])


def test_inputs_of_an_empty_archive_are_named_so() -> None:
    np.savez("x.npz")
    with refusal(UsageError, "models.npz_has_no_tensors"):
        read_tensors(Path("x.npz"), ["x", "y"])


def test_an_input_without_a_rank_is_named() -> None:
    changed = small_graph([helper.make_node("Add", ["a", "x"], ["y"])], {"a": [3], "x": [3]}, {"y": 1})
    changed.graph.input[1].type.tensor_type.ClearField("shape")
    onnx.save(changed, "m.onnx")
    with pytest.raises(UsageError, match=r"m\.onnx: input x has no shape; .*sizes"):
        subject_of_file("m.onnx", "", "", 0)


@pytest.mark.parametrize(
    ("sizes", "given", "config", "message"),
    [
        ([[3, 8]], [(3, 7)], "", "x in x.npz is float32 [3, 7], expected float32 [3, 8]"),
        ([[3, 8]], [(3,)], "", "x in x.npz is float32 [3], expected float32 [3, 8]"),
        ([["n", 8]], [(5, 8)], "", ""),
        ([["n", 8]], [(5, 8)], "n=4", "x in x.npz is float32 [5, 8], expected float32 [4, 8]"),
        ([["n", "n"]], [(5, 8)], "", "x in x.npz is float32 [5, 8], expected float32 [5, 5]"),
        ([["n", 8], ["n", 8]], [(5, 8), (6, 8)], "", "y in x.npz is float32 [6, 8], expected float32 [5, 8]"),
        ([["", 8], ["", 8]], [(5, 8), (1, 8)], "", ""),
        ([[]], [(1,)], "", "x in x.npz is float32 [1], expected float32 []"),
    ],
)
def test_input_sizes_must_fit_model(sizes: Any, given: Any, config: str, message: str) -> None:
    names = [name for name, _ in zip("xy", sizes, strict=False)]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in zip(names, sizes, strict=True)]
    total = helper.make_node("Sum", names, ["out"])
    graph = helper.make_graph([total], "g", infos, [helper.make_tensor_value_info("out", 1, [None] * len(sizes[0]))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "m.onnx")
    np.savez("x.npz", **{name: np.ones(shape, np.float32) for name, shape in zip(names, given, strict=True)})
    if message:
        with pytest.raises(UsageError, match=re.escape(message)):
            subject_of_file("m.onnx", "x.npz", config, 0)
    else:
        assert [each.shape for each in subject_of_file("m.onnx", "x.npz", config, 0).feeds.values()] == given


def language_model(past: str, tokens: str, total: str) -> Any:
    """As exporters write it: keys of the past and of the tokens, and a mask for both."""
    sizes = {"mask": ["batch_size", total], "past": ["batch_size", past, 4], "x": ["batch_size", tokens, 4]}
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["keys"], axis=1),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Mul", ["keys", "wide"], ["out"]),
    ]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in sizes.items()]
    out = helper.make_tensor_value_info("out", 1, ["batch_size", "all", 4])
    last = numpy_helper.from_array(np.array([2]), "last")
    graph = helper.make_graph(nodes, "g", infos, [out], [last])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("past", "tokens", "total", "config", "sizes"),
    [
        ("past_sequence_length", "sequence_length", "total_sequence_length", "", (16, 16, 32)),
        ("past_sequence_length", "sequence_length", "total_sequence_length", "sequence_length=3", (16, 3, 19)),
        ("past_sequence_length", "sequence_length", "past_sequence_length + sequence_length", "", (16, 16, 32)),
        ("past_sequence_length", 1, "past_sequence_length + 1", "past_sequence_length=5", (5, 1, 6)),
    ],
)
def test_sizes_of_a_language_model_fit(past: str, tokens: Any, total: str, config: str, sizes: Any) -> None:
    onnx.save(language_model(past, tokens, total), "m.onnx")
    feeds = subject_of_file("m.onnx", "", config, 0).feeds
    assert tuple(feeds[name].shape[1] for name in ("past", "x", "mask")) == sizes
    stated = ",".join(filter(None, [config, f"{total}=7" if total.startswith("total") else "batch_size=2"]))
    assert subject_of_file("m.onnx", "", stated, 0).feeds["mask"].shape in [(1, 7), (2, sizes[2])]


def test_sizes_that_do_not_fit_are_bad_case() -> None:
    onnx.save(language_model("past_sequence_length", "sequence_length", "both"), "m.onnx")
    given = model("m.onnx", variant="disabled", config=["both=5"])
    (case,) = (each for each in traced(given, "isolated") if named(each) == "out")
    verdict = execute([case], ModelDriver()).verdicts[0]
    assert verdict.reason is Reason.BAD_CASE
    assert "--config sets batch_size, both, past_sequence_length, sequence_length: Mul" in verdict.message


@pytest.mark.parametrize("accuracy_level", [0, 4])
@pytest.mark.parametrize("seed", [2, 6, 9])
def test_one_long_sum_of_packed_weights_passes(seed: int, accuracy_level: int) -> None:
    """Of which the reference's own error is nearly 0 by chance: it says nothing of sums in another order."""
    assert passes(saved(long_sum(seed, accuracy_level), seed=seed))
    changed = long_sum(seed, accuracy_level)
    scales = numpy_helper.to_array(changed.graph.initializer[1]).copy()
    scales[-1] = 0
    changed.graph.initializer[1].CopyFrom(numpy_helper.from_array(scales, "scales"))
    assert "y" in wrong_values(changed, seed=seed)


@pytest.mark.parametrize(
    ("operator", "attributes", "scales", "shape", "seed"),
    [
        ("ReduceSumSquare", {}, (), [1, 20000], 0),
        ("LayerNormalization", {}, ("scale",), [1, 20000], 2),
        ("InstanceNormalization", {}, ("scale", "bias"), [1, 1, 20000], 2),
        ("Gemm", {"alpha": -0.125, "transB": 1}, ("weights",), [1, 20000], 0),
    ],
)
def test_one_long_row_passes(operator: str, attributes: Any, scales: Any, shape: Any, seed: int) -> None:
    """The backend adds it up in another order than the reference, whose own error may be smaller by chance."""
    sizes = {"scale": shape[-1] if operator.startswith("Layer") else 1, "bias": 1, "weights": (1, shape[-1])}
    node = helper.make_node(operator, ["x", *scales], ["y"], **attributes)
    infos = [helper.make_tensor_value_info(name, 1, [None] * len(shape)) for name in "xy"]
    infos[0] = helper.make_tensor_value_info("x", 1, shape)
    values = {name: np.ones(sizes[name], np.float32) * (name != "bias") for name in scales}
    tensors = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([node], "row", infos[:1], infos[1:], tensors)
    assert passes(saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), seed=seed))


@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("attributes", [{}, {"reduction": "sum"}, {"ignore_index": 1}, {"reduction": "none"}])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_one_long_loss_passes(operator: str, attributes: Any, is_weighted: bool) -> None:
    """The backend adds up losses, and weights, in another order than the reference; of each class the loss is another,
    so that a wrong weight changes the mean."""
    rng = np.random.default_rng(0)
    constants = {"t": rng.integers(0, 3, (3, 4000)), "w": np.array([0.1, 0.7, 0.4], np.float32)}
    node = helper.make_node(operator, ["x", "t", *["w"] * is_weighted], ["y"], **attributes)
    named = {name: constants[name] for name in node.input[1:]}
    rank = 2 if attributes.get("reduction") == "none" else 0
    onnx.save(small_graph([node], {"x": [3, 3, 4000]}, {"y": rank}, named), "m.onnx")
    for seed in range(3):
        given = -rng.random((3, 3, 4000)) - np.arange(3)[:, None]
        np.savez("x.npz", x=given.astype(np.float32))
        case = model("m.onnx", inputs="x.npz")
        assert passes(case), seed
        opened.subject_for.cache_clear()
    if is_weighted:
        named["w"] = np.array([0.1, 0.7, 0.4 * (1 + 1e-3)], np.float32)
        assert wrong_values(small_graph([node], {"x": [3, 3, 4000]}, {"y": rank}, named), inputs="x.npz") == ["y"]


def long_sum(seed: int, accuracy_level: int) -> Any:
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (1, 128, 16)).astype(np.uint8)
    tensors = {"packed": packed, "scales": (rng.random(128) + 0.5).astype(np.float32)}
    sizes = {"K": 4096, "N": 1, "block_size": 32, "bits": 4, "accuracy_level": accuracy_level}
    node = helper.make_node("MatMulNBits", ["x", *tensors], ["y"], domain="com.microsoft", **sizes)
    infos = ([helper.make_tensor_value_info(name, 1, [1, size])] for name, size in (("x", 4096), ("y", 1)))
    graph = helper.make_graph([node], "sum", *infos, [numpy_helper.from_array(v, k) for k, v in tensors.items()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_wrong_shapes_inside_a_file_are_not_used() -> None:
    """ONNX Runtime GenAI states a scalar for a constant of one element."""
    changed = contrib_model("MatMulNBits")
    changed.graph.node[1].input[1] = "half"
    half = numpy_helper.from_array(np.array([0.5], np.float32))
    changed.graph.node.insert(0, helper.make_node("Constant", [], ["half"], value=half))
    changed.graph.value_info.append(helper.make_tensor_value_info("half", 1, []))
    assert passes(saved(changed))
    weights = next(each for each in changed.graph.initializer if each.name == "scales")
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(1.25), "scales"))
    assert "y" in wrong_values(changed)


def test_constants_of_old_file_need_no_inputs(tmp_path: Path) -> None:
    """As in mul_1.onnx of ONNX Runtime, of IR version 3."""

    def old(changed: Any) -> None:
        changed.ir_version = 3

    case = model(written(tmp_path / "m.onnx", old), variant="disabled")
    assert passes(case)


def small_graph(nodes: Any, inputs: Any, outputs: Any, constants: Any = (), opset: int = 17) -> Any:
    """A model of float32 inputs by their shapes, and of outputs by their ranks, None for a sequence."""
    given = [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()]
    kinds = {name: helper.make_tensor_type_proto(1, [None] * (rank or 0)) for name, rank in outputs.items()}
    kinds |= {name: helper.make_sequence_type_proto(kinds[name]) for name, rank in outputs.items() if rank is None}
    made = [helper.make_value_info(name, kind) for name, kind in kinds.items()]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()]
    graph = helper.make_graph(nodes, "g", given, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


OF_LSTM = {"w": np.full((1, 8, 3), 0.3, np.float32), "r": np.full((1, 8, 2), 0.2, np.float32)}
LENGTHS = {"lengths": np.array([2], np.int32)}


@pytest.mark.parametrize(
    ("operator", "more", "attributes", "what"),
    [
        ("LSTM", (), {"clip": 0.3}, "clip"),
        ("LSTM", (), {"activations": ["Sigmoid", "Relu", "Tanh"]}, "activations Sigmoid, Relu, Tanh"),
        ("LSTM", ("", "lengths"), {}, "sequence_lens"),
        ("LSTM", (), {"activations": ["Sigmoid", "Tanh", "Tanh"]}, ""),
        ("MaxPool", (), {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_LOWER"}, "auto_pad=SAME_LOWER"),
        ("MaxPool", (), {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"}, ""),
        ("LSTM", (), {"input_forget": 1}, "input_forget=1"),
        ("LpNormalization", (), {"p": 1, "axis": -1}, "p=1"),
        ("LpNormalization", (), {"p": 2}, ""),
        ("MaxPool", ("indices",), {"kernel_shape": [2]}, "indices and steps of 1"),
        ("MaxPool", ("indices",), {"kernel_shape": [2], "strides": [2]}, ""),
        ("TopK", (), {"sorted": 0}, "sorted=0"),
        ("TopK", (), {"sorted": 1}, ""),
    ],
)
def test_what_the_evaluator_leaves_out_has_no_reference(operator: str, more: Any, attributes: Any, what: str) -> None:
    own = {"LSTM": ["w", "r"], "TopK": ["two"]}.get(operator, [])
    attributes = {**attributes, **({"hidden_size": 2} if operator == "LSTM" else {})}
    has_indices = operator == "TopK" or "indices" in more
    inputs = ["x", *own, *(each for each in more if each != "indices")]
    node = helper.make_node(operator, inputs, ["y", "i"][: 1 + has_indices], **attributes)
    constants = {**OF_LSTM, **LENGTHS, "two": np.array([2])}
    used = {name: value for name, value in constants.items() if name in node.input}
    rank = 4 if operator == "LSTM" else 3
    onnx.save(small_graph([node], {"x": [5, 1, 3]}, {"y": rank}, used), "m.onnx")
    verdicts = verdicts_of(model("m.onnx"))
    assert {each.status for each in verdicts} == {Status.SKIPPED if what else Status.PASSED}
    if what:
        assert says(verdicts[0].message, "models.no_reference_for_with", operator=operator, what=what)


def loop(scanned: Sequence[str], *, turn: str = "Sin") -> Any:
    """Three trips without a condition; of each trip the value itself, a row of it or a number are kept."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node(turn, ["before"], ["after"]),
            helper.make_node("Identity", ["after"], ["whole"]),
            helper.make_node("ReduceSum", ["after", "rows"], ["row"], keepdims=0),
            helper.make_node("ReduceSum", ["after"], ["number"], keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", 1, None),
        ],
        [
            helper.make_tensor_value_info("still", onnx.TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, 1, None) for name in ("after", *scanned)),
        ],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y", *(f"all_{name}" for name in scanned)], body=body)
    ranks = {"whole": 3, "row": 2, "number": 1}
    outputs = {"y": 2, **{f"all_{name}": ranks[name] for name in scanned}}
    return small_graph([node], {"x": [2, 4]}, outputs, {"trips": np.array(3), "rows": np.array([0])})


@pytest.mark.parametrize("scanned", [(), ("whole",), ("row", "number")])
def test_loop_without_condition_makes_all_trips(scanned: Any) -> None:
    assert passes(saved(loop(scanned)))
    assert wrong_values(loop(scanned, turn="Identity")) == ["y"]


RATIOS = {"scales": np.array([1, 1, 1.5, 0.6], np.float32)}
SIZES = {"sizes": np.array([1, 2, 9, 4])}


def _resize(mode: str, place: str) -> Any:
    return {"mode": mode, "coordinate_transformation_mode": place}


HONEST = {
    "aligned corners": ("Resize", ["x", "", "scales"], _resize("linear", "align_corners"), RATIOS, 13),
    "aligned corners, nearest": ("Resize", ["x", "", "scales"], _resize("nearest", "align_corners"), RATIOS, 13),
    "sizes": ("Resize", ["x", "", "", "sizes"], _resize("cubic", "half_pixel"), SIZES, 13),
    "DFT of powers of two": ("DFT", ["x"], {"axis": 2}, {}, 17),
}


@pytest.mark.parametrize("name", HONEST)
def test_rules_that_the_evaluator_gets_wrong(name: str) -> None:
    operator, inputs, attributes, constants, opset = HONEST[name]
    node = helper.make_node(operator, inputs, ["y"], **attributes)
    shapes = {"x": [1, 2, 64, 1] if operator == "DFT" else [1, 2, 6, 7]}
    onnx.save(small_graph([node], shapes, {"y": 4}, constants, opset), "m.onnx")
    for seed in range(3):
        assert passes(model("m.onnx", seed=seed))


@pytest.mark.parametrize(
    ("votes", "labels", "is_skipped"),
    [([0, 0], 2, True), ([1, 1], 2, True), ([0, 1], 2, True), ([0, 0, 1, 1], 2, False), ([0, 1, 2, 2], 3, False)],
)
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_ambiguous_votes_of_leaves_have_no_reference(votes: Any, labels: int, is_skipped: bool, transform: str) -> None:
    """ONNX does not say what the score of the other class is, nor which of them is the label."""
    branches = {"nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.0, 0.0, 0.0]}
    places = {"truenodeids": [1, 0, 0], "falsenodeids": [2, 0, 0], "nodeids": [0, 1, 2]}
    branches |= {f"nodes_{name}": places.get(name, [0] * 3) for name in (*places, "treeids", "featureids")}
    leaves = {"treeids": [0] * len(votes), "nodeids": [1, 2, 1, 2][: len(votes)], "ids": votes}
    leaves["weights"] = [0.3, 0.1, 0.6, 0.8][: len(votes)]
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "y"],
        domain="ai.onnx.ml",
        post_transform=transform,
        classlabels_int64s=[*range(labels)],
        **branches,
        **{f"class_{name}": each for name, each in leaves.items()},
    )
    changed = small_graph([node], {"x": [4, 2]}, {"y": 2})
    changed.opset_import.add(domain="ai.onnx.ml", version=3)
    onnx.save(changed, "m.onnx")
    verdicts = verdicts_of(model("m.onnx"))
    assert {each.status for each in verdicts} == {Status.SKIPPED if is_skipped else Status.PASSED}
    if is_skipped:
        assert says(verdicts[0].message, "models.no_reference_for_treeensembleclassifier")


def test_nearest_elements_that_rounding_decides_have_no_reference() -> None:
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], nearest_mode="floor", **_resize("nearest", "asymmetric")
    )
    scales = np.array([1, 1, 1 / 3, 1 / 3], np.float32)
    onnx.save(small_graph([node], {"x": [1, 1, 9, 9]}, {"y": 4}, {"scales": scales}), "m.onnx")
    assert statuses(model("m.onnx"), "isolated")["y"] is Status.SKIPPED


def test_a_resize_to_sizes_computed_in_the_model() -> None:
    nodes = [helper.make_node("Shape", ["like"], ["sizes"]), helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])]
    assert passes(saved(small_graph(nodes, {"x": [1, 1, 4, 4], "like": [1, 1, "h", "w"]}, {"y": 4})), *BOTH)


@pytest.mark.parametrize("seed", [4, 7])
def test_recurrent_layers_may_sum_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = {"w": (2, 32, 8), "r": (2, 32, 32), "b": (2, 64)}
    constants = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in weights.items()}
    node = helper.make_node("RNN", ["x", *weights], ["y", "h"], hidden_size=32, direction="bidirectional")
    assert passes(saved(small_graph([node], {"x": [30, 2, 8]}, {"y": 4, "h": 3}, constants), seed=seed))
    constants["w"][0, 0] += 1e-4
    assert wrong_values(small_graph([node], {"x": [30, 2, 8]}, {"y": 4, "h": 3}, constants), seed=seed) == ["y"]


@pytest.mark.parametrize("operator", ["ConstantOfShape", "HannWindow"])
def test_a_dtype_that_is_the_default_is_widened(operator: str) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Squeeze", ["shape"], ["size"]),
        helper.make_node(operator, ["shape" if operator == "ConstantOfShape" else "size"], ["made"]),
        helper.make_node("Add", ["x", "made"], ["y"]),
    ]
    assert passes(saved(small_graph(nodes, {"x": ["n"]}, {"y": 1})), *BOTH)


def test_sizes_that_follow_from_elements() -> None:
    nodes = [helper.make_node("Unique", ["x"], ["u"]), helper.make_node("Relu", ["x"], ["y"])]
    onnx.save(small_graph(nodes, {"x": [4]}, {"u": 1, "y": 1}), "m.onnx")
    np.save("x.npy", np.array([1, 2, 1, 2], np.float32))
    assert passes(model("m.onnx", inputs="x.npy"))


def test_values_without_elements_are_skipped() -> None:
    nodes = [
        helper.make_node("Slice", ["x", "end", "end"], ["none"]),
        helper.make_node("Concat", ["none", "x"], ["y"], axis=0),
    ]
    found = statuses(
        saved(small_graph(nodes, {"x": [4, 2]}, {"y": 2}, {"end": np.array([4])}), variant="disabled"), "isolated"
    )
    assert found == {"none": Status.SKIPPED, "y": Status.PASSED, "watched": Status.PASSED, "outputs": Status.PASSED}
    onnx.save(small_graph([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 2]}, {"y": 2}), "empty.onnx")
    np.save("empty.npy", np.ones((0, 2), np.float32))
    verdicts = verdicts_of(model("empty.onnx", inputs="empty.npy"))
    assert {(each.status, each.message) for each in verdicts} == {
        (Status.SKIPPED, "nothing to compare: y without elements")
    }


def test_independent_values_are_compared_without_other_reference() -> None:
    nodes = [
        helper.make_node("GlobalLpPool", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Sin", ["x"], ["c"]),
    ]
    found = statuses(saved(small_graph(nodes, {"x": [1, 2, 3]}, {"b": 3, "c": 3}), variant="disabled"), "accumulated")
    skipped = dict.fromkeys(("a", "b", "watched", "outputs"), Status.SKIPPED)
    assert found == {**skipped, "c": Status.PASSED, "watched": Status.PASSED}


def test_values_after_refused_node_have_its_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = OnnxProgram.run_region

    def refuse(self: Any, region: Any, given: Any) -> Any:
        if region.outputs == ("biased",):
            raise Fault(Reason.RAISED, "no Add today")
        return made(self, region, given)

    monkeypatch.setattr(OnnxProgram, "run_region", refuse)
    cases = traced(model(written(tmp_path / "m.onnx"), variant="disabled"), "accumulated")
    verdicts = {named(each): execute([each], ModelDriver()).verdicts[0] for each in cases}
    for name in ("biased", "gelu", "scores", "out", "watched"):
        assert verdicts[name].message == "no Add today"


def test_values_made_of_a_sequence_are_compared() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "one"], ["row"]),
        helper.make_node("Exp", ["row"], ["y"]),
    ]
    assert passes(saved(small_graph(nodes, {"x": [3, 2]}, {"y": 2, "s": None}, {"one": np.array(1)})), *BOTH)


@pytest.mark.parametrize("has_element", [True, False])
def test_values_made_of_an_optional(has_element: bool) -> None:
    kind = {} if has_element else {"type": helper.make_tensor_type_proto(1, [3])}
    nodes = [
        helper.make_node("Optional", ["x"] * has_element, ["o"], **kind),
        helper.make_node("OptionalHasElement", ["o"], ["known"]),
        helper.make_node("OptionalGetElement", ["o"], ["element"]),
        helper.make_node("Where", ["known", "element", "x"], ["y"]),
    ]
    chosen = nodes if has_element else [*nodes[:2], helper.make_node("Where", ["known", "x", "x"], ["y"])]
    onnx.save(small_graph(chosen, {"x": [3]}, {"y": 1}, (), 18), "m.onnx")
    verdicts = verdicts_of(model("m.onnx"))
    assert verdicts[-1].status is (Status.PASSED if has_element else Status.SKIPPED)
    assert not BAD_STATUSES.intersection(each.status for each in verdicts)
    if not has_element:
        assert says_exactly(verdicts[-1].message, "models.no_reference_for_optional")


@pytest.mark.parametrize("variant", ["all", "disabled"])
def test_outputs_may_be_computed_from_constants(variant: str) -> None:
    nodes = [helper.make_node("Neg", ["c"], ["k"]), helper.make_node("Relu", ["x"], ["y"])]
    onnx.save(small_graph(nodes, {"x": [4]}, {"k": 1, "y": 1}, {"c": np.ones(2, np.float32)}), "m.onnx")
    for mode in BOTH:
        found = statuses(model("m.onnx", variant=variant), mode)
        assert {*found.values()} == {Status.PASSED}
        assert found.keys() >= {"y", "watched", "outputs"}


def test_what_onnx_demands_and_no_runtime(tmp_path: Path) -> None:
    def change(changed: Any) -> None:
        changed.graph.name = ""
        changed.graph.output[0].type.tensor_type.ClearField("shape")

    found = statuses(model(written(tmp_path / "m.onnx", change), variant="disabled"), "isolated")
    assert found == dict.fromkeys((*VALUES, "watched", "outputs"), Status.PASSED)


def test_a_size_of_minus_one_is_open(tmp_path: Path) -> None:
    def change(changed: Any) -> None:
        changed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1

    np.save("x.npy", np.ones((5, 8), np.float32))
    for inputs in ("", "x.npy"):
        case = model(written(tmp_path / "m.onnx", change), variant="disabled", inputs=inputs)
        assert passes(case)


def test_values_of_dtype_without_numpy_are_skipped() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants = {"scale": np.float32(0.3), "zero": np.zeros((), ml_dtypes.int4)}
    found = statuses(saved(small_graph(nodes, {"x": [4]}, {"y": 1}, constants, 21), variant="disabled"), "isolated")
    assert found == {**dict.fromkeys(("q", "y", "watched"), Status.SKIPPED), "outputs": Status.PASSED}


def test_hardmax_of_old_opsets_flattens_axes() -> None:
    assert passes(saved(small_graph([helper.make_node("Hardmax", ["x"], ["y"])], {"x": [2, 3, 4]}, {"y": 3}, (), 11)))


def test_losses_of_logits_far_apart_are_finite() -> None:
    """exp of a gap above 745 is 0 in float64, whose logarithm is infinite."""
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "target"], ["y", "likelihoods"], reduction="none")
    constants = {"target": np.array([1, 1]), "gap": np.array([[1000.0, 0, 0], [1, 2, 3]], np.float32)}
    nodes = [helper.make_node("Add", ["noise", "gap"], ["x"]), node]
    assert passes(saved(small_graph(nodes, {"noise": [2, 3]}, {"y": 1, "likelihoods": 2}, constants)))


def test_outputs_may_be_inputs_and_constants() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    outputs = {"x": 1, "y": 1, "c": 1}
    assert passes(saved(small_graph([node], {"x": [4]}, outputs, {"c": np.ones(2, np.float32)})))
    onnx.save(small_graph([node], {"x": [4]}, outputs, {"c": np.zeros(2, np.float32)}), "wrong.onnx")
    assert statuses(model("m.onnx", optimized="wrong.onnx"), "isolated")["outputs"] is Status.FAILED


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASSED), (1.01, Status.FAILED)])
def test_sums_of_float16_are_held_in_float32(factor: float, status: Status) -> None:
    weights = np.random.default_rng(0).standard_normal((512, 8))
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("MatMul", ["half", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    for name, value in (("m", weights), ("scaled", weights * factor)):
        onnx.save(small_graph(nodes, {"x": [4, 512]}, {"y": 2}, {"w": value.astype(np.float16)}), f"{name}.onnx")
    case = model("m.onnx", optimized="scaled.onnx")
    assert statuses(case, "isolated")["outputs"] is status


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resize_positions_have_float32_precision(mode: str, seed: int) -> None:
    def resized(place: str) -> Any:
        node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=place)
        scales = {"scales": np.array([1, 1, 1.37, 1.61], np.float32)}
        return small_graph([node], {"x": [1, 1, 37, 41]}, {"y": 4}, scales)

    assert passes(saved(resized("half_pixel"), seed=seed))
    assert wrong_values(resized("asymmetric"), seed=seed) == ["y"]


def test_sequences_are_not_compared() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("SequenceConstruct", ["y", "x"], ["s"])]
    onnx.save(small_graph(nodes[1:], {"x": [4], "y": [4]}, {"s": None}), "m.onnx")
    assert statuses(model("m.onnx"), "isolated") == {"outputs": Status.SKIPPED}
    onnx.save(small_graph(nodes, {"x": [4]}, {"y": 1, "s": None}), "both.onnx")
    both = model("both.onnx")
    assert statuses(both, "isolated") == dict.fromkeys(("y", "watched", "outputs"), Status.PASSED)
    assert says(str(program_of(both)), "models.not_compared_as_no")


def test_operator_that_evaluator_fails_has_no_reference() -> None:
    """LinearClassifier of a batch; the model ends in a ZipMap, whose result is no tensor. Nothing passes, also not the
    check of the trace, so that the exit status is that of a run without a comparison."""
    found = statuses(model(get_example("logreg_iris.onnx")), "isolated")
    assert found == {
        "label": Status.SKIPPED,
        "probability_tensor_normalized": Status.SKIPPED,
        "watched": Status.SKIPPED,
        "outputs": Status.SKIPPED,
    }


def test_values_before_missing_reference_are_compared(tmp_path: Path) -> None:
    def unknown(changed: Any) -> None:
        changed.graph.node[4].op_type, changed.graph.node[4].domain = "TransposeMatMul", "com.microsoft"
        changed.opset_import.append(helper.make_opsetid("com.microsoft", 1))

    found = statuses(model(written(tmp_path / "m.onnx", unknown), variant="disabled"), "isolated")
    compared = [name for name, status in found.items() if status is Status.PASSED]
    assert compared == [*VALUES[:4], "watched"]
    assert found["out"] is Status.SKIPPED


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_quantised_models_of_any_opset_have_a_reference(opset: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.float32(0.02), "scale"), numpy_helper.from_array(np.uint8(128), "zero")]
    x, y = (helper.make_tensor_value_info(name, 1, [4, 8]) for name in "xy")
    graph = helper.make_graph(nodes, "m", [x], [y], constants)
    found = statuses(
        saved(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), variant="disabled"
        ),
        "isolated",
    )
    assert found == dict.fromkeys(("q", "y", "watched", "outputs"), Status.PASSED)
    constants[1].CopyFrom(numpy_helper.from_array(np.uint8(127), "zero"))
    graph = helper.make_graph(nodes, "m", [x], [y], constants)
    assert wrong_values(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)) == [
        "q",
        "y",
    ]


@pytest.mark.parametrize("name", CONTRIB)
def test_operators_of_onnx_runtime_have_a_reference(name: str) -> None:
    """Of which ``y`` is found though onnx cannot infer its dtype."""
    changed = contrib_model(name)
    found = statuses(saved(changed, variant="disabled"), "isolated")
    assert found == dict.fromkeys(("y", "out", "watched", "outputs"), Status.PASSED)
    node = changed.graph.node[0]
    constant = next((each for each in changed.graph.initializer if numpy_helper.to_array(each).size > 2), None)
    if constant is None:
        node.input[0] = "wrong"
        changed.graph.node.insert(0, helper.make_node("Mul", ["x", "two"], ["wrong"]))
    else:
        value = numpy_helper.to_array(constant)
        constant.CopyFrom(numpy_helper.from_array(value + np.asarray(3, value.dtype), constant.name))
    assert wrong_values(changed) == ["y"]


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("GroupQueryAttention", "rotary_interleaved", 0),
        ("GroupQueryAttention after a past", "scale", 0.25),
        ("GroupQueryAttention after a past", "local_window_size", 2),
        ("RotaryEmbedding", "interleaved", 0),
        ("MultiHeadAttention", "scale", 0.5),
        ("QuickGelu", "alpha", 1.702),
        ("FusedMatMul", "alpha", 0.5),
        ("FusedGemm", "beta", 0.25),
        ("FusedGemm of LeakyRelu", "activation", "Relu"),
        ("FusedConv", "activation_params", [0.0, 2.0]),
    ],
)
def test_a_wrong_attribute_of_an_operator_is_found(name: str, attribute: str, value: Any) -> None:
    changed = contrib_model(name)
    onnx.save(changed, "m.onnx")
    kept = [each for each in changed.graph.node[0].attribute if each.name != attribute]
    del changed.graph.node[0].attribute[:]
    changed.graph.node[0].attribute.extend([*kept, helper.make_attribute(attribute, value)])
    assert wrong_values(changed) == ["y"]


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("GroupQueryAttention", (), {"smooth_softmax": 1}),
        ("GroupQueryAttention", (), {"causal": 0}),
        ("GroupQueryAttention", ("position_ids",), {}),
        ("GroupQueryAttention after a past", ("", "", "", "", "bias"), {}),
        ("RotaryEmbedding", (), {"scale": 2.0}),
        ("MultiHeadAttention", (), {"unidirectional": 1}),
        ("MatMulNBits", (), {"weight_prepacked": 1}),
        ("FusedConv", (), {"activation": "Tanh"}),
    ],
)
def test_what_a_reference_does_not_have_is_skipped(name: str, inputs: Any, attributes: Any) -> None:
    changed = contrib_model(name)
    node = changed.graph.node[0]
    kept = [each for each in node.attribute if each.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])
    node.input.extend(inputs)
    for each in filter(None, inputs):
        kind = np.arange(5)[None] if each == "position_ids" else np.zeros((1, 1, 5, 8), np.float32)
        changed.graph.initializer.append(numpy_helper.from_array(kind, each))
    onnx.save(changed, "m.onnx")
    (case,) = (each for each in traced(model("m.onnx", variant="disabled"), "isolated") if named(each) == "y")
    verdict = execute([case], ModelDriver()).verdicts[0]
    assert verdict.status is Status.SKIPPED
    assert verdict.message.startswith(f"no reference for {node.op_type} with ")


def test_outputs_that_are_left_out_need_no_reference() -> None:
    """As exporters write it: the sum is the fourth output, and the two before it have no name."""
    changed = contrib_model("SkipSimplifiedLayerNormalization")
    changed.graph.node[0].output.extend(["", "", "sum"])
    changed.graph.node.append(helper.make_node("Mul", ["sum", "two"], ["twice"]))
    changed.graph.output.append(helper.make_tensor_value_info("twice", 1, [3, 8]))
    assert passes(saved(changed, variant="disabled"))
    changed.graph.node[0].output[1] = "mean"
    onnx.save(changed, "mean.onnx")
    assert {*statuses(model("mean.onnx", variant="disabled"), "isolated").values()} == {Status.SKIPPED}


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a=1,b=x", {"a": 1, "b": "x"}),
        ("sizes=[16,32],depths=[1],n=2", {"sizes": [16, 32], "depths": [1], "n": 2}),
    ],
)
def test_values_of_a_config_may_be_lists(text: str, entries: dict[str, Any]) -> None:
    assert dict(opened._entries(text)) == entries


def test_a_program_says_how_it_computes(tmp_path: Path) -> None:
    text = str(program_of(model(written(tmp_path / "m.onnx"), backend="openvino", variant="f32")))
    assert says(text, "models.nodes_of_float_which")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("copies", "is_right", "words"),
    [
        (True, False, "returns its first results, which it kept"),
        (False, False, "overwrites the results of its first call"),
        (True, True, ""),
    ],
)
def test_compiled_model_is_called_with_other_values(tmp_path: Path, copies: bool, is_right: bool, words: str) -> None:
    import torch

    (tmp_path / "net.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 3), {'input': torch.rand(2, 4)}\n"
    )
    kept: list[Any] = []

    def compiler(module: Any, _: Any) -> Any:
        def call(*given: Any) -> Any:
            made = module.forward(*given)
            if not kept:
                kept.extend(made)
            if not copies:
                for one, other in zip(kept, made, strict=True):
                    one.copy_(other)
            return made if is_right else tuple(each.clone() if copies else each for each in kept)

        return call

    torch._dynamo.reset()
    name = f"optest_keeps_results_{copies}_{is_right}"
    torch._dynamo.register_backend(compiler, name=name)
    base = model(f"{tmp_path / 'net.py'}:make", backend="torch", variant=name)
    verdict = execute([with_part(base, "outputs", "outputs", values="linear")], ModelDriver()).verdicts[0]
    assert (verdict.reason, words in verdict.message) == (None if is_right else Reason.STATE, True), verdict

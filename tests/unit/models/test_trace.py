"""Which values of a model a trace rejects: none of an honest one, and the one that a fault is planted in."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
    **dict.fromkeys(("preset", "weights", "inputs", "variant", "optimized", "torch_device")),
    "config": [],
    "seed": 0,
    "backend": "onnxruntime",
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    bootstrap()
    toy_optimizer.register()
    monkeypatch.chdir(tmp_path)
    yield
    forget_opened_files()


BOTH = ("isolated", "accumulated")


def forget_opened_files() -> None:
    opened.subject_for.cache_clear()
    opened.program_for.cache_clear()


def op(text: str, **attributes: Any) -> Any:
    """The node of a text such as ``y = Resize(x, , scales)``, whose second input is left out."""
    outputs, operator, inputs = re.fullmatch(r"(.*) = (\w+)\((.*)\)", text).groups()  # type: ignore[union-attr]
    return helper.make_node(operator, inputs.split(", ") if inputs else [], outputs.split(", "), **attributes)


def model(what: Any, **given: Any) -> TestCase:
    forget_opened_files()
    return next(models_of({**GIVEN, "what": str(what), **given}))


def small(change: Callable[[Any], None] = lambda _: None, runs: Any = None, **given: Any) -> TestCase:
    """The case of the small model; ``runs`` changes the file that runs in its place."""
    if runs:
        given["optimized"] = str(written(Path("o.onnx"), runs))
    return model(written(Path("m.onnx"), change), **given)


def verdicts_of(case: TestCase, mode: str = "isolated") -> dict[str, Verdict]:
    """The verdicts by the first value of a case, or by the part of the model that it is about."""
    cases = [*traced(case, mode)]
    return {named(each): execute([each], ModelDriver()).verdicts[0] for each in cases}


def statuses(case: TestCase, mode: str = "isolated") -> dict[str, Status]:
    return {name: verdict.status for name, verdict in verdicts_of(case, mode).items()}


def passed(*values: str) -> dict[str, Status]:
    """The statuses of a model whose values, outputs and trace all pass."""
    return dict.fromkeys((*values, "watched", "outputs"), Status.PASSED)


def set_attribute(changed: Any, number: int, value: Any) -> None:
    """Set the first attribute of a node to another value."""
    attribute = changed.graph.node[number].attribute[0]
    attribute.CopyFrom(helper.make_attribute(attribute.name, value))


def by_erf(changed: Any) -> None:
    set_attribute(changed, 3, "none")


def named(case: TestCase) -> str:
    part = case.attributes["part"]
    return case.attributes["values"].split("\n")[0] if part in ("isolated", "accumulated") else part


def rejections(case: TestCase, mode: str) -> Iterator[str]:
    """The values that fail, without the outputs of the whole model."""
    for each in traced(case, mode):
        if each.attributes["part"] != "outputs" and execute([each], ModelDriver()).verdicts[0].status in BAD_STATUSES:
            yield named(each)


def rejected(case: TestCase, mode: str = "isolated") -> list[str]:
    return list(rejections(case, mode))


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
    return rejected(model("m.onnx", optimized="wrong.onnx", **given))


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
    given = {**GIVEN, "what": name, "config": CONFIGS[name], "preset": "balanced"}
    state = opened.named_model(given).module.state_dict()
    for fault in (each for each in FAULTS if each.model == name):
        optimized = onnx.load_from_string(runtime.optimized(file.read_bytes(), fault.level)[0])
        values = fault.edit(optimized.graph, state)
        onnx.save(optimized, tmp_path / "faulty.onnx")
        faulty = model(file, inputs=str(file.with_name("inputs.safetensors")), optimized=str(tmp_path / "faulty.onnx"))
        assert rejected(faulty) == list(values), fault.what
        assert next(rejections(faulty, "accumulated")) == values[0], fault.what


@pytest.mark.parametrize(
    ("backend", "variant"),
    [("onnxruntime", "basic"), ("onnxruntime", "all"), ("onnx-reference", None), ("openvino", "f32")],
)
def test_honest_backends_are_not_rejected(backend: str, variant: str | None) -> None:
    case = small(backend=backend, variant=variant)
    assert outputs_of(case) is Status.PASSED
    for mode in BOTH:
        found = statuses(case, mode)
        assert {*found.values()} == {Status.PASSED}
        # OpenVINO does not say what it runs, so that there is nothing to hold its answers against.
        assert ("watched" in found) == (backend != "openvino")
        assert "out" in found


def test_every_value_is_traced_where_nothing_is_optimised() -> None:
    assert [*statuses(small(variant="disabled"))] == [*VALUES, "watched", "outputs"]


def test_merged_nodes_are_compared_from_their_inputs() -> None:
    def wrong_inside(changed: Any) -> None:
        by_erf(changed)
        renamed(changed)

    assert passes(small(runs=renamed))
    assert rejected(small(runs=wrong_inside)) == ["out"]


@pytest.mark.parametrize(("second", "names"), [("gelu", []), ("biased", ["total"])])
def test_optimiser_may_merge_equal_values(second: str, names: list[str]) -> None:
    """Two branches that compute the same become one: what it leaves out is no input of the nodes behind it."""

    def doubled(changed: Any) -> None:
        twin = op("twin = Gelu(biased)", approximate="tanh")
        before, after = changed.graph.node[:4], changed.graph.node[4:]
        after[0].input[0] = "total"
        nodes = [*before, twin, op("total = Add(gelu, twin)"), *after]
        del changed.graph.node[:]
        changed.graph.node.extend(nodes)

    def merged(changed: Any) -> None:
        doubled(changed)
        changed.graph.node[5].input[1] = second

    assert rejected(small(doubled, merged)) == names


def test_constants_declared_as_inputs_may_be_merged() -> None:
    """As files of IR version 3 have to state them, all of the ONNX model zoo's: the optimised file keeps the inputs."""
    value = numpy_helper.from_array(np.array([0.5], np.float32))
    nodes = [op(f"row {each} = ConstantOfShape({each})", value=value) for each in ("size", "same")]
    nodes += [op("sum = Add(x, row size)"), op("y = Mul(sum, row same)")]
    sizes = {name: np.array([4], np.int64) for name in ("size", "same")}
    old = small_graph(nodes, {"x": [3, 4]}, {"y": 2}, sizes, 9)
    old.ir_version = 3
    old.graph.input.extend(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]) for name in sizes)
    case = saved(old)
    assert len(program_of(case).graph._model.graph.input) == 2
    assert passes(case, *BOTH)


def another(changed: Any) -> None:
    changed.graph.output.append(helper.make_tensor_value_info("gelu", 1, ["batch", 16]))


def dropped(changed: Any) -> None:
    del changed.graph.node[-1]
    changed.graph.output[0].name = "scores"


@pytest.mark.parametrize(
    ("change", "outputs"),
    [(partial(renamed, outputs=True), "other_out"), (another, "out, gelu"), (dropped, "scores")],
)
def test_optimiser_with_other_outputs_is_refused(change: Any, outputs: str) -> None:
    with pytest.raises(UsageError, match=f"outputs of the optimised model are {outputs}, expected out"):
        list(traced(small(runs=change), "isolated"))


@pytest.mark.parametrize("is_shown", [True, False])
def test_outputs_wrong_while_each_node_is_right(is_shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_optimizer.Unfaithful, "shows_its_graph", is_shown)
    case = small(backend="unfaithful", variant="disabled")
    for mode in BOTH:
        wrong = [name for name, status in statuses(case, mode).items() if status is not Status.PASSED]
        assert wrong == ["watched", "outputs"][not is_shown :]


def test_bits_that_threads_change_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    right = OnnxProgram.outputs

    def by_threads(self: OnnxProgram, feeds: Any) -> Any:
        return {name: np.nextafter(value, np.float32(9)) for name, value in right(self, feeds).items()}

    monkeypatch.setattr(OnnxProgram, "outputs", by_threads)
    case = small(variant="disabled")
    assert passes(case)
    checks = {each.name: each.detail for each in verdicts_of(case)["watched"].checks}
    assert checks["threads"].startswith("4 output elements differ in bits"), checks


def test_accumulated_shows_what_comes_of_a_fault() -> None:
    case = small(runs=by_erf)
    assert rejected(case) == ["gelu"]
    assert rejected(case, "accumulated") == ["gelu", "scores", "out"]


def test_nodes_are_run_once_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = OnnxProgram.run_region

    def counted(self: OnnxProgram, region: Any, given: Any) -> Any:
        made.append(region.outputs[0])
        return original(self, region, given)

    monkeypatch.setattr(OnnxProgram, "run_region", counted)
    assert rejected(small(variant="disabled"), "accumulated") == []
    assert made == [*VALUES]


def test_refused_node_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of nodes are loaded before their turn."""
    runtime = type(backend_manager.get("onnxruntime"))
    loaded = runtime.loaded_nodes

    def refusing(self: Any, content: bytes, variant: str) -> Any:
        if b"Gelu" in content:
            raise Fault(Reason.UNSUPPORTED, "no kernel")
        return loaded(self, content, variant)

    monkeypatch.setattr(runtime, "loaded_nodes", refusing)
    found = statuses(small(variant="disabled"))
    assert [name for name, status in found.items() if status is not Status.PASSED] == ["gelu", "watched"]


def test_a_value_is_made_of_the_values_given() -> None:
    """By the nodes between, whatever is loaded before its turn."""
    case = small(variant="disabled")
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
    content = small_graph([op("y = Dropout(x, , trained)")], {"x": [4]}, {"y": 1}, {"trained": np.array(is_trained)})
    assert Graph(content.SerializeToString()).random == drawn


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_how_far_good_implementations_of_gelu_are_off(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's tanh is off by some ulp, which is all that is left where 1 + tanh(x) is nearly 0."""
    save_file({"x": np.linspace(-7, 7, 4096, dtype=np.float32)}, "x.safetensors")
    graph = small_graph([op("y = Gelu(x)", approximate=form)], {"x": [4096]}, {"y": 1}, (), 20)
    case = saved(graph, inputs="x.safetensors")
    assert rejected(case) == []
    right = OnnxProgram.run_region
    monkeypatch.setattr(
        OnnxProgram, "run_region", lambda *given: {k: v + np.float32(3e-6) for k, v in right(*given).items()}
    )
    assert rejected(case) == ["y"]


WEIGHTS = ("rows", "turned", "gain")


def folded(changed: Any, values: dict[str, np.ndarray], wrong: str = "") -> None:
    """Put the values of weights in place of the nodes that compute them, one of them wrong."""
    nodes = [each for each in changed.graph.node if each.output[0] not in values]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    for name, value in values.items():
        changed.graph.initializer.append(numpy_helper.from_array(value[::-1].copy() if name == wrong else value, name))


def weight_values() -> dict[str, np.ndarray]:
    """The weights that the first nodes of the weighted model compute, which is then in m.onnx."""
    subject = subject_of(saved(weighted_model(), variant="disabled"))
    return {name: subject.activation(name) for name in WEIGHTS}


def test_values_of_weights_are_compared() -> None:
    case = saved(weighted_model(), variant="disabled")
    assert statuses(case) == passed(*WEIGHTS, "product", "scaled", "out")
    values = weight_values()
    for name, number, value in (("turned", 1, [0, 1]), ("rows", 0, 1)):
        changed = weighted_model()
        set_attribute(changed, number, value)
        assert wrong_values(changed) == [name, "product"]
    for wrong, names in (("", []), ("turned", ["turned", "product"]), ("gain", ["gain", "scaled"])):
        changed = weighted_model()
        folded(changed, values, wrong)
        assert wrong_values(changed) == names


def test_weights_changed_together_with_their_readers_are_right() -> None:
    """A scale that an optimizer takes into the weight, which keeps its name."""
    values = weight_values()
    changed = weighted_model()
    folded(changed, {**values, "rows": values["turned"], "turned": values["turned"] * values["gain"]})
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
def test_values_with_other_names_are_matched_by_structure(first: int) -> None:
    def wrong(changed: Any) -> None:
        by_erf(changed)
        numbered(changed, first)

    assert statuses(small(runs=partial(numbered, first=first))) == passed(*VALUES)
    found = statuses(small(runs=wrong))
    assert [name for name, status in found.items() if status is Status.PASSED] == [*VALUES[:3], "watched"]
    assert [name for name, status in found.items() if status is Status.FAILED] == ["out", "outputs"]


def test_renamed_folded_weights_are_matched_by_content() -> None:
    changed = weighted_model()
    folded(changed, weight_values())
    numbered(changed)
    for each in changed.graph.initializer:
        for node in changed.graph.node:
            node.input[:] = [f"w_{name}" if name == each.name else name for name in node.input]
        each.name = f"w_{each.name}"
    onnx.save(changed, "other.onnx")
    assert {"product", "scaled"} <= statuses(model("m.onnx", optimized="other.onnx")).keys()


@pytest.mark.parametrize("file", ["x.npz", "x.npy", "x.pb", "big.npz", "BIG.NPY"])
def test_inputs_are_read_from_numpy_and_onnx(file: str) -> None:
    """The big ones are in the byte order of other machines, by columns."""
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    swapped = np.asfortranarray(x).astype(">f4")
    np.savez("x.npz", x=x)
    np.savez("big.npz", x=swapped)
    np.save("x.npy", x)
    with open("BIG.NPY", "wb") as opened:
        np.save(opened, swapped)
    Path("x.pb").write_bytes(numpy_helper.from_array(x, "any").SerializeToString())
    found = subject_of(small(inputs=file)).feeds["x"]
    assert (found.dtype, found.dtype.isnative) == (np.float32, True)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    ("old", "new"),
    [("{", "{{"), ("(3, 8)", "(3, -8)"), ("(3, 8)", "(9999999999999, 8)"), ("(3, 8)", "(999999999999999999999, 8)")],
)
def test_inputs_with_a_damaged_header_are_refused(kind: str, old: str, new: str) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }".replace(old, new)
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(96)
    Path("x.npy").write_bytes(content)
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(UsageError, match=f"x.{kind} cannot be read"):
        read_tensors(Path(f"x.{kind}"), ["x"])


def test_inputs_of_no_tensors_are_named_so() -> None:
    Path("x.pt").write_bytes(bytes(range(200)))
    np.savez("x.npz")
    for file, names, text in (
        ("x.pt", ["x"], "models.pt_is_no_file"),
        ("x.npz", ["x", "y"], "models.npz_has_no_tensors"),
    ):
        with refusal(UsageError, text):
            read_tensors(Path(file), names)


def test_an_input_without_a_rank_is_named() -> None:
    changed = small_graph([op("y = Add(a, x)")], {"a": [3], "x": [3]}, {"y": 1})
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
    inputs = dict(zip("xy", sizes, strict=False))
    onnx.save(small_graph([op(f"out = Sum({', '.join(inputs)})")], inputs, {"out": len(sizes[0])}), "m.onnx")
    np.savez("x.npz", **{name: np.ones(shape, np.float32) for name, shape in zip(inputs, given, strict=True)})
    if message:
        with pytest.raises(UsageError, match=re.escape(message)):
            subject_of_file("m.onnx", "x.npz", config, 0)
    else:
        assert [each.shape for each in subject_of_file("m.onnx", "x.npz", config, 0).feeds.values()] == given


def language_model(past: str, tokens: str, total: str) -> Any:
    """As exporters write it: keys of the past and of the tokens, and a mask for both."""
    sizes = {"mask": ["batch_size", total], "past": ["batch_size", past, 4], "x": ["batch_size", tokens, 4]}
    nodes = [op("keys = Concat(past, x)", axis=1), op("wide = Unsqueeze(mask, last)"), op("out = Mul(keys, wide)")]
    return small_graph(nodes, sizes, {"out": 3}, {"last": np.array([2])})


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
    graph = language_model("past_sequence_length", "sequence_length", "both")
    verdict = verdicts_of(saved(graph, variant="disabled", config=["both=5"]))["out"]
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
    ("node", "constants", "shape", "seed"),
    [
        (op("y = ReduceSumSquare(x)"), {}, [1, 20000], 0),
        (op("y = LayerNormalization(x, scale)"), {"scale": np.ones(20000)}, [1, 20000], 2),
        (op("y = InstanceNormalization(x, one, zero)"), {"one": np.ones(1), "zero": np.zeros(1)}, [1, 1, 20000], 2),
        (op("y = Gemm(x, weights)", alpha=-0.125, transB=1), {"weights": np.ones((1, 20000))}, [1, 20000], 0),
    ],
    ids=lambda value: getattr(value, "op_type", None),
)
def test_one_long_row_passes(node: Any, constants: Any, shape: Any, seed: int) -> None:
    """The backend adds it up in another order than the reference, whose own error may be smaller by chance."""
    values = {name: value.astype(np.float32) for name, value in constants.items()}
    assert passes(saved(small_graph([node], {"x": shape}, {"y": len(shape)}, values, 18), seed=seed))


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
    outputs = {"y": 2 if attributes.get("reduction") == "none" else 0}
    onnx.save(small_graph([node], {"x": [3, 3, 4000]}, outputs, named), "m.onnx")
    for seed in range(3):
        given = -rng.random((3, 3, 4000)) - np.arange(3)[:, None]
        np.savez("x.npz", x=given.astype(np.float32))
        assert passes(model("m.onnx", inputs="x.npz")), seed
    if is_weighted:
        named["w"] = np.array([0.1, 0.7, 0.4 * (1 + 1e-3)], np.float32)
        assert wrong_values(small_graph([node], {"x": [3, 3, 4000]}, outputs, named), inputs="x.npz") == ["y"]


def long_sum(seed: int, accuracy_level: int) -> Any:
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (1, 128, 16)).astype(np.uint8)
    tensors = {"packed": packed, "scales": (rng.random(128) + 0.5).astype(np.float32)}
    sizes = {"K": 4096, "N": 1, "block_size": 32, "bits": 4, "accuracy_level": accuracy_level}
    node = op("y = MatMulNBits(x, packed, scales)", domain="com.microsoft", **sizes)
    changed = small_graph([node], {"x": [1, 4096]}, {"y": 2}, tensors)
    changed.opset_import.add(domain="com.microsoft", version=1)
    return changed


def test_wrong_shapes_inside_a_file_are_not_used() -> None:
    """ONNX Runtime GenAI states a scalar for a constant of one element."""
    changed = contrib_model("MatMulNBits")
    changed.graph.node[1].input[1] = "half"
    half = numpy_helper.from_array(np.array([0.5], np.float32))
    changed.graph.node.insert(0, op("half = Constant()", value=half))
    changed.graph.value_info.append(helper.make_tensor_value_info("half", 1, []))
    assert passes(saved(changed))
    weights = next(each for each in changed.graph.initializer if each.name == "scales")
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(1.25), "scales"))
    assert "y" in wrong_values(changed)


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


@pytest.mark.parametrize(
    ("text", "attributes", "what"),
    [
        ("y = LSTM(x, w, r)", {"clip": 0.3}, "clip"),
        ("y = LSTM(x, w, r)", {"activations": ["Sigmoid", "Relu", "Tanh"]}, "activations Sigmoid, Relu, Tanh"),
        ("y = LSTM(x, w, r, , lengths)", {}, "sequence_lens"),
        ("y = LSTM(x, w, r)", {"activations": ["Sigmoid", "Tanh", "Tanh"]}, ""),
        ("y = MaxPool(x)", {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_LOWER"}, "auto_pad=SAME_LOWER"),
        ("y = MaxPool(x)", {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"}, ""),
        ("y = LSTM(x, w, r)", {"input_forget": 1}, "input_forget=1"),
        ("y = LpNormalization(x)", {"p": 1, "axis": -1}, "p=1"),
        ("y = LpNormalization(x)", {"p": 2}, ""),
        ("y, i = MaxPool(x)", {"kernel_shape": [2]}, "indices and steps of 1"),
        ("y, i = MaxPool(x)", {"kernel_shape": [2], "strides": [2]}, ""),
        ("y, i = TopK(x, two)", {"sorted": 0}, "sorted=0"),
        ("y, i = TopK(x, two)", {"sorted": 1}, ""),
    ],
)
def test_what_the_evaluator_leaves_out_has_no_reference(text: str, attributes: Any, what: str) -> None:
    node = op(text, **attributes, **({"hidden_size": 2} if "LSTM" in text else {}))
    constants = {**OF_LSTM, "lengths": np.array([2], np.int32), "two": np.array([2])}
    used = {name: value for name, value in constants.items() if name in node.input}
    rank = 4 if node.op_type == "LSTM" else 3
    verdicts = [*verdicts_of(saved(small_graph([node], {"x": [5, 1, 3]}, {"y": rank}, used))).values()]
    assert {each.status for each in verdicts} == {Status.SKIPPED if what else Status.PASSED}
    if what:
        assert says(verdicts[0].message, "models.no_reference_for_with", operator=node.op_type, what=what)


def loop(scanned: Sequence[str], *, turn: str = "Sin") -> Any:
    """Three trips without a condition; of each trip the value itself, a row of it or a number are kept."""
    trip = helper.make_tensor_value_info("trip", onnx.TensorProto.INT64, [])
    go, still = (helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, []) for name in ("go", "still"))
    before, *kept = (helper.make_tensor_value_info(name, 1, None) for name in ("before", "after", *scanned))
    nodes = [
        op("still = Identity(go)"),
        op(f"after = {turn}(before)"),
        op("whole = Identity(after)"),
        op("row = ReduceSum(after, rows)", keepdims=0),
        op("number = ReduceSum(after)", keepdims=0),
    ]
    body = helper.make_graph(nodes, "body", [trip, go, before], [still, *kept])
    node = op(", ".join(["y", *(f"all_{name}" for name in scanned)]) + " = Loop(trips, , x)", body=body)
    ranks = {"whole": 3, "row": 2, "number": 1}
    outputs = {"y": 2, **{f"all_{name}": ranks[name] for name in scanned}}
    return small_graph([node], {"x": [2, 4]}, outputs, {"trips": np.array(3), "rows": np.array([0])})


@pytest.mark.parametrize("scanned", [(), ("whole",), ("row", "number")])
def test_loop_without_condition_makes_all_trips(scanned: Any) -> None:
    assert passes(saved(loop(scanned)))
    assert wrong_values(loop(scanned, turn="Identity")) == ["y"]


RATIOS = {"scales": np.array([1, 1, 1.5, 0.6], np.float32)}


def _resize(mode: str, place: str) -> Any:
    return {"mode": mode, "coordinate_transformation_mode": place}


HONEST = {
    "aligned corners": (op("y = Resize(x, , scales)", **_resize("linear", "align_corners")), RATIOS, 13),
    "aligned corners, nearest": (op("y = Resize(x, , scales)", **_resize("nearest", "align_corners")), RATIOS, 13),
    "sizes": (op("y = Resize(x, , , sizes)", **_resize("cubic", "half_pixel")), {"sizes": np.array([1, 2, 9, 4])}, 13),
    "DFT of powers of two": (op("y = DFT(x)", axis=2), {}, 17),
}


@pytest.mark.parametrize("name", HONEST)
def test_rules_that_the_evaluator_gets_wrong(name: str) -> None:
    node, constants, opset = HONEST[name]
    shapes = {"x": [1, 2, 64, 1] if node.op_type == "DFT" else [1, 2, 6, 7]}
    for seed in range(3):
        assert passes(saved(small_graph([node], shapes, {"y": 4}, constants, opset), seed=seed))


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
    node = op(
        "label, y = TreeEnsembleClassifier(x)",
        domain="ai.onnx.ml",
        post_transform=transform,
        classlabels_int64s=[*range(labels)],
        **branches,
        **{f"class_{name}": each for name, each in leaves.items()},
    )
    changed = small_graph([node], {"x": [4, 2]}, {"y": 2})
    changed.opset_import.add(domain="ai.onnx.ml", version=3)
    verdicts = [*verdicts_of(saved(changed)).values()]
    assert {each.status for each in verdicts} == {Status.SKIPPED if is_skipped else Status.PASSED}
    if is_skipped:
        assert says(verdicts[0].message, "models.no_reference_for_treeensembleclassifier")


def test_nearest_elements_that_rounding_decides_have_no_reference() -> None:
    node = op("y = Resize(x, , scales)", nearest_mode="floor", **_resize("nearest", "asymmetric"))
    scales = {"scales": np.array([1, 1, 1 / 3, 1 / 3], np.float32)}
    assert statuses(saved(small_graph([node], {"x": [1, 1, 9, 9]}, {"y": 4}, scales)))["y"] is Status.SKIPPED


@pytest.mark.parametrize("seed", [4, 7])
def test_recurrent_layers_may_sum_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = {"w": (2, 32, 8), "r": (2, 32, 32), "b": (2, 64)}
    constants = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in weights.items()}
    node = helper.make_node("RNN", ["x", *weights], ["y", "h"], hidden_size=32, direction="bidirectional")
    assert passes(saved(small_graph([node], {"x": [30, 2, 8]}, {"y": 4, "h": 3}, constants), seed=seed))
    constants["w"][0, 0] += 1e-4
    assert wrong_values(small_graph([node], {"x": [30, 2, 8]}, {"y": 4, "h": 3}, constants), seed=seed) == ["y"]


CONSTANT = [op("shape = Shape(x)"), op("c = ConstantOfShape(shape)"), op("y = Add(x, c)")]
WINDOW = [op("shape = Shape(x)"), op("size = Squeeze(shape)"), op("c = HannWindow(size)"), op("y = Add(x, c)")]


GAP = {"target": np.array([1, 1]), "gap": np.array([[1000.0, 0, 0], [1, 2, 3]], np.float32)}
SEQUENCE = [op("s = SplitToSequence(x)", axis=0), op("row = SequenceAt(s, one)"), op("y = Exp(row)")]
LOSS = [op("x = Add(noise, gap)"), op("y, logs = SoftmaxCrossEntropyLoss(x, target)", reduction="none")]
RESIZED = [op("sizes = Shape(like)"), op("y = Resize(x, , , sizes)")]
PASSING: dict[str, tuple[Any, ...]] = {
    "sizes computed in the model": (RESIZED, {"x": [1, 1, 4, 4], "like": [1, 1, "h", "w"]}, {"y": 4}),
    "the default dtype of a constant": (CONSTANT, {"x": ["n"]}, {"y": 1}),
    "the default dtype of a window": (WINDOW, {"x": ["n"]}, {"y": 1}),
    "sizes that follow from elements": ([op("u = Unique(x)"), op("y = Relu(x)")], {"x": [4]}, {"u": 1, "y": 1}),
    "values of a sequence": (SEQUENCE, {"x": [3, 2]}, {"y": 2, "s": None}, {"one": np.array(1)}),
    "axes that old opsets flatten": ([op("y = Hardmax(x)")], {"x": [2, 3, 4]}, {"y": 3}, (), 11),
    # exp of a gap above 745 is 0 in float64, whose logarithm is infinite.
    "losses of logits far apart": (LOSS, {"noise": [2, 3]}, {"y": 1, "logs": 2}, GAP),
}


@pytest.mark.parametrize("name", PASSING)
def test_values_of_unusual_graphs_pass(name: str) -> None:
    np.save("x.npy", np.array([1, 2, 1, 2], np.float32))
    inputs = "x.npy" if "elements" in name else None
    assert passes(saved(small_graph(*PASSING[name]), inputs=inputs), *BOTH)


def test_values_without_elements_are_skipped() -> None:
    nodes = [op("none = Slice(x, end, end)"), op("y = Concat(none, x)", axis=0)]
    graph = small_graph(nodes, {"x": [4, 2]}, {"y": 2}, {"end": np.array([4])})
    assert statuses(saved(graph, variant="disabled")) == {**passed("y"), "none": Status.SKIPPED}
    np.save("empty.npy", np.ones((0, 2), np.float32))
    verdicts = verdicts_of(saved(small_graph([op("y = Relu(x)")], {"x": ["n", 2]}, {"y": 2}), inputs="empty.npy"))
    message = "nothing to compare: y without elements"
    assert {(each.status, each.message) for each in verdicts.values()} == {(Status.SKIPPED, message)}


def test_independent_values_are_compared_without_other_reference() -> None:
    nodes = [op("a = GlobalLpPool(x)"), op("b = Relu(a)"), op("c = Sin(x)")]
    graph = small_graph(nodes, {"x": [1, 2, 3]}, {"b": 3, "c": 3})
    found = statuses(saved(graph, variant="disabled"), "accumulated")
    assert found == {**passed("c"), **dict.fromkeys(("a", "b", "outputs"), Status.SKIPPED)}


def test_values_after_refused_node_have_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made = OnnxProgram.run_region

    def refuse(self: Any, region: Any, given: Any) -> Any:
        if region.outputs == ("biased",):
            raise Fault(Reason.RAISED, "no Add today")
        return made(self, region, given)

    monkeypatch.setattr(OnnxProgram, "run_region", refuse)
    verdicts = verdicts_of(small(variant="disabled"), "accumulated")
    assert {verdicts[name].message for name in (*VALUES[2:], "watched")} == {"no Add today"}


@pytest.mark.parametrize("has_element", [True, False])
def test_values_made_of_an_optional(has_element: bool) -> None:
    made = op("o = Optional(x)") if has_element else op("o = Optional()", type=helper.make_tensor_type_proto(1, [3]))
    nodes = [made, op("known = OptionalHasElement(o)"), op("element = OptionalGetElement(o)")]
    last = f"y = Where(known, {'element' if has_element else 'x'}, x)"
    graph = small_graph([*nodes[: 2 + has_element], op(last)], {"x": [3]}, {"y": 1}, (), 18)
    verdicts = [*verdicts_of(saved(graph)).values()]
    assert verdicts[-1].status is (Status.PASSED if has_element else Status.SKIPPED)
    assert not BAD_STATUSES.intersection(each.status for each in verdicts)
    if not has_element:
        assert says_exactly(verdicts[-1].message, "models.no_reference_for_optional")


@pytest.mark.parametrize("variant", ["all", "disabled"])
def test_outputs_may_be_computed_from_constants(variant: str) -> None:
    nodes = [op("k = Neg(c)"), op("y = Relu(x)")]
    case = saved(small_graph(nodes, {"x": [4]}, {"k": 1, "y": 1}, {"c": np.ones(2, np.float32)}), variant=variant)
    for mode in BOTH:
        found = statuses(case, mode)
        assert {*found.values()} == {Status.PASSED}
        assert found.keys() >= {"y", "watched", "outputs"}


def without_names(changed: Any) -> None:
    """Leave out what ONNX demands and no runtime."""
    changed.graph.name = ""
    changed.graph.output[0].type.tensor_type.ClearField("shape")


def of_old_version(changed: Any) -> None:
    """Constants without inputs, as in mul_1.onnx of ONNX Runtime, of IR version 3."""
    changed.ir_version = 3


def of_open_size(changed: Any) -> None:
    changed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1


@pytest.mark.parametrize("inputs", ["", "x.npy"])
@pytest.mark.parametrize("change", [without_names, of_old_version, of_open_size])
def test_unusual_files_are_traced(change: Any, inputs: str) -> None:
    np.save("x.npy", np.ones((5, 8), np.float32))
    assert statuses(small(change, variant="disabled", inputs=inputs)) == passed(*VALUES)


QUANTIZED = [op("q = QuantizeLinear(x, scale, zero)"), op("y = DequantizeLinear(q, scale, zero)")]


def test_values_of_dtype_without_numpy_are_skipped() -> None:
    constants = {"scale": np.float32(0.3), "zero": np.zeros((), ml_dtypes.int4)}
    found = statuses(saved(small_graph(QUANTIZED, {"x": [4]}, {"y": 1}, constants, 21), variant="disabled"))
    assert found == {**dict.fromkeys(("q", "y", "watched"), Status.SKIPPED), "outputs": Status.PASSED}


def test_outputs_may_be_inputs_and_constants() -> None:
    node = op("y = Relu(x)")
    outputs = {"x": 1, "y": 1, "c": 1}
    assert passes(saved(small_graph([node], {"x": [4]}, outputs, {"c": np.ones(2, np.float32)})))
    onnx.save(small_graph([node], {"x": [4]}, outputs, {"c": np.zeros(2, np.float32)}), "wrong.onnx")
    assert statuses(model("m.onnx", optimized="wrong.onnx"))["outputs"] is Status.FAILED


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASSED), (1.01, Status.FAILED)])
def test_sums_of_float16_are_held_in_float32(factor: float, status: Status) -> None:
    weights = np.random.default_rng(0).standard_normal((512, 8))
    nodes = [
        op("half = Cast(x)", to=onnx.TensorProto.FLOAT16),
        op("product = MatMul(half, w)"),
        op("y = Cast(product)", to=onnx.TensorProto.FLOAT),
    ]
    for name, value in (("m", weights), ("scaled", weights * factor)):
        onnx.save(small_graph(nodes, {"x": [4, 512]}, {"y": 2}, {"w": value.astype(np.float16)}), f"{name}.onnx")
    assert statuses(model("m.onnx", optimized="scaled.onnx"))["outputs"] is status


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resize_positions_have_float32_precision(mode: str, seed: int) -> None:
    def resized(place: str) -> Any:
        node = op("y = Resize(x, , scales)", mode=mode, coordinate_transformation_mode=place)
        scales = {"scales": np.array([1, 1, 1.37, 1.61], np.float32)}
        return small_graph([node], {"x": [1, 1, 37, 41]}, {"y": 4}, scales)

    assert passes(saved(resized("half_pixel"), seed=seed))
    assert wrong_values(resized("asymmetric"), seed=seed) == ["y"]


def test_sequences_are_not_compared() -> None:
    nodes = [op("y = Relu(x)"), op("s = SequenceConstruct(y, x)")]
    assert statuses(saved(small_graph(nodes[1:], {"x": [4], "y": [4]}, {"s": None}))) == {"outputs": Status.SKIPPED}
    both = saved(small_graph(nodes, {"x": [4]}, {"y": 1, "s": None}))
    assert statuses(both) == passed("y")
    assert says(str(program_of(both)), "models.not_compared_as_no")


def test_operator_that_evaluator_fails_has_no_reference() -> None:
    """LinearClassifier of a batch; the model ends in a ZipMap, whose result is no tensor. Nothing passes, also not the
    check of the trace, so that the exit status is that of a run without a comparison."""
    found = statuses(model(get_example("logreg_iris.onnx")))
    names = ("label", "probability_tensor_normalized", "watched", "outputs")
    assert found == dict.fromkeys(names, Status.SKIPPED)


def test_values_before_missing_reference_are_compared() -> None:
    def unknown(changed: Any) -> None:
        changed.graph.node[4].op_type, changed.graph.node[4].domain = "TransposeMatMul", "com.microsoft"
        changed.opset_import.append(helper.make_opsetid("com.microsoft", 1))

    found = statuses(small(unknown, variant="disabled"))
    compared = [name for name, status in found.items() if status is Status.PASSED]
    assert compared == [*VALUES[:4], "watched"]
    assert found["out"] is Status.SKIPPED


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_quantised_models_of_any_opset_have_a_reference(opset: int) -> None:
    right, wrong = (
        small_graph(QUANTIZED, {"x": [4, 8]}, {"y": 2}, {"scale": np.float32(0.02), "zero": np.uint8(zero)}, opset)
        for zero in (128, 127)
    )
    assert statuses(saved(right, variant="disabled")) == passed("q", "y")
    assert wrong_values(wrong) == ["q", "y"]


@pytest.mark.parametrize("name", CONTRIB)
def test_operators_of_onnx_runtime_have_a_reference(name: str) -> None:
    """Of which ``y`` is found though onnx cannot infer its dtype."""
    changed = contrib_model(name)
    assert statuses(saved(changed, variant="disabled")) == passed("y", "out")
    node = changed.graph.node[0]
    constant = next((each for each in changed.graph.initializer if numpy_helper.to_array(each).size > 2), None)
    if constant is None:
        node.input[0] = "wrong"
        changed.graph.node.insert(0, op("wrong = Mul(x, two)"))
    else:
        value = numpy_helper.to_array(constant)
        constant.CopyFrom(numpy_helper.from_array(value + np.asarray(3, value.dtype), constant.name))
    assert wrong_values(changed) == ["y"]


def replace_attributes(node: Any, attributes: dict[str, Any]) -> None:
    kept = [each for each in node.attribute if each.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])


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
    replace_attributes(changed.graph.node[0], {attribute: value})
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
    replace_attributes(node, attributes)
    node.input.extend(inputs)
    for each in filter(None, inputs):
        kind = np.arange(5)[None] if each == "position_ids" else np.zeros((1, 1, 5, 8), np.float32)
        changed.graph.initializer.append(numpy_helper.from_array(kind, each))
    verdict = verdicts_of(saved(changed, variant="disabled"))["y"]
    assert verdict.status is Status.SKIPPED
    assert verdict.message.startswith(f"no reference for {node.op_type} with ")


def test_outputs_that_are_left_out_need_no_reference() -> None:
    """As exporters write it: the sum is the fourth output, and the two before it have no name."""
    changed = contrib_model("SkipSimplifiedLayerNormalization")
    changed.graph.node[0].output.extend(["", "", "sum"])
    changed.graph.node.append(op("twice = Mul(sum, two)"))
    changed.graph.output.append(helper.make_tensor_value_info("twice", 1, [3, 8]))
    assert passes(saved(changed, variant="disabled"))
    changed.graph.node[0].output[1] = "mean"
    assert {*statuses(saved(changed, variant="disabled")).values()} == {Status.SKIPPED}


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


def test_a_program_says_how_it_computes() -> None:
    text = str(program_of(small(backend="openvino", variant="f32")))
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

    code = "import torch\n\ndef make():\n    return torch.nn.Linear(4, 3), {'input': torch.rand(2, 4)}\n"
    (tmp_path / "net.py").write_text(code)
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

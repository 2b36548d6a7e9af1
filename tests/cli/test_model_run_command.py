"""``optest model run``, ``bench``, ``diff`` and ``export-weights`` as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from texts import says
from user_shell import Shell

from optest.generators.files import save_tensors

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

WEIGHT = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


MODEL = f"""
<ir_version: 8, opset_import: ["" : 17]>
small (float[batch, 3] x) => (float[batch, 4] logits) <float[3, 4] w = {{{", ".join(map(str, WEIGHT.flat))}}}> {{
    positive = Relu(x)
    product = MatMul(positive, w)
    logits = Softmax(product)
}}
"""


@pytest.fixture(autouse=True)
def model(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "small.onnx")


def without_times(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("time:"))


def tensors(path: Path) -> dict[str, np.ndarray]:
    return safetensors_numpy.load_file(path)


def test_run_draws_equal_inputs_for_equal_seeds(optest: Shell) -> None:
    first, again, other = (optest("model", "run", "small.onnx", "--seed", seed).expect(0) for seed in (0, 0, 1))
    assert re.search(r"logits +float32 +1x4", first.out)
    assert "float32, threads" in first.out
    assert without_times(first.out) == without_times(again.out) != without_times(other.out)


def test_run_uses_given_inputs_and_prints_top_1(optest: Shell, tmp_path: Path) -> None:
    x = np.array([[0, 0, 1], [-1, 0, 2]], np.float32)
    safetensors_numpy.save_file({"x": x}, tmp_path / "in.safetensors")
    words = ("--input", "in.safetensors", "--dump-dir", "d", "--backend", "openvino")
    ended = optest("model", "run", "small.onnx", *words).expect(0)
    made = tensors(tmp_path / "d/00000/outputs.safetensors")["logits"]
    powers = np.exp(np.maximum(x, 0) @ WEIGHT)
    assert np.allclose(made, powers / powers.sum(axis=-1, keepdims=True), atol=1e-6)
    assert re.search(rf"top-1.*: 3 \({made[0, 3]:.5g}\), 3 \({made[1, 3]:.5g}\)", ended.out)


def test_dump_has_program_and_ordered_values(optest: Shell, tmp_path: Path) -> None:
    assert optest("model", "run", "small.onnx", "--variant", "disabled", "--dump-dir", "d").status == 0
    index = json.loads((tmp_path / "d/00000/index.json").read_text())
    assert [(each["name"], each["operator"], each["shape"]) for each in index["values"]] == [
        ("positive", "Relu", [1, 3]),
        ("product", "MatMul", [1, 4]),
        ("logits", "Softmax", [1, 4]),
    ]
    assert index["outputs_unchanged_by_watching"] is True
    values, inputs = tensors(tmp_path / "d/00000/values.safetensors"), tensors(tmp_path / "d/00000/inputs.safetensors")
    assert np.array_equal(values["positive"], np.maximum(inputs["x"], 0))
    one, other = (len(onnx.load(tmp_path / "d" / name).graph.node) for name in ("model.onnx", "optimized.onnx"))
    assert one == other
    optest("model", "run", "small.onnx", "--dump-dir", "d").expect(2)  # another one would be mixed with it
    optest("model", "run", "small.onnx", "--dump-dir", "e", "--dump-mode", "compile").expect(0)
    assert sorted(each.name for each in (tmp_path / "e").iterdir()) == ["model.onnx", "optimized.onnx"]


@pytest.mark.parametrize(("backend", "operators"), [("onnxruntime", ["MatMul", "Softmax"]), ("openvino", ["Softmax"])])
def test_a_profile_is_the_backends_own(optest: Shell, tmp_path: Path, backend: str, operators: list[str]) -> None:
    ended = optest("model", "run", "small.onnx", "--backend", backend, "--profile").expect(0)
    assert all(re.search(rf"^  {each} +1 ", ended.out, re.M) for each in operators)
    if backend == "onnxruntime":
        assert {"ts", "dur", "name"} <= {*json.loads((tmp_path / "profile.json").read_text())[0]}


def test_a_backend_without_a_profiler_says_so(optest: Shell) -> None:
    optest("model", "run", "small.onnx", "--backend", "onnx-reference", "--profile").expect(5, err="no profiler")


def test_comparison_writes_dump_and_profile(optest: Shell, tmp_path: Path) -> None:
    for command in ("validate", "trace"):
        ended = optest("model", command, "small.onnx", "--dump-dir", command, "--profile").expect(0)
        assert re.search(r"^  MatMul +1 ", ended.out, re.M)
        place = tmp_path / command / "small"
        assert (place / "profile.json").is_file()
        names = [each["name"] for each in json.loads((place / "00000/index.json").read_text())["values"]]
        assert names == ["positive", "product", "logits"]
        optest("model", command, "small.onnx", "--dump-dir", command).expect(2)


def test_suite_writes_a_folder_per_run(optest: Shell, tmp_path: Path) -> None:
    run = "{model: small.onnx, workload: [validate, trace, run]}"
    (tmp_path / "suite.yaml").write_text(f"defaults: {{dump_mode: compile}}\nruns:\n  - {run}\n")
    optest("model", "suite", "suite.yaml", "--backend", "onnxruntime", "--dump-dir", "d").expect(0)
    programs = sorted(str(each.parent.relative_to(tmp_path / "d")) for each in tmp_path.glob("d/**/model.onnx"))
    assert programs == ["00-validate/small", "01-trace/small", "02-run"]


def test_suite_refuses_unknown_keys_and_values(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("runs:\n  - {model: small.onnx, mode: isolted}\n  - {model: a, presett: b}\n")
    ended = optest("model", "suite", "suite.yaml").expect(2)
    assert says(ended.err, "cli.suite_yaml_runs_mode")
    assert "suite.yaml:3 $.runs[1].presett" in ended.err


def test_traced_values_are_compared_later(optest: Shell) -> None:
    for name, backend in (("one", "onnxruntime"), ("other", "onnx-reference")):
        ended = optest("model", "trace", "small.onnx", "--backend", backend, "--out", name).expect(0)
        assert says(ended.out, "cli.values_of_one_run", name=name)
        assert "PASSED" not in ended.out
    optest("model", "diff", "one", "other", "--atol", "1e-6").expect(0, out="3 values compared")
    optest("model", "trace", "small.onnx", "--seed", 1, "--out", "third")
    optest("model", "diff", "one", "third").expect(1, out="first: positive (Relu)")


DUMP = {"a": np.ones((2, 2), np.float32), "b": np.array([1, np.nan, np.inf], ml_dtypes.bfloat16), "c": np.arange(3)}


@pytest.mark.parametrize(
    ("change", "options", "status", "words"),
    [
        ({}, (), 0, "3 values compared, 3 equal"),
        ({"a": DUMP["a"] * np.float32(1.001)}, (), 1, "first: a"),
        ({"a": DUMP["a"] * np.float32(1.001)}, ("--rtol", "0.01"), 0, "3 within"),
        ({"b": np.array([1, np.nan, 3], ml_dtypes.bfloat16)}, ("--rtol", "1", "--atol", "10"), 1, "first: b"),
        ({"b": DUMP["b"].astype(np.float32)}, (), 1, "bfloat16[3] and float32[3]"),
        ({"c": np.arange(4)}, (), 1, "int64[3] and int64[4]"),
        ({"c": None}, (), 1, "missing in the second, 1: c"),
        ({"c": None}, ("--common",), 0, "2 values compared"),
        ({"d": np.ones(1)}, (), 1, "missing in the first, 1: d"),
        (dict.fromkeys(DUMP) | {"d": np.ones(1)}, ("--common",), 1, "nothing was compared"),
    ],
)
def test_a_diff_names_what_differs(
    optest: Shell, tmp_path: Path, change: dict[str, np.ndarray], options: tuple[str, ...], status: int, words: str
) -> None:
    other = {name: value for name, value in {**DUMP, **change}.items() if value is not None}
    for name, dump in (("one", DUMP), ("other", other)):
        safetensors_numpy.save_file(dump, tmp_path / name)
    optest("model", "diff", "one", "other", *options).expect(status, out=words)


def test_first_difference_follows_execution_order(optest: Shell, tmp_path: Path) -> None:
    for name in ("one", "other"):
        optest("model", "run", "small.onnx", "--variant", "disabled", "--dump-dir", name)
    other = tmp_path / "other/00000/values.safetensors"
    values = tensors(other)
    safetensors_numpy.save_file({**values, "logits": values["logits"] + 1, "product": values["product"] + 1}, other)
    ended = optest("model", "diff", "one/00000/values.safetensors", other).expect(1)
    assert says(ended.out, "cli.equal_not_first_product")


def write_dump(path: Path, *values: tuple[str, str, str, np.ndarray]) -> None:
    index = [{"name": name, "operator": operator, "place": place} for name, operator, place, _ in values]
    save_tensors({name: array for name, *_, array in values}, path, "m", values=json.dumps(index))


def test_different_exports_are_matched_by_producer(optest: Shell, tmp_path: Path) -> None:
    a, b, c = (np.full((2, 3), each, np.float32) for each in (1, 2, 3))
    norm, rotary = "norm, m.py:3: x = norm(x)", "rotary, m.py:{}: return x * cos, y * cos"
    write_dump(
        tmp_path / "onnx",
        ("mul", "Mul", norm, c),  # a step of the norm, which is one operator in torch
        ("mul_2", "Mul", rotary.format(7), b),  # the optimiser runs it before mul_1
        ("mul_1", "Mul", rotary.format(7), a),
        ("logits", "Add", "m.py:9: return z", c),
    )
    write_dump(
        tmp_path / "torch",
        ("rms_norm", "aten.rms_norm.default", norm, c),
        ("mul", "aten.mul.Tensor", rotary.format(8), a),  # one line was inserted above
        ("mul_1", "aten.mul.Tensor", rotary.format(8), b),
        ("logits", "aten.add.Tensor", "m.py:10: return z", c),
    )
    ended = optest("model", "diff", "onnx", "torch", "--common").expect(0)
    assert says(ended.out, "cli.not_compared_of_the")
    assert says(ended.out, "cli.not_compared_of_the_second")
    assert "3 values compared, 3 equal" in ended.out
    assert optest("model", "diff", "onnx", "torch").status == 1, "what was not compared is a difference"


def test_wrong_value_is_named_in_both_exports(optest: Shell, tmp_path: Path) -> None:
    right, wrong = np.ones(4, np.float32), np.array([1, 1, 5, 1], np.float32)
    write_dump(tmp_path / "onnx", ("add", "Add", "m.py:1: n(x)", right), ("add_1", "Add", "m.py:2: x + y", right))
    write_dump(tmp_path / "torch", ("add", "aten.add.Tensor", "m.py:2: x + y", wrong))
    assert says(optest("model", "diff", "onnx", "torch", "--common").expect(1).out, "cli.equal_not_first_add")


def test_a_statement_with_other_steps_is_not_compared(optest: Shell, tmp_path: Path) -> None:
    """One line of code may be two values here and four there: nothing shows which of them are the same."""
    array, line = np.ones(4, np.float32), "m.py:1: return norm(x) * cos"
    write_dump(tmp_path / "onnx", *((f"mul_{each}", "Mul", line, array * each) for each in range(1, 4)))
    write_dump(tmp_path / "torch", *((f"mul_{each}", "aten.mul.Tensor", line, array) for each in range(1, 3)))
    optest("model", "diff", "onnx", "torch", "--common").expect(1, out="nothing was compared")


def test_dumps_of_one_export_are_matched_by_name(optest: Shell, tmp_path: Path) -> None:
    array, line = np.ones(4, np.float32), "m.py:{}: return norm(x) * cos"
    whole = [(f"mul_{each}", "Mul", line.format(1), array * each) for each in range(1, 4)]
    write_dump(tmp_path / "one", *whole)
    write_dump(tmp_path / "fused", ("mul_3", "FusedMul", line.format(1), array * 3))
    write_dump(tmp_path / "edited", *((name, operator, line.format(5), each) for name, operator, _, each in whole))
    assert "1 value compared, 1 equal" in optest("model", "diff", "one", "fused", "--common").out
    assert "3 values compared, 3 equal" in optest("model", "diff", "one", "edited").out


def test_diff_needs_two_dumps(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"no safetensors")
    assert optest("model", "diff", "damaged").status == 2
    assert optest("model", "diff", "damaged", "damaged").status == 2


@pytest.mark.heavy
def test_each_combination_of_a_benchmark_is_a_row(optest: Shell) -> None:
    quick = ("--bench-time", "0.001")
    ended = optest("model", "bench", "small.onnx", "--threads", 1, 2, "--batch", "1,8", *quick, timeout=100).expect(0)
    rows = re.findall(r"^  onnxruntime:(\w+) +(\d) +(\d) .* items/s", ended.out, re.M)
    assert rows == [(on, t, b) for t in "12" for b in "18" for on in ("disabled", "all")]
    assert "threads: 1;" in ended.out
    assert "threads: 2;" in ended.out


@pytest.mark.heavy
def test_untimeable_bench_requests_are_refused(optest: Shell) -> None:
    assert optest("model", "bench", "small.onnx", "--threads", "0").status == 2
    assert optest("model", "bench", "small.onnx", "--backend", "onnx-reference", "--threads", "2").status == 2
    assert optest("model", "bench", "nothing.onnx").status == 2


FRAGILE = """
import os, signal
from pathlib import Path
import torch

class Fragile(torch.nn.Module):
    def forward(self, x):
        with open("seen", "a") as seen:
            print(os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads(), file=seen)
        if x.shape[0] == 2:
            print("dying", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if x.shape[0] == 3:
            raise MemoryError("too large")
        return x + 1

def fragile():
    return Fragile(), torch.ones(1, 3)
"""


@pytest.mark.heavy
@pytest.mark.torch
def test_bench_continues_after_a_dead_child(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FRAGILE)
    options = ("--batch", 1, 2, 3, 4, "--threads", "3", "--bench-time", "0.001")
    ended = optest("model", "bench", "mine.py:fragile", *options, timeout=200).expect(1)
    assert re.findall(r"^  torch:eager +3 +(\d) +\S+ .*items/s", ended.out, re.M) == ["1", "4"]
    assert re.search(r"batch 2\n.*SIGKILL.*\ndying", ended.err)
    assert re.search(r"batch 3\nOUT_OF_MEMORY", ended.err)
    environments, threads = zip(*(line.split() for line in (tmp_path / "seen").read_text().splitlines()), strict=True)
    assert {*environments} == {"3"}
    assert threads[-1] == "3"


def tokens_of(optest: Shell, *options: object) -> str:
    ended = optest("model", "run", "gpt2", "--prompt", "5 6 7", "--max-tokens", 6, *options).expect(0)
    return next(line for line in ended.out.splitlines() if line.startswith("ids: "))


CALLED_INPUT = """
import torch

class Named(torch.nn.Module):
    def forward(self, input):
        return (input + 1).relu()

def named():
    return Named(), torch.ones(3)
"""


@pytest.mark.heavy
@pytest.mark.torch
def test_renamed_graph_input_reaches_the_model(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CALLED_INPUT)
    for command in ("validate", "trace"):
        optest("model", command, "mine.py:named", "--backend", "torch", "--dump-dir", command).expect(0)
        index = json.loads((tmp_path / command / "named/00000/index.json").read_text())
        assert [each["name"] for each in index["values"]] == ["add", "output"]
        assert index["outputs_unchanged_by_watching"] is True


@pytest.mark.heavy
@pytest.mark.torch
def test_failed_export_is_reported_as_compile(optest: Shell, tmp_path: Path) -> None:
    branching = CALLED_INPUT.replace("(input + 1).relu()", "input if input.sum() > 0 else -input")
    (tmp_path / "mine.py").write_text(branching)
    ended = optest("model", "validate", "mine.py:named", "--backend", "torch").expect(1)
    assert ended.err.startswith("optest: COMPILE: export failed: mine.py:named")
    assert optest("model", "run", "mine.py:named", "--variant", "aot_eager").status == 0


@pytest.mark.heavy
@pytest.mark.torch
def test_a_device_that_there_is_not_is_refused(optest: Shell) -> None:
    for command in ("run", "trace"):
        ended = optest("model", command, "resnet34", "--backend", "torch", "--torch-device", "cdua").expect(2)
        assert says(ended.err, "cli.unknown_torch_device_cdua")


@pytest.mark.heavy
@pytest.mark.torch
def test_generation_agrees_across_backends_and_cache(optest: Shell) -> None:
    drawn = ("--temperature", "0.8", "--seed", 3)
    first = tokens_of(optest, *drawn)
    assert len(first.split()) == 7
    assert tokens_of(optest, *drawn, "--kv-cache") == first
    assert tokens_of(optest, *drawn, "--backend", "onnxruntime") == first
    assert tokens_of(optest, "--temperature", "0.8", "--seed", 4) != first


@pytest.mark.heavy
@pytest.mark.torch
def test_a_prompt_needs_a_model_that_can_write(optest: Shell) -> None:
    refused = [
        ("resnet34", "--prompt", "1 2"),
        ("small.onnx", "--prompt", "1 2"),
        ("gpt2", "--prompt", "1 999999"),
        ("gpt2", "--prompt", "1", "--max-tokens", 1000),
        ("gpt2", "--prompt", "1", "--backend", "onnxruntime", "--kv-cache"),
        ("gpt2", "--max-tokens", 3),
    ]
    for arguments in refused:
        assert optest("model", "run", *arguments).status == 2, arguments


@pytest.mark.heavy
@pytest.mark.torch
def test_exported_weights_are_those_that_are_read_again(optest: Shell, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    safetensors_numpy.save_file({"x": x}, tmp_path / "x.safetensors")
    assert optest("model", "export-weights", "resnet34", "--seed", 5, "--out", "w.safetensors").status == 0
    ways = (("--seed", 5), ("--seed", 6), ("--seed", 6, "--weights", "w.safetensors"))
    ended = [optest("model", "run", "resnet34", "--input", "x.safetensors", *options) for options in ways]
    drawn, others, read = (without_times(each.out) for each in ended)
    assert "top-1" in drawn
    assert read == drawn != others
    assert optest("model", "run", "gpt2", "--weights", "w.safetensors").status == 2

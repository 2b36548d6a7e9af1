"""``optest model`` as a user types it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from safetensors.numpy import save_file
from small_models import VALUES, renamed, written
from texts import says
from user_shell import Shell

TOY = {"OPTEST_PLUGINS": "toy_optimizer"}
NOT_NEGATIVE = "expected a finite number of 0 or more"


def other_axis(model: Any) -> None:
    model.graph.node[5].attribute[0].i = 0


def by_erf(model: Any) -> None:
    model.graph.node[3].attribute[0].s = b"none"


@pytest.mark.heavy
@pytest.mark.torch
def test_a_model_of_torch_is_validated_and_traced(optest: Shell, tmp_path: Path) -> None:
    some = ("gpt2", "--preset", "balanced", "--config", "n_layer=1")
    optest("model", "validate", *some).expect(0, out=("2 passed", "float32, threads: "))
    (file,) = tmp_path.glob(".optest/models/gpt2-*/model.onnx")
    inputs = file.with_name("inputs.safetensors")
    for mode in ("isolated", "accumulated"):
        optest("model", "trace", file, "--input", inputs, "--mode", mode).expect(0, out=" passed in ")
    model = onnx.load(file)
    next(each for each in model.graph.node if each.op_type == "Gelu").attribute[0].s = b"none"
    onnx.save(model, tmp_path / "faulty.onnx")
    ended = optest("model", "trace", file, "--input", inputs, "--optimized", "faulty.onnx").expect(1)
    (line,) = [each for each in ended.out.splitlines() if each.startswith("first mismatch: ")]
    assert "model/gelu (Gelu, transformer.h.0.mlp" in line
    assert line.endswith("; 1 of 32 values fail")


def test_trace_names_the_faulty_node(optest: Shell, tmp_path: Path) -> None:
    written(tmp_path / "m.onnx")
    written(tmp_path / "o.onnx", by_erf)
    trace = ("model", "trace", "m.onnx", "--optimized", "o.onnx")
    of_the_reference = ("--backend", "onnx-reference")  # which has no variants
    for more, count in (("isolated",), 1), (("accumulated",), 3), (("isolated", *of_the_reference), 1):
        optest(*trace, "--mode", *more).expect(1, out=f"first mismatch: m/gelu (Gelu); {count} of 6 values fail")
    ended = optest(*trace, *of_the_reference, "--variant", "basic")
    assert says(ended.text, "cli.onnx_reference_has_no")


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
def test_nothing_behind_the_first_mismatch_is_computed(optest: Shell, tmp_path: Path, mode: str) -> None:
    def early(model: Any) -> None:
        by_erf(model)
        other_axis(model)

    written(tmp_path / "m.onnx")
    written(tmp_path / "o.onnx", early)
    some = ("--backend", "toy_optimizer", "--optimized", "o.onnx", "--mode", mode)
    ended = optest("model", "trace", "m.onnx", *some, "--stop-on-first-mismatch", env=TOY)
    ended.expect(1, out="first mismatch: m/gelu")
    log = tmp_path / "nodes.log"
    assert [*dict.fromkeys(log.read_text().split())] == [*VALUES[:4]]
    log.unlink()
    optest("model", "trace", "m.onnx", *some, env=TOY).expect(1)
    assert [*dict.fromkeys(log.read_text().split())] == [*VALUES]


def test_bisect_names_level_pass_and_node(optest: Shell, tmp_path: Path) -> None:
    written(tmp_path / "m.onnx")
    bisect = ("model", "bisect", "m.onnx", "--backend", "toy_optimizer")
    ended = optest(*bisect, env=TOY)
    said = ["level: all, of disabled, some, all", "passes: Breaks", "node: out (Softmax)"]
    assert (ended.status, ended.out.splitlines()[:3]) == (1, said), ended.text
    assert ended.out.endswith(f"OPTEST_PLUGINS={TOY['OPTEST_PLUGINS']} optest run --plan bisected/plan.yaml\n")
    optest("run", "--plan", "bisected/plan.yaml", env=TOY).expect(1, out="FAILED  m/out")
    node = onnx.load(tmp_path / "bisected" / "node.onnx")
    assert [each.op_type for each in node.graph.node] == ["Softmax"]
    optest(*bisect, "--variant", "some", env=TOY).expect(0, out="there is nothing to bisect")
    optest(*bisect, "--exact", env=TOY).expect(1, out="passes: Breaks")


def test_broken_optimised_model_blames_the_backend(optest: Shell, tmp_path: Path) -> None:
    written(tmp_path / "m.onnx")
    some = ("m.onnx", "--backend", "refusing")
    for command in ("validate", "trace"):
        ended = optest("model", command, *some, env=TOY)
        said = ["COMPILE", "node input 'mid' is of no node", "it loads at disabled, some, and is refused at all"]
        assert (ended.status, [each for each in said if each not in ended.out]) == (1, []), ended.text
    ended = optest("model", "bisect", *some, env=TOY)
    assert (ended.status, ended.out.splitlines()[:2]) == (1, ["level: all, of disabled, some, all", "passes: Breaks"])
    assert optest("model", "validate", *some, "--variant", "some", env=TOY).status == 0


def _no_input(path: Path) -> None:
    infos = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "out")]
    one = numpy_helper.from_array(np.ones(2, np.float32), "one")
    graph = helper.make_graph([helper.make_node("Relu", ["one"], ["out"])], "g", infos[:1], infos[1:], [one])
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)]), path)


def _of_nobody(model: Any) -> None:
    model.graph.node[3].op_type, model.graph.node[3].domain = "Gulp", "nobody"
    model.opset_import.append(helper.make_opsetid("nobody", 1))


def _unknown(model: Any) -> None:
    model.graph.node[3].op_type = "Gulp"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nope",), "unknown model 'nope'"),
        (("m.onnx", "--backend", "nope"), "unknown backend 'nope'"),
        (("m.onnx", "--backend", "numpy"), "backend numpy runs no whole models"),
        (("m.onnx", "--backend", "torch"), "m.onnx, an ONNX file"),
        (("m.onnx", "--variant", "fast"), "backend onnxruntime has no variant fast, expected disabled, basic"),
        (("m.onnx", "--config", "n_layer=2"), "expected an open size of the model: batch"),
        (("m.onnx", "--config", "batch=none"), "--config sets batch=none, expected an integer"),
        (("m.onnx", "--preset", "small"), "m.onnx contains its weights"),
        (("m.onnx", "--weights", "w.safetensors"), "m.onnx contains its weights"),
        (("m.onnx", "--input", "w.safetensors"), "w.safetensors has w, expected x"),
        (("m.onnx", "--input", "none.safetensors"), "none.safetensors cannot be read"),
        (("m.onnx", "--input", "wide.npz"), "wide.npz is float64 [3, 8], expected float32 [3, 8]"),
        (("m.onnx", "--input", "text.npz"), "text.npz cannot be read"),
        (("m.onnx", "--input", "text.pb"), "text.pb cannot be read"),
        (("m.onnx", "--input", "outside.pb"), "should be stored in "),
        (("m.onnx", "--input", "member.npz"), "member.npz is |S5 [], expected float32"),
        (("m.onnx", "--optimized", "renamed.onnx"), "outputs of the optimised model are other_out, expected out"),
        (("m.onnx", "--optimized", "none.onnx"), "there is no file "),
        (("none.onnx",), "there is no file "),
        (("text.onnx",), "text.onnx is not an ONNX model"),
        (("outside.onnx",), "should be stored in "),
        (("unknown.onnx",), "No Op registered for Gulp"),
        (("nobody.onnx",), "there is no operator nobody:Gulp"),
        (("no_input.onnx",), "no_input has no value that is computed from its inputs"),
    ],
)
def test_what_cannot_be_traced_is_said(optest: Shell, tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    written(tmp_path / "m.onnx")
    written(tmp_path / "renamed.onnx", lambda model: renamed(model, outputs=True))
    written(tmp_path / "unknown.onnx", _unknown)
    written(tmp_path / "nobody.onnx", _of_nobody)
    _no_input(tmp_path / "no_input.onnx")
    outside = {"save_as_external_data": True, "location": "out.bin", "size_threshold": 0}
    onnx.save(onnx.load(tmp_path / "m.onnx"), tmp_path / "outside.onnx", **outside)
    (tmp_path / "out.bin").unlink()
    for name in ("text.onnx", "text.npz", "text.pb"):
        (tmp_path / name).write_text("no model")
    np.savez(tmp_path / "wide.npz", x=np.zeros((3, 8)))
    with ZipFile(tmp_path / "member.npz", "w") as archive:
        archive.writestr("x.npy", "hello")
    outside_tensor = onnx.TensorProto(name="x", data_type=1, dims=[3, 8], data_location=onnx.TensorProto.EXTERNAL)
    outside_tensor.external_data.add(key="location", value="none.bin")
    (tmp_path / "outside.pb").write_bytes(outside_tensor.SerializeToString())
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "w.safetensors")
    ended = optest("model", "trace", *words)
    said = ended.out if "nobody.onnx" in words else ended.err
    assert (ended.status, text in said) == (5 if "nobody.onnx" in words else 2, True), ended.text
    assert "Traceback" not in ended.err


def test_what_is_refused_is_not_taken_for_agreement(optest: Shell, tmp_path: Path) -> None:
    written(tmp_path / "nobody.onnx", _of_nobody)
    for backend in ("onnxruntime", "onnx-reference"):
        optest("model", "bisect", "nobody.onnx", "--backend", backend).expect(5, err="nobody")
    ended = optest("model", "validate", "nobody.onnx", "--backend", "onnx-reference")
    ended.expect(5, out="Node type 'Gulp' from domain 'nobody' is unknown")


BRANCHES = """\
import torch


class Branches(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def model():
    return Branches(), (torch.ones(2, 3),)
"""


@pytest.mark.heavy
@pytest.mark.torch
def test_models_of_torch_that_cannot_be_used(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "branches.py").write_text(BRANCHES)
    save_file({"transformer.wte.weight": np.zeros((3, 2), np.float32)}, tmp_path / "w.safetensors")
    for words, texts in (
        (("gpt2", "--config", "n_layers=2"), ["gpt2 has no n_layers; did you mean n_layer?"]),
        (("gpt2", "--config", "n_layer=none"), ["n_layer of gpt2 is 'none', expected a whole number"]),
        (("gpt2", "--preset", "tiny"), ["unknown preset 'tiny'"]),
        (
            ("gpt2", "--weights", "w.safetensors"),
            ["missing: ", "shape: transformer.wte.weight is [3, 2], expected [512, 64]"],
        ),
        (("branches.py:model",), ["export failed: branches.py:model to "]),
        (("branches.py:none",), ["none"]),
    ):
        ended = optest("model", "validate", *words)
        status = 1 if "branches.py:model" in words else 2
        assert (ended.status, [each for each in texts if each not in ended.err]) == (status, []), ended.text
    (tmp_path / "suite.yaml").write_text("runs:\n  - {model: 'branches.py:model'}\n  - {model: gpt2, preset: small}\n")
    ended = optest("model", "suite", "suite.yaml")
    assert says(ended.err, "cli.branches_py_model_validate")
    assert "2 passed" in ended.out  # of the other one
    assert ended.status == 1


@pytest.mark.heavy
def test_tracing_a_file_imports_no_framework(process: Shell, tmp_path: Path) -> None:
    written(tmp_path / "m.onnx")
    code = (
        "import sys; from optest.cli import main; sys.argv[1:] = ['model', 'validate', 'm.onnx', '-q']\n"
        "try: main()\nexcept SystemExit as end: print(end.code)\n"
        "print([each for each in ('torch', 'transformers', 'jax', 'openvino') if each in sys.modules])"
    )
    ended = process(sys.executable, "-c", code, env={**os.environ})
    assert ended.out.splitlines()[-1] == "[]", ended.text


@pytest.mark.parametrize(
    "run",
    [
        "{model: gpt2, workload: 3}",
        "{model: [a], workload: [validate]}",
        "{model: gpt2, workload: [{}]}",
        "{model: gpt2, workload: []}",
        "{model: gpt2, seed: x}",
        "{model: gpt2, seed: true}",
        "{model: gpt2, profile: 1}",
        "{model: gpt2, config: 3}",
        "{model: gpt2, config: [[a]]}",
        "{model: gpt2, workload: bench, threads: [1, x]}",
        "{model: gpt2, workload: run, max_tokens: 0}",
        "{model: gpt2, backend: null}",
    ],
)
def test_each_value_of_a_suite_has_a_type(optest: Shell, tmp_path: Path, run: str) -> None:
    (tmp_path / "suite.yaml").write_text(f"runs:\n  - {run}\n")
    ended = optest("model", "suite", "suite.yaml").expect(2)
    assert ended.err.startswith("suite.yaml:2 $.runs[0].")
    assert ended.err.endswith("optest: 1 problem; nothing was run\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("trace", "m.onnx", "--out", "folder"), "report path folder is a directory, expected a file"),
        (("trace", "m.onnx", "--out", "m.onnx/x"), "report path m.onnx/x cannot be written: "),
        *(
            (("diff", "w.safetensors", "w.safetensors", f"--{name}", value), f"--{name} is {value}, {NOT_NEGATIVE}")
            for name, value in (("rtol", "nan"), ("rtol", "inf"), ("atol", "-1"))
        ),
    ],
)
def test_an_option_is_refused_before_the_work(optest: Shell, tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    written(tmp_path / "m.onnx")
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "w.safetensors")
    (tmp_path / "folder").mkdir()
    assert optest("model", *words).expect(2, err=text).out == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("diff", "pipe.safetensors", "pipe.safetensors"), "pipe.safetensors is a pipe, expected a regular file"),
        (("diff", "/dev/zero", "/dev/zero"), "/dev/zero is a device, expected a regular file"),
        (("validate", "m.onnx", "--input", "pipe.safetensors"), "pipe.safetensors is a pipe, expected a regular"),
    ],
)
def test_a_pipe_is_not_waited_for(optest: Shell, tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    written(tmp_path / "m.onnx")
    os.mkfifo(tmp_path / "pipe.safetensors")
    optest("model", *words).expect(2, err=text)

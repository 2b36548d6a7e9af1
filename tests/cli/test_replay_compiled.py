"""What a compiler or a gradient got wrong is as wrong in a replay, and in a script of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from user_shell import Shell

pytest.importorskip("torch")
pytestmark = pytest.mark.heavy

COMPILERS = """\
import torch._dynamo
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

def right(graph, _):
    return make_boxed_func(graph)

def half_as_much(graph, _):
    return make_boxed_func(lambda *given: [each * 1.5 for each in graph(*given)])

forward = aot_autograd(fw_compiler=half_as_much, bw_compiler=right)
backward = aot_autograd(fw_compiler=right, bw_compiler=half_as_much)

def wrong_forward(graph, example):
    return forward(graph, example)

def wrong_backward(graph, example):
    return backward(graph, example)

torch._dynamo.register_backend(wrong_forward, name="wrong_forward")
torch._dynamo.register_backend(wrong_backward, name="wrong_backward")
"""
CASES = """\
model: tiny
defaults: {dtype: bf16, seed: 1}
cases:
  - {name: tanh, op: torch.tanh, inputs: [{tensor: {shape: [16, 16], stride: [1, 16], init: randn}}]}
  - {name: gelu, op: torch.nn.functional.gelu, grad: true, inputs: [{tensor: {shape: [16, 16], init: randn}}]}
  - {name: elu_, op: torch.nn.functional.elu_, grad: true, inputs: [{tensor: {shape: [16, 16], init: randn}}]}
  - name: matmul
    op: torch.matmul
    grad: true
    inputs: [{tensor: {shape: [4, 8], init: randn}}, {tensor: {shape: [8, 4], init: randn}}]
"""
PLUGIN = {"OPTEST_PLUGINS": "compilers"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "compilers.py").write_text(COMPILERS)
    (tmp_path / "tiny.yaml").write_text(CASES)
    return tmp_path


def test_a_replay_asks_the_compiler_of_its_run(optest: Shell, folder: Path) -> None:
    optest("run", "--plan", "tiny.yaml", "-k", "tanh", "--compile-backend", "wrong_forward", env=PLUGIN).expect(1)
    for _ in range(2):  # of a replay, too
        assert optest("replay", "tiny::tanh", env=PLUGIN).status == 1
    optest("replay", "tiny::tanh", "--compile-backend", "eager", env=PLUGIN).expect(0)


@pytest.mark.parametrize(
    ("compiler", "which", "needs_optest"),
    [
        ("wrong_forward", ("tanh",), False),
        ("wrong_forward", ("elu_",), True),
        ("wrong_backward", ("gelu", "matmul"), True),
    ],
)
def test_script_shows_failures_of_compiled_calls_and_gradients(
    optest: Shell, process: Shell, folder: Path, compiler: str, which: tuple[str, ...], needs_optest: bool
) -> None:
    words = ("-k", " or ".join(which))
    optest("run", "--plan", "tiny.yaml", *words, "--compile-backend", compiler, env=PLUGIN).expect(1)
    ended = optest("replay", "--script", "scripts", env=PLUGIN)
    scripts = sorted((folder / "scripts").glob("*.py"))
    assert len(scripts) == len(which), ended.text
    for script in scripts:
        assert ("from optest" in script.read_text()) is needs_optest
        ended = process(sys.executable, script, env={"PATH": "/usr/bin:/bin"}).expect(1, out=": got ")
        assert ended.err.rstrip().endswith("AssertionError"), ended.err


@pytest.mark.usefixtures("folder")
def test_a_script_compiles_a_call_of_the_catalogue(optest: Shell, process: Shell) -> None:
    relu = ("--op", "relu", "--dtype", "float32", "--shape", "input0=64", "--backend", "torch")
    assert optest("run", *relu, "--compile-backend", "wrong_forward", env=PLUGIN).status == 1
    assert optest("replay", "--script", "relu.py", env=PLUGIN).status == 1
    ended = process(sys.executable, "relu.py")
    assert ended.err.rstrip().endswith("AssertionError"), ended.err


@pytest.mark.usefixtures("folder")
def test_script_of_right_gradients_needs_optest_and_passes(optest: Shell, process: Shell) -> None:
    assert optest("run", "--plan", "tiny.yaml").status == 0
    ended = optest("replay", "tiny::matmul", "--script", "matmul.py")
    assert "gradients are drawn and differentiated by optest" in ended.out, ended.text
    process(sys.executable, "matmul.py").expect(0)

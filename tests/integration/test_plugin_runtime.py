"""The example of a foreign runtime as a plug-in, over a stand-in for the vendor's packages that computes in Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from texts import says

EXAMPLE = Path(__file__).parents[2] / "examples" / "scenes" / "plugin_runtime"

TASK_INTERFACE = """
import enum, json, os
class ArgDirection(enum.Enum):
    SCALAR, IN, OUT, INOUT = 0, 1, 2, 3
class ChipCallConfig:
    block_dim = aicpu_thread_num = 0
class ChipStorageTaskArgs:
    def __init__(self): self.tensors, self.scalars = [], []
    def add_tensor(self, each): self.tensors.append(each)
    def add_scalar(self, each): self.scalars.append(each)
def make_tensor_arg(tensor):
    assert tensor.is_contiguous()
    return tensor
def scalar_to_uint64(value): return int(getattr(value, "value", value))
class CoreCallable:
    @staticmethod
    def build(signature, binary): return binary
class ChipCallable:
    @staticmethod
    def build(signature, func_name, binary, children, config_name=""):
        assert all(isinstance(each, ArgDirection) for each in signature)
        return binary, dict(children)
class ChipWorker:
    profiled = False
    def init(self, *paths): self.paths, self.level = paths, os.environ.get("PTO_LOG_LEVEL")
    def set_device(self, device): self.device = device
    def finalize(self): pass
    def run(self, callable, args, config=None):
        orchestration, cores = callable
        exec(orchestration, {"args": args.tensors, "scalars": args.scalars, "cores": cores})
        write(device=self.device, paths=self.paths, block_dim=config.block_dim, level=self.level)
        if config.enable_profiling:
            if self.profiled: raise RuntimeError("PerformanceCollector already initialized")
            self.profiled = True
            with open(os.path.join(os.environ["SIMPLER_PERF_OUTPUT_DIR"], "perf_swimlane_1.json"), "w") as file:
                file.write("[]")
def write(**said):
    with open(os.environ["STAND_IN_LOG"], "a") as file:
        print(json.dumps(said), file=file)
"""
SETUP = """
import os, subprocess, sys, tempfile
from types import SimpleNamespace
from .scene_test import CallableNamespace, Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test
class KernelCompiler:
    def __init__(self, platform): self.platform = platform
    def get_orchestration_include_dirs(self, runtime): return []
    def compile_orchestration(self, runtime, source): return self._compile("Orchestration", __file__, source)
    def compile_incore(self, source, core_type, pto_isa_root, extra_include_dirs):
        return self._compile("Incore", source)
    def _compile(self, label, *sources):
        fd, path = tempfile.mkstemp(prefix="object_")
        os.close(fd)
        program = os.path.join(os.path.dirname(__file__), "compile.py")
        cmd = [sys.executable, program, *sources[:-1], "-o", path, sources[-1]]
        return self._compile_to_bytes(cmd, path, label, error_hint="no compiler", delete_output=True)
    def _compile_to_bytes(self, cmd, output_path, label, error_hint="", delete_output=True):
        ended = subprocess.run(cmd, capture_output=True, text=True)
        if ended.returncode: raise RuntimeError(f"{label} compilation failed:\\n{ended.stderr}")
        with open(output_path) as file: made = file.read()
        os.remove(output_path)
        return made.encode()
class RuntimeBuilder:
    def __init__(self, platform): self.platform = platform
    def get_binaries(self, name, build=False):
        paths = {"host_path": name, "aicpu_path": self.platform, "aicore_path": "built" * build}
        return SimpleNamespace(**paths, sim_context_path=None)
def ensure_pto_isa_root(): return "isa"
def extract_text_section(binary): return binary
"""
COMPILER = """
import os, re, sys
*others, _, output, source = sys.argv[1:]
with open(os.environ["STAND_IN_LOG"] + ".compiled", "a") as log: print(os.path.basename(source), file=log)
rules, made = [], ""
for each in (*others, source):
    text, folder = open(each).read(), os.path.dirname(each)
    if "#error" in text: sys.exit(f"{each}: #error")
    headers = [os.path.join(folder, name) for name in re.findall(r"^# include (.+)$", text, re.M)]
    files = [name.replace(" ", "\\\\ ") for name in (each, *headers)]
    rules.append(f"{os.path.basename(each)}.o: " + " \\\\\\n  ".join(files))
    made = "\\n".join([*(open(name).read() for name in headers), text])
with open(output, "w") as file: file.write(made)
if name := os.environ.get("DEPENDENCIES_OUTPUT"):
    with open(name.partition(" ")[0], "a") as file: print(*rules, sep="\\n", file=file)
"""
RUNNER = """
from typing import Any, NamedTuple
class Tensor(NamedTuple):
    name: str
    value: Any
class Scalar(Tensor): pass
class TaskArgsBuilder:
    def __init__(self, *specs): self.specs = specs
class CallableNamespace:
    def __init__(self, entries): vars(self).update(entries)
def scene_test(level, runtime):
    def declare(scene):
        scene._st_runtime = runtime
        return scene
    return declare
class SceneTestCase:
    RTOL = ATOL = 1e-5
    @classmethod
    def compile_chip_callable(cls, platform): return f"{cls._st_runtime} on {platform}"
    def test_run(self, request):
        assert request.config.getoption("--rounds") > 1, "all cases in one"
    @staticmethod
    def run_module(name): raise AssertionError("another runner")
def tensors_in(args):
    return [each.value for each in args.specs if isinstance(each, Tensor)]
"""
WORKER = """
import os
class Worker:
    def __init__(self, level, device_ids, num_sub_workers, platform, runtime, build):
        self.devices, self.subs = device_ids, []
        assert (level, num_sub_workers, runtime) == (3, 1, "tensormap_and_ringbuffer")
    def register(self, function):
        self.subs.append(function)
        return len(self.subs) - 1
    def init(self): pass
    def submit(self, binary, args):
        child = os.fork()
        if child == 0:
            exec(binary[1][3], {"x": args[0], "y": args[1], "n": len(self.devices)})
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    def submit_sub(self, number, *args): self.subs[number](*args)
    def run(self, function): function(self, None, None)
    def close(self): pass
"""
OF_UPSTREAM = """
import torch
from simpler.task_interface import ArgDirection as D
from simpler_setup import SceneTestCase, TaskArgsBuilder, Tensor, scene_test
from simpler_setup.scene_test import tensors_in

CHIP = {
    "orchestration": {"source": "kernels/orchestration.py", "function_name": "add", "signature": [D.IN, D.OUT]},
    "incores": [{"func_id": 3, "source": "kernels/twice.py", "core_type": "aiv", "signature": [D.IN, D.OUT]}],
}

class Doubled(SceneTestCase):
    def generate_args(self, params):
        x = torch.arange(64, dtype=torch.bfloat16)
        return TaskArgsBuilder(Tensor("x", x), Tensor("y", torch.zeros(64, dtype=torch.bfloat16)))
    def compute_golden(self, args, params):
        args.y[:] = 2 * args.x

@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestTwo(Doubled):
    CALLABLE = CHIP
    CASES = [{"name": "default", "platforms": ["a2a3sim", "a2a3"], "params": {}}]

@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class _Helper(SceneTestCase):
    __test__ = False
    CALLABLE = CHIP

def test_by_hand():
    assert _Helper.compile_chip_callable("a2a3sim") == "tensormap_and_ringbuffer on a2a3sim"

def run_dag(orch, callables, task_args, config):
    assert callables.chip_sig == [D.IN, D.OUT]
    orch.submit(callables.chip, tensors_in(task_args))
    orch.submit_sub(callables.check, task_args.y)

def check(y):
    assert y[1] == 2

@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestThree(Doubled):
    CALLABLE = {
        "orchestration": run_dag, "callables": [{"name": "chip", **CHIP}, {"name": "check", "callable": check}]
    }
    CASES = [{"name": "default", "platforms": ["a2a3sim"], "config": {"device_count": 2, "num_sub_workers": 1}}]

if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
"""
SCENE = """
import numpy as np
from optest.scenes import ArgDirection as D, Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test

@scene_test(level=2, runtime="tensormap_and_ringbuffer", platforms=["a2a3sim", "a2a3"])
class TestAdd(SceneTestCase):
    CALLABLE = {
        "orchestration": {"source": "kernels/orchestration.py", "function_name": "add", "signature": [D.IN, D.OUT]},
        "incores": [{"func_id": 3, "source": "kernels/add.py", "core_type": "aiv"}],
    }
    CASES = [{"name": "default", "config": {"block_dim": 24}}]

    def generate_args(self, params):
        return TaskArgsBuilder(
            Tensor("x", np.arange(8, dtype=np.float32)), Tensor("y", np.zeros(8, np.float32)), Scalar("n", 5)
        )

    def compute_golden(self, args, params):
        args.y[:] = args.x + 5
"""
pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "vendor/simpler/__init__.py": "",
        "vendor/simpler/task_interface.py": TASK_INTERFACE,
        "vendor/simpler/worker.py": WORKER,
        "vendor/simpler_setup/__init__.py": SETUP,
        "vendor/simpler_setup/scene_test.py": RUNNER,
        "vendor/simpler_setup/compile.py": COMPILER,
        "test_add.py": SCENE,
        "kernels/orchestration.py": "exec(cores[3], {'x': args[0], 'y': args[1], 'n': scalars[0] if scalars else 0})",
        "kernels/add.py": "y[:] = x + n",
        "kernels/twice.py": "y[:] = x * 2",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def optest(folder: Path, *words: str, vendor: str = "vendor") -> str:
    return python(folder, "-m", "optest", *words, "--source", "scene:test_add.py", vendor=vendor)


def python(folder: Path, *words: str, vendor: str = "vendor") -> str:
    paths = [str(EXAMPLE), str(folder / vendor), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        **os.environ,
        "OPTEST_PLUGINS": "simpler_runtime",
        "PYTHONPATH": os.pathsep.join(paths),
        "STAND_IN_LOG": str(folder / "log"),
        "TMPDIR": str(folder / "vendor"),
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
    }
    command = [sys.executable, *words]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300)
    return ended.stdout + ended.stderr


FACES = [
    ("-m", "optest", "run", "--source", "scene:test_two.py", "--device", "0-1"),
    ("-m", "pytest", "-p", "optest.pytest_plugin", "-v", "-c", os.devnull, "test_two.py", "--device", "0-1"),
    ("test_two.py", "-d", "0-1"),
]


@pytest.mark.parametrize("words", FACES, ids=("run", "pytest", "python"))
def test_upstream_scenes_run_where_its_package_is_installed(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "test_two.py").write_text(OF_UPSTREAM)
    output = python(folder, *words)
    passed = re.findall(r"PASSED +(\S+)::default|(\S+)::default PASSED", output)
    names = {name.removeprefix("test_two.py::") for pair in passed for name in pair if name}
    assert names == {"TestTwo[a2a3sim]", "TestThree[a2a3sim]"}, output
    assert "test_run" not in output
    assert ("test_by_hand PASSED" in output) == ("pytest" in words)
    note = "only pytest runs test_by_hand (test_two.py)"
    assert output.count(note) == ("pytest" not in words), output


def compiled(folder: Path) -> list[str]:
    return sorted((folder / "log.compiled").read_text().split())


@pytest.mark.parametrize("name", ["plain", "with a space"])
def test_each_source_is_compiled_once(folder: Path, name: str) -> None:
    """The process that starts the workers, the worker, and a second run share what was compiled."""
    folder = folder.rename(folder.with_name(name))
    two = '[{"name": "default"}, {"name": "more", "params": {"size": 9}}]'
    (folder / "test_add.py").write_text(re.sub(r"CASES = .*", f"CASES = {two}", SCENE))
    for _ in range(2):
        assert "2 passed" in (output := optest(folder, "run")), output
    assert compiled(folder) == ["add.py", "orchestration.py"]
    assert not [*folder.glob("vendor/object_*")]


def test_a_changed_header_is_compiled_again(folder: Path) -> None:
    (folder / "kernels" / "add.py").write_text("# include sum.py\ny[:] = total(x, n)\n")
    for text, passes in (("x + n", True), ("x - n", False), ("x + n", True)):
        (folder / "kernels" / "sum.py").write_text(f"def total(x, n): return {text}\n")
        assert ("1 passed" in (output := optest(folder, "run"))) == passes, output
    assert compiled(folder) == ["add.py"] * 3 + ["orchestration.py"]


def test_a_changed_package_is_compiled_again(folder: Path) -> None:
    assert "1 passed" in optest(folder, "run")
    package = folder / "vendor" / "simpler_setup" / "__init__.py"
    package.write_text(f"{package.read_text()}# a source of every orchestration\n")
    assert "1 passed" in optest(folder, "run")
    assert compiled(folder) == ["add.py", "orchestration.py", "orchestration.py"]


def test_copies_of_the_runtime_are_not_guarded(folder: Path) -> None:
    (folder / "test_two.py").write_text(OF_UPSTREAM)
    output = python(folder, *FACES[0], "-v")
    assert says(output, "integration.guard_zones_runtime_tensormap"), output
    assert says(output, "integration.checks_done_outputs_written"), output


def said(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_its_scenes_pass(folder: Path) -> None:
    output = optest(folder, "run", "--log-level", "debug", "--enable-profiling")
    assert "PASSED  TestAdd[a2a3sim]::default" in output, output
    ran = said(folder)[0]
    assert ran["paths"] == ["tensormap_and_ringbuffer", "a2a3sim", "", ""]
    assert (ran["block_dim"], ran["level"]) == (24, "debug")
    assert [each.name for each in folder.glob("outputs/**/*.json")] == ["perf_swimlane_1.json"]


def test_each_case_has_its_profile(folder: Path) -> None:
    """A collector of simpler serves one run."""
    (folder / "test_add.py").write_text(SCENE.replace("CASES = [", 'CASES = [{"name": "first"}, '))
    output = optest(folder, "run", "--enable-profiling", "--rounds", "2")
    assert "4 passed" in output, output
    assert len([*folder.glob("outputs/*.json")]) == 2


@pytest.mark.heavy
def test_hardware_without_its_tool(folder: Path) -> None:
    """Found before a device is condemned for it."""
    assert says(optest(folder, "run", "--platform", "a2a3"), "integration.examined_by_npu_smi")


@pytest.mark.heavy
def test_hardware_and_its_own_build(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "npu-smi").write_text("#!/bin/sh\n")
    (folder / "bin" / "npu-smi").chmod(0o755)
    output = optest(folder, "run", "--platform", "a2a3", "--build")
    assert "PASSED  TestAdd[a2a3]::default" in output, output
    assert said(folder)[0]["paths"] == ["tensormap_and_ringbuffer", "a2a3", "built", ""]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        pytest.param("kernels/add.py", "y[:] = x", "VALUE", marks=pytest.mark.heavy),
        ("kernels/add.py", "y[:] = x + n; x[0] = 1", "INPUT_MUTATED"),
        ("kernels/add.py", "#error", "COMPILE"),
        ("test_add.py", SCENE.replace("level=2", "level=3"), "BAD_CASE"),
    ],
)
def test_mistakes_have_their_reason(folder: Path, file: str, text: str, reason: str) -> None:
    (folder / file).write_text(text)
    output = optest(folder, "run")
    assert f"TestAdd[a2a3sim]::default  {reason}" in output, output
    assert f"reproduce: PYTHONPATH={EXAMPLE}:{folder / 'vendor'}" in output  # the plug-in imports from the second


@pytest.mark.heavy
def test_without_the_package_scenes_are_skipped(folder: Path) -> None:
    output = optest(folder, "run", vendor="nothing")
    assert says(output, "integration.skipped_testadd_sim_default"), output


def test_the_platform_is_the_plug_in_s(folder: Path) -> None:
    code = (
        "from optest.registry import load_plugins; load_plugins(['simpler_runtime']);"
        "from optest.settings.platforms import PLATFORMS; print(PLATFORMS.get('a2a3'))"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLE), os.environ.get("PYTHONPATH", "")])}
    shown = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert "one_runtime_per_process=True, device_mask='ASCEND_RT_VISIBLE_DEVICES', probe=('npu-smi'" in shown.stdout

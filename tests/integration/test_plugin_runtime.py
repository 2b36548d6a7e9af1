"""The example of a foreign runtime as a plug-in, over a stand-in for the vendor's packages that computes in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "scenes" / "plugin_runtime"

TASK_INTERFACE = """
import enum, json, os
class ArgDirection(enum.Enum):
    IN, OUT, INOUT = 1, 2, 3
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
    def init(self, *paths): self.paths, self.level = paths, os.environ.get("PTO_LOG_LEVEL")
    def set_device(self, device): self.device = device
    def finalize(self): pass
    def run(self, callable, args, config=None):
        orchestration, cores = callable
        exec(orchestration, {"args": args.tensors, "scalars": args.scalars, "cores": cores})
        write(device=self.device, paths=self.paths, block_dim=config.block_dim, level=self.level)
        if config.enable_profiling:
            with open(os.path.join(os.environ["SIMPLER_PERF_OUTPUT_DIR"], "perf_swimlane_1.json"), "w") as file:
                file.write("[]")
def write(**said):
    with open(os.environ["STAND_IN_LOG"], "a") as file:
        print(json.dumps(said), file=file)
"""
SETUP = """
from types import SimpleNamespace
class KernelCompiler:
    def __init__(self, platform): self.platform = platform
    def get_orchestration_include_dirs(self, runtime): return []
    def compile_orchestration(self, runtime, source): return self._read(source)
    def compile_incore(self, source, core_type, pto_isa_root, extra_include_dirs): return self._read(source)
    def _read(self, source):
        text = open(source).read()
        if "#error" in text: raise RuntimeError(f"{source}: #error")
        return text
class RuntimeBuilder:
    def __init__(self, platform): self.platform = platform
    def get_binaries(self, name, build=False):
        paths = {"host_path": name, "aicpu_path": self.platform, "aicore_path": "built" * build}
        return SimpleNamespace(**paths, sim_context_path=None)
def ensure_pto_isa_root(): return "isa"
def extract_text_section(binary): return binary
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
        "vendor/simpler_setup/__init__.py": SETUP,
        "test_add.py": SCENE,
        "kernels/orchestration.py": "exec(cores[3], {'x': args[0], 'y': args[1], 'n': scalars[0]})",
        "kernels/add.py": "y[:] = x + n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def optest(folder: Path, *words: str, vendor: str = "vendor") -> str:
    paths = [str(EXAMPLE), str(folder / vendor), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        **os.environ,
        "OPTEST_PLUGINS": "simpler_runtime",
        "PYTHONPATH": os.pathsep.join(paths),
        "STAND_IN_LOG": str(folder / "log"),
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
    }
    command = [sys.executable, "-m", "optest", *words, "--source", "scene:test_add.py"]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300)
    return ended.stdout + ended.stderr


def said(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_its_scenes_pass(folder: Path) -> None:
    output = optest(folder, "run", "--log-level", "debug", "--enable-profiling")
    assert "PASSED  TestAdd[a2a3sim]::default" in output, output
    ran = said(folder)[0]
    assert ran["paths"] == ["tensormap_and_ringbuffer", "a2a3sim", "", ""]
    assert (ran["block_dim"], ran["level"]) == (24, "debug")
    assert [each.name for each in folder.glob("outputs/**/*.json")] == ["perf_swimlane_1.json"]


@pytest.mark.heavy
def test_hardware_without_its_tool(folder: Path) -> None:
    """Found before a device is condemned for it."""
    assert "examined by npu-smi, which is not there" in optest(folder, "run", "--platform", "a2a3")


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


@pytest.mark.heavy
def test_without_the_package_scenes_are_skipped(folder: Path) -> None:
    output = optest(folder, "run", vendor="nothing")
    assert "SKIPPED TestAdd[a2a3sim]::default  simpler is unavailable: install it from its repository" in output, output


def test_the_platform_is_the_plug_in_s(folder: Path) -> None:
    code = (
        "from optest.registry import load_plugins; load_plugins(['simpler_runtime']);"
        "from optest.settings.platforms import PLATFORMS; print(PLATFORMS.get('a2a3'))"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLE), os.environ.get("PYTHONPATH", "")])}
    shown = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert "one_runtime_per_process=True, device_mask='ASCEND_RT_VISIBLE_DEVICES', probe=('npu-smi'" in shown.stdout

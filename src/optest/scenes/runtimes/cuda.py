"""Scenes in CUDA C++: a source file with kernels, and a function that launches them on tensors of the GPU."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from optest.process import command
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import BaseRuntime, RunOptions, SceneWorker, ordinal
from optest.scenes.runtimes.callables import require_level_2, required
from optest.scenes.runtimes.cpp.compiler import Toolchain, compile_source
from optest.scenes.runtimes.cpp.runtime import call_scene
from optest.settings import environment

_HEADERS = Path(__file__).parent / "cpp"
_LAUNCHER = ("-include", str(_HEADERS / "cuda_launcher.h"))
_NVCC = Toolchain(
    variable="NVCC", usual="nvcc", flags=("-std=c++17", "-O2", "-g", "-shared", "-Xcompiler", "-fPIC", *_LAUNCHER)
)


@cache
def lack_of_cuda() -> str | None:
    """Return why kernels cannot run on a GPU here, None if they can."""
    # By nvidia-smi: forks of a process that has opened CUDA cannot use it.
    path = shutil.which("nvidia-smi")
    ended = command.run([path, "-L"], cwd="/", env=environment(), timeout_s=30) if path else None
    has_gpu = ended is not None and ended.returncode == 0 and "GPU" in ended.stdout_tail
    return None if has_gpu else "CUDA is unavailable: nvidia-smi lists no GPU here"


class CudaRuntime(BaseRuntime):
    """Calls ``extern "C" void f(const optest::Arguments&)``, the function of ``orchestration``, with tensors on
    the GPU, and waits for the kernels that it launches."""

    name = "cuda"
    platforms = ("cuda",)

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        return _NVCC.lack() or lack_of_cuda()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> tuple[Path, str]:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        orchestration = required(callable, "orchestration", Mapping)
        name = required(orchestration, "function_name", str)
        return compile_source(Path(required(orchestration, "source", str)), (_HEADERS,), toolchain=_NVCC), name

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(ordinal(platform, device_ids[0]))


class _Worker(SceneWorker):
    def __init__(self, gpu: int) -> None:
        self._gpu = gpu

    def run(self, program: tuple[Path, str], args: TaskArgs, options: RunOptions) -> None:  # noqa: ARG002
        call_scene(program[0], program, args, devices=self._gpu)

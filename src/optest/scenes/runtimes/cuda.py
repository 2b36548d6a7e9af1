"""Scenes in CUDA C++: a source holds its kernels, and the function that launches them over tensors on the GPU."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from optest.errors import Unavailable
from optest.process import command
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import BaseRuntime, RunOptions, ordinal
from optest.scenes.runtimes.callables import require_level_2, required
from optest.scenes.runtimes.cpp.compiler import Toolchain, compiled
from optest.scenes.runtimes.cpp.runtime import CallTensor, call_tensors, function_in, scalars_of
from optest.settings import environment
from optest.spec import Fault, Reason

__all__ = ["CudaRuntime", "lack_of_cuda"]

_HEADERS = Path(__file__).parent / "cpp"
_REASONS = {2: Reason.OUT_OF_BOUNDS, 3: Reason.DEVICE_LOST}
_LAUNCHER = ("-include", str(_HEADERS / "cuda_launcher.h"))
_NVCC = Toolchain(
    variable="NVCC", usual="nvcc", flags=("-std=c++17", "-O2", "-g", "-shared", "-Xcompiler", "-fPIC", *_LAUNCHER)
)


@cache
def lack_of_cuda() -> str | None:
    """Why no kernel can run on a GPU here, None if one can. CUDA is not asked: forks of who has opened it cannot."""
    path = shutil.which("nvidia-smi")
    ended = command.run([path, "-L"], cwd="/", env=environment(), timeout_s=30) if path else None
    has_gpu = ended is not None and ended.returncode == 0 and "GPU" in ended.stdout_tail
    return None if has_gpu else "CUDA is unavailable: nvidia-smi lists no GPU here"


class CudaRuntime(BaseRuntime):
    """``orchestration`` with ``source`` and ``function_name``: ``extern "C" void f(const optest::Arguments&)``, called
    with tensors on the GPU; the kernels that it launches have ended when the scene has."""

    name = "cuda"
    platforms = ("cuda",)

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        try:
            _NVCC.compiler()
        except Unavailable as error:
            return str(error)
        return lack_of_cuda()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> tuple[Path, str]:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        stated = required(callable, "orchestration", Mapping)
        name = required(stated, "function_name", str)
        return compiled(Path(required(stated, "source", str)), (_HEADERS,), toolchain=_NVCC), name

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(ordinal(platform, device_ids[0]))


class _Worker:
    def __init__(self, gpu: int) -> None:
        self._gpu = gpu

    def run(self, program: tuple[Path, str], args: TaskArgs, options: RunOptions) -> None:  # noqa: ARG002
        library = ctypes.CDLL(str(program[0]))
        tensors, scalars = call_tensors([getattr(args, name) for name in args.tensor_names()]), scalars_of(args)
        message = ctypes.create_string_buffer(4096)
        status = library.optest_scene_run(
            (CallTensor * len(tensors))(*tensors),
            len(tensors),
            (ctypes.c_double * len(scalars))(*scalars),
            len(scalars),
            ctypes.c_void_p(function_in(library, program[1])),
            self._gpu,
            message,
            ctypes.c_int64(len(message)),
        )
        if status:
            raise Fault(_REASONS.get(status, Reason.RAISED), message.value.decode(errors="replace"))

    def close(self) -> None:
        """Nothing: the memory of a scene is freed when it ends."""

"""Scenes in CUDA C++: a source holds its kernels, and the function that launches them over tensors on the GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import Unavailable
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import BaseRuntime, RunOptions, ordinal
from optest.scenes.runtimes.callables import require_level_2, required
from optest.scenes.runtimes.cpp.compiler import Toolchain, compiled
from optest.scenes.runtimes.cpp.runtime import CallTensor, call_tensors, function_in, scalars_of
from optest.scenes.runtimes.cuda.devices import lack_of_cuda
from optest.spec import Fault, Reason

__all__ = ["NVCC", "CudaRuntime"]

_LAUNCHER = Path(__file__).parent / "launcher.h"
_HEADERS = Path(__file__).parent.parent / "cpp"
_REASONS = {2: Reason.OUT_OF_BOUNDS, 3: Reason.DEVICE_LOST}

NVCC = Toolchain(
    variable="NVCC",
    usual="nvcc",
    flags=("-std=c++17", "-O2", "-g", "-shared", "-Xcompiler", "-fPIC", "-include", str(_LAUNCHER)),
)


class CudaRuntime(BaseRuntime):
    """``orchestration`` with ``source`` and ``function_name``: ``extern "C" void f(const optest::Arguments&)``, called
    with tensors on the device; the kernels that it launches have ended when the scene has."""

    name = "cuda"
    platforms = ("cuda",)

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        try:
            NVCC.compiler()
        except Unavailable as error:
            return str(error)
        return lack_of_cuda()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> tuple[Path, str]:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        stated = required(callable, "orchestration", Mapping)
        source, name = Path(required(stated, "source", str)), required(stated, "function_name", str)
        return compiled(source, (_HEADERS,), toolchain=NVCC), name

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(ordinal(platform, device_ids[0]))


class _Worker:
    def __init__(self, gpu: int) -> None:
        self._gpu = gpu

    def run(self, program: tuple[Path, str], args: TaskArgs, options: RunOptions) -> None:  # noqa: ARG002
        library = ctypes.CDLL(str(program[0]))
        tensors = call_tensors([getattr(args, name) for name in args.tensor_names()])
        scalars = scalars_of(args)
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
        """Nothing: the GPU's memory of a scene is freed when it ends."""

"""Scenes of Triton kernels: platform ``tritonsim`` is Triton's interpreter, ``cuda`` a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optest.errors import Unavailable
from optest.numerics import dtype_of
from optest.registry import is_installed
from optest.scenes.declaration import TaskArgs, numbers_of, tensors_of
from optest.scenes.runtimes import BaseRuntime, RunOptions, SceneWorker, ordinal
from optest.scenes.runtimes.callables import orchestration_in_python, require_level_2, required, source_in
from optest.scenes.runtimes.cuda import lack_of_cuda
from optest.spec import TensorSpec


class TritonRuntime(BaseRuntime):
    """Calls ``orchestration``, a Python function that launches ``@triton.jit`` functions on torch tensors."""

    # `build` does not import the source: Triton reads TRITON_INTERPRET at import, which the worker's device decides.

    name = "triton"
    platforms = ("tritonsim", "cuda")

    def lack(self, platform: str) -> str | None:
        if not (is_installed("triton") and is_installed("torch")):
            return "runtime triton is unavailable: pip install triton"
        return None if platform.endswith("sim") else lack_of_cuda()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> dict[str, Any]:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        source_in(required(callable, "orchestration", Mapping))
        return dict(callable)

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(None if platform.endswith("sim") else ordinal(platform, device_ids[0]))


class _Worker(SceneWorker):
    def __init__(self, gpu: int | None) -> None:
        # Raises Unavailable if Triton was imported for the other kind of device.
        from optest.torch.triton_kernels import device_for_triton

        self._device = device_for_triton(None if gpu is None else f"cuda:{gpu}")
        if (self._device.type == "cpu") is not (gpu is None):
            raise Unavailable("triton on a GPU", "TRITON_INTERPRET is set")

    def run(self, program: dict[str, Any], args: TaskArgs, options: RunOptions) -> None:  # noqa: ARG002
        from optest.torch.guarded_memory import GuardedMemory

        if "function" not in program:
            program["function"] = orchestration_in_python(program)
        memory = GuardedMemory(self._device)
        placed = {
            name: memory.allocate(name, TensorSpec(dtype=dtype_of(array.dtype), shape=array.shape), array)
            for name, array in tensors_of(args).items()
        }
        tensors = {name: tensor for name, (_, tensor) in placed.items()}
        with memory:
            program["function"](args.clone({**tensors, **numbers_of(args)}))
        memory.fetch()
        for name, (buffer, _) in placed.items():
            getattr(args, name)[...] = buffer.array

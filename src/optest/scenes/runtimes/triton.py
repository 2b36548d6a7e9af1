"""Scenes of Triton kernels: ``tritonsim`` is its interpreter, ``cuda`` a GPU.

``orchestration`` is a Python source and a function in it, which launches the source's ``@triton.jit`` functions over
torch tensors. It is imported where it runs, since Triton decides before whether it interprets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import Unavailable
from optest.numerics import dtype_of
from optest.registry import is_installed
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import BaseRuntime, RunOptions, ordinal
from optest.scenes.runtimes.callables import orchestration_in_python, require_level_2, required
from optest.scenes.runtimes.cuda.devices import lack_of_cuda
from optest.spec import Fault, Reason, TensorSpec

__all__ = ["TritonRuntime"]


class TritonRuntime(BaseRuntime):
    """``orchestration`` with ``source`` and ``function_name``: the function takes the scene's arguments, with torch
    tensors on the device."""

    name = "triton"
    platforms = ("tritonsim", "cuda")

    def lack(self, platform: str) -> str | None:
        if not (is_installed("triton") and is_installed("torch")):
            return "runtime triton is unavailable: pip install optest[triton]"
        return None if platform.endswith("sim") else lack_of_cuda()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> Mapping[str, Any]:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        stated = required(callable, "orchestration", Mapping)
        required(stated, "function_name", str)
        if not Path(required(stated, "source", str)).is_file():
            raise Fault(Reason.BAD_CASE, f"source {stated['source']} is not there")
        return callable

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(None if platform.endswith("sim") else ordinal(platform, device_ids[0]))


class _Worker:
    def __init__(self, gpu: int | None) -> None:
        """
        Raises:
            Unavailable: if Triton was imported already to do the other thing.
        """
        from optest.torch.triton_kernels import GuardedMemory, device_for_triton

        self._memory_on = GuardedMemory
        self._device = device_for_triton(None if gpu is None else f"cuda:{gpu}")
        if (self._device.type == "cpu") is not (gpu is None):
            raise Unavailable("triton on a GPU", "TRITON_INTERPRET is set")
        self._functions: dict[str, Callable[..., Any]] = {}

    def run(self, program: Mapping[str, Any], args: TaskArgs, options: RunOptions) -> None:  # noqa: ARG002
        key = repr(program["orchestration"])
        if key not in self._functions:
            self._functions[key] = orchestration_in_python(program)
        memory, placed, buffers = self._memory_on(self._device), args.clone(), {}
        for name in args.tensor_names():
            array = getattr(args, name)
            spec = TensorSpec(dtype=dtype_of(array.dtype), shape=array.shape)
            buffers[name], tensor = memory.placed(name, spec, array)
            setattr(placed, name, tensor)
        for name in args.scalar_names():
            value = getattr(args, name)
            setattr(placed, name, getattr(value, "value", value))
        with memory:
            self._functions[key](placed)
        memory.fetch()
        for name, buffer in buffers.items():
            getattr(args, name)[...] = buffer.array

    def close(self) -> None:
        """Nothing: torch frees its memory itself."""

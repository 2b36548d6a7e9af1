"""Scenes of OpenCL kernels: platform ``oclsim`` is OpenCL of a CPU, such as PoCL; ``opencl`` any other device.

Without ``orchestration`` each kernel of ``incores`` is enqueued once, in order. ``orchestration`` is a Python function
of a :class:`Graph` and the scene's arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from optest.backends.opencl_device import NUMBERS, OpenClDevice, calls_of_opencl, declared_type, devices_of
from optest.errors import Unavailable
from optest.scenes.declaration import TaskArgs, numbers_of, tensors_of
from optest.scenes.runtimes import BaseRuntime, Recording, RunOptions, SceneWorker, Span, ordinal
from optest.scenes.runtimes.callables import orchestration_in_python, require_level_2, required, source_in
from optest.spec import Fault, Reason

_Program: TypeAlias = tuple[Mapping[str, Mapping[str, Any]], Callable[["Graph", TaskArgs], Any]]
_KEYS = {"source", "function_name", "arguments", "global_size", "local_size", "options", "func_id", "core_type"}
_NAN_BYTE = 0xFF
_GUARD_BYTE = 0xA5


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A tensor on the device, followed by a guard zone of bytes ``behind``."""

    name: str
    buffer: Any
    shape: tuple[int, ...]
    dtype: Any
    behind: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


class Graph:
    """Queue to which an orchestration submits tasks; they run one after the other."""

    def __init__(self, device: OpenClDevice, kernels: Mapping[str, Mapping[str, Any]], recording: Recording) -> None:
        self._device, self._kernels, self._recording = device, kernels, recording
        self._memory: list[Memory] = []
        self._tasks: list[tuple[str, Any]] = []

    def place(self, name: str, array: Any) -> Memory:
        # Differs, so that a copied guard zone is detected; small as a float, so that it absorbs nothing added to it.
        behind = _GUARD_BYTE - len(self._memory) % _GUARD_BYTE
        buffer = self._device.buffer(array, behind)
        self._memory.append(Memory(name=name, buffer=buffer, shape=array.shape, dtype=array.dtype, behind=behind))
        return self._memory[-1]

    def allocate(self, like: Memory) -> Memory:
        """Allocate memory of the same shape and dtype, whose floats are NaN."""
        data = np.full(like.size * np.dtype(like.dtype).itemsize, _NAN_BYTE, np.uint8)
        return self.place(f"allocation {len(self._memory)}", data.view(like.dtype).reshape(like.shape))

    def copy(self, to: Memory, from_: Memory) -> None:
        """Enqueue a copy; raise Fault RAISED for memory of another size."""
        if to.buffer.size != from_.buffer.size:
            raise Fault(Reason.RAISED, f"copy: {from_.name} and {to.name} differ in their number of bytes")
        nbytes = to.size * np.dtype(to.dtype).itemsize
        self._add_task("copy", (to, from_), lambda: self._device.copy(to.buffer, from_.buffer, nbytes))

    def submit(
        self, kernel: str, arguments: Sequence[Any], *, global_size: Sequence[int], local_size: Sequence[int] = ()
    ) -> None:
        """Enqueue a kernel by its ``function_name``; raise Fault BAD_CASE if it is unknown or misses arguments."""
        if kernel not in self._kernels:
            text = f"submit: CALLABLE has no kernel {kernel!r}; it has {', '.join(self._kernels)}"
            raise Fault(Reason.BAD_CASE, text)
        entry = self._kernels[kernel]
        loaded = self._device.kernel(*source_in(entry), entry.get("options", ()))
        if loaded.num_args != len(arguments):
            text = f"kernel {kernel} gets {len(arguments)} arguments, expected {loaded.num_args}"
            raise Fault(Reason.BAD_CASE, text)
        for index, value in enumerate(arguments):
            is_memory = isinstance(value, Memory)
            loaded.set_arg(index, value.buffer if is_memory else _convert_number(loaded, kernel, index, value))
        self._add_task(kernel, arguments, lambda: self._device.enqueue(loaded, list(global_size), list(local_size)))

    def _add_task(self, title: str, arguments: Sequence[Any], enqueue: Callable[[], Any]) -> None:
        """Enqueue a task, and record its tensors before and after it if requested."""
        name = f"task {len(self._tasks)} {title}"
        self._dump(name, "before", arguments)
        self._tasks.append((name, enqueue()))
        self._dump(name, "after", arguments)

    def _dump(self, name: str, when: str, arguments: Sequence[Any]) -> None:
        tensors = [value for value in arguments if isinstance(value, Memory)]
        for index, memory in enumerate(tensors) if self._recording.dumps else ():
            self._recording.tensor(name, when, index, self.read(memory))

    def read(self, memory: Memory) -> Any:
        """Return the content of memory as an array; raise Fault OUT_OF_BOUNDS if its guard zone has changed."""
        data = self._device.read_buffer(memory.name, memory.buffer, memory.behind)
        return data.view(memory.dtype).reshape(memory.shape)

    def finish(self, device_id: int) -> None:
        """Wait for all tasks, record their times and check all guard zones; raise Fault OUT_OF_BOUNDS."""
        offset_s = -self._device.now_s() + time.monotonic()
        for name, event in self._tasks if self._recording.profiles else ():
            if event is not None:
                began_s, ended_s = (float(ns) * 1e-9 + offset_s for ns in (event.profile.start, event.profile.end))
                self._recording.span(Span(name=name, device=device_id, row=0, began_s=began_s, ended_s=ended_s))
        for memory in self._memory:
            self.read(memory)


def _convert_number(kernel: Any, name: str, index: int, value: Any) -> Any:
    """Return a number in the type that the kernel declares; raise Fault BAD_CASE if that is not possible."""
    declared = declared_type(kernel, index) or f"a type other than {', '.join(NUMBERS)}"
    try:
        return NUMBERS[declared](value)
    except (KeyError, TypeError, ValueError, OverflowError):
        text = f"argument {index + 1} of kernel {name} is {value!r}, but the source declares {declared}"
        raise Fault(Reason.BAD_CASE, text) from None


@lru_cache(maxsize=64)
def _device(platform: str, index: int) -> OpenClDevice:
    """Open a device of a platform; raise Unavailable if there is no such device."""
    devices = devices_of(cpu=platform.endswith("sim"))
    if index >= len(devices):
        raise Unavailable(f"OpenCL device {index}", f"{platform} has {len(devices)} devices here")
    with calls_of_opencl():
        return OpenClDevice(devices[index])


class OpenClRuntime(BaseRuntime):
    """Kernels of ``incores``, each with ``source`` and ``function_name``.

    ``arguments`` are the names of the scene's tensors and scalars for the kernel (default: all, in order);
    ``global_size`` and ``local_size`` are numbers or names of scalars (default: one work-item per element of the
    kernel's largest tensor).
    """

    name = "opencl"  # its sources are compiled when they run: `build` may not open the device
    platforms = ("oclsim", "opencl")

    def lack(self, platform: str) -> str | None:
        is_sim = platform.endswith("sim")
        kind = "a CPU; Debian has one: pocl-opencl-icd" if is_sim else "hardware; a CPU is oclsim"
        return None if devices_of(cpu=is_sim) else f"no OpenCL device here is {kind}"

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> _Program:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        entries = required(callable, "incores", Sequence)
        for entry in entries:
            if unknown := set(entry) - _KEYS:
                text = f"CALLABLE: a kernel has {', '.join(sorted(unknown))}, expected {', '.join(sorted(_KEYS))}"
                raise Fault(Reason.BAD_CASE, text)
            source_in(entry)
        function = orchestration_in_python(callable) if "orchestration" in callable else _enqueue_in_order(entries)
        return {entry["function_name"]: entry for entry in entries}, function

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        index = 0 if platform.endswith("sim") else ordinal(platform, device_ids[0])  # one CPU is all simulated devices
        return _Worker(_device(platform, index), device_ids[0])


def _enqueue_in_order(entries: Sequence[Mapping[str, Any]]) -> Callable[[Graph, TaskArgs], None]:
    """Return an orchestration that submits each kernel once, in order."""

    def orchestration(graph: Graph, args: TaskArgs) -> None:
        known = {spec.name: spec.value for spec in args.specs}

        def value(name: Any) -> Any:
            if isinstance(name, str) and name not in known:
                text = f"CALLABLE: a kernel takes {name!r}, but the scene has {', '.join(known)}"
                raise Fault(Reason.BAD_CASE, text)
            return known[name] if isinstance(name, str) else name

        for entry in entries:
            values = [value(name) for name in entry.get("arguments", known)]
            largest = max((argument.size for argument in values if isinstance(argument, Memory)), default=1)
            sizes = [value(size) for size in entry.get("global_size", [largest])]
            local = [value(size) for size in entry.get("local_size", ())]
            graph.submit(entry["function_name"], values, global_size=sizes, local_size=local)

    return orchestration


class _Worker(SceneWorker):
    def __init__(self, device: OpenClDevice, device_id: int) -> None:
        self._device, self._id = device, device_id

    def run(self, program: _Program, args: TaskArgs, options: RunOptions) -> None:
        kernels, orchestration = program
        graph = Graph(self._device, kernels, options.recording)
        with calls_of_opencl():
            placed = {name: graph.place(name, array) for name, array in tensors_of(args).items()}
            orchestration(graph, args.clone({**placed, **numbers_of(args)}))
            graph.finish(self._id)
            for name, memory in placed.items():
                getattr(args, name)[...] = graph.read(memory)

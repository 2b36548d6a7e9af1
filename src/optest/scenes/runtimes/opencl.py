"""Scenes of OpenCL kernels: ``oclsim`` is a CPU's OpenCL, as PoCL; ``opencl`` is any other device.

Without an ``orchestration`` the kernels of ``incores`` are enqueued in order, once each. An ``orchestration`` is a
Python function that takes a :class:`Graph` and the scene's arguments.
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
_NOT_A_NUMBER = 0xFF
_GUARD = 0xA5


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A tensor on the device, in front of a guard zone of bytes ``behind`` it."""

    name: str
    buffer: Any
    shape: tuple[int, ...]
    dtype: Any
    behind: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


class Graph:
    """What an orchestration submits its work to; tasks run one after the other."""

    def __init__(self, device: OpenClDevice, kernels: Mapping[str, Mapping[str, Any]], recording: Recording) -> None:
        self._device, self._kernels, self._recording = device, kernels, recording
        self._memory: list[Memory] = []
        self._tasks: list[tuple[str, Any]] = []

    def place(self, name: str, array: Any) -> Memory:
        behind = _GUARD - len(self._memory) % _GUARD  # a guard zone that is copied behind another tensor is seen
        buffer = self._device.buffer(array, behind)
        self._memory.append(Memory(name=name, buffer=buffer, shape=array.shape, dtype=array.dtype, behind=behind))
        return self._memory[-1]

    def allocate(self, like: Memory) -> Memory:
        """Memory of the same shape and dtype, whose floats are NaN."""
        held = np.full(like.size * np.dtype(like.dtype).itemsize, _NOT_A_NUMBER, np.uint8)
        return self.place(f"allocation {len(self._memory)}", held.view(like.dtype).reshape(like.shape))

    def copy(self, to: Memory, from_: Memory) -> None:
        """
        Raises:
            Fault: RAISED for memory of another size.
        """
        if to.buffer.size != from_.buffer.size:
            raise Fault(Reason.RAISED, f"copy: {from_.name} has not as many bytes as {to.name}")
        nbytes = to.size * np.dtype(to.dtype).itemsize
        self._do("copy", (to, from_), lambda: self._device.copy(to.buffer, from_.buffer, nbytes))

    def submit(
        self, kernel: str, arguments: Sequence[Any], *, global_size: Sequence[int], local_size: Sequence[int] = ()
    ) -> None:
        """Enqueue a kernel by its ``function_name``, over memory and numbers.

        Raises:
            Fault: BAD_CASE for a kernel that there is not, and arguments that are not the kernel's.
        """
        if kernel not in self._kernels:
            text = f"submit: CALLABLE has no kernel {kernel!r}; it has {', '.join(self._kernels)}"
            raise Fault(Reason.BAD_CASE, text)
        entry = self._kernels[kernel]
        made = self._device.kernel(*source_in(entry), entry.get("options", ()))
        if made.num_args != len(arguments):
            text = f"kernel {kernel} takes {made.num_args} arguments, but gets {len(arguments)}"
            raise Fault(Reason.BAD_CASE, text)
        for place, value in enumerate(arguments):
            made.set_arg(place, value.buffer if isinstance(value, Memory) else _number(made, kernel, place, value))
        self._do(kernel, arguments, lambda: self._device.enqueue(made, list(global_size), list(local_size)))

    def _do(self, what: str, arguments: Sequence[Any], enqueue: Callable[[], Any]) -> None:
        name = f"task {len(self._tasks)} {what}"
        self._dump(name, "before", arguments)
        self._tasks.append((name, enqueue()))
        self._dump(name, "after", arguments)

    def _dump(self, name: str, when: str, arguments: Sequence[Any]) -> None:
        tensors = [each for each in arguments if isinstance(each, Memory)]
        for place, each in enumerate(tensors) if self._recording.dumps else ():
            self._recording.tensor(name, when, place, self.fetched(each))

    def fetched(self, memory: Memory) -> Any:
        """
        Raises:
            Fault: OUT_OF_BOUNDS if something was written behind it.
        """
        held = self._device.received(memory.name, memory.buffer, memory.behind)
        return held.view(memory.dtype).reshape(memory.shape)

    def finish(self, device_id: int) -> None:
        """Wait for the end of all tasks, and look at the guard zones and times.

        Raises:
            Fault: OUT_OF_BOUNDS for a write behind an allocation.
        """
        offset_s = -self._device.now_s() + time.monotonic()
        for name, event in self._tasks if self._recording.profiles else ():
            if event is not None:
                began_s, ended_s = (float(each) * 1e-9 + offset_s for each in (event.profile.start, event.profile.end))
                self._recording.span(Span(name=name, device=device_id, row=0, began_s=began_s, ended_s=ended_s))
        for each in self._memory:
            self.fetched(each)


def _number(kernel: Any, name: str, place: int, value: Any) -> Any:
    """A number in the type that the kernel declares."""
    declared = declared_type(kernel, place) or f"a type that is none of {', '.join(NUMBERS)}"
    try:
        return NUMBERS[declared](value)
    except (KeyError, TypeError, ValueError, OverflowError):
        text = f"argument {place + 1} of kernel {name} is {value!r}, but the source has {declared} there"
        raise Fault(Reason.BAD_CASE, text) from None


@lru_cache(maxsize=64)
def _device(platform: str, place: int) -> OpenClDevice:
    """
    Raises:
        Unavailable: if there is no such device.
    """
    found = devices_of(cpu=platform.endswith("sim"))
    if place >= len(found):
        raise Unavailable(f"OpenCL device {place}", f"{platform} has {len(found)} devices here")
    with calls_of_opencl():
        return OpenClDevice(found[place])


class OpenClRuntime(BaseRuntime):
    """Kernels of ``incores``, each with ``source`` and ``function_name``.

    ``arguments`` names the scene's tensors and scalars that it takes (all, in order), ``global_size`` and
    ``local_size`` are numbers or names of scalars (as many work-items as its largest tensor has elements).
    """

    name = "opencl"  # its sources are compiled where they run: whoever builds them may not hold the device
    platforms = ("oclsim", "opencl")

    def lack(self, platform: str) -> str | None:
        is_sim = platform.endswith("sim")
        kind = "a CPU; Debian has one: pocl-opencl-icd" if is_sim else "hardware; a CPU is oclsim"
        return None if devices_of(cpu=is_sim) else f"no OpenCL device that is {kind}"

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> _Program:  # noqa: A002, ARG002
        require_level_2(self.name, level)
        entries = required(callable, "incores", Sequence)
        for entry in entries:
            if unknown := set(entry) - _KEYS:
                text = f"CALLABLE: a kernel has {', '.join(sorted(unknown))}, but may have {', '.join(sorted(_KEYS))}"
                raise Fault(Reason.BAD_CASE, text)
            source_in(entry)
        function = orchestration_in_python(callable) if "orchestration" in callable else _in_order(entries)
        return {each["function_name"]: each for each in entries}, function

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        place = 0 if platform.endswith("sim") else ordinal(platform, device_ids[0])  # one CPU is all simulated devices
        return _Worker(_device(platform, place), device_ids[0])


def _in_order(entries: Sequence[Mapping[str, Any]]) -> Callable[[Graph, TaskArgs], None]:
    """The orchestration of a scene that has none."""

    def orchestration(graph: Graph, args: TaskArgs) -> None:
        known = {each.name: each.value for each in args.specs}

        def value(name: Any) -> Any:
            if isinstance(name, str) and name not in known:
                text = f"CALLABLE: a kernel takes {name!r}, but the scene has {', '.join(known)}"
                raise Fault(Reason.BAD_CASE, text)
            return known[name] if isinstance(name, str) else name

        for entry in entries:
            values = [value(each) for each in entry.get("arguments", known)]
            largest = max((each.size for each in values if isinstance(each, Memory)), default=1)
            sizes = [value(each) for each in entry.get("global_size", [largest])]
            local = [value(each) for each in entry.get("local_size", ())]
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
                getattr(args, name)[...] = graph.fetched(memory)

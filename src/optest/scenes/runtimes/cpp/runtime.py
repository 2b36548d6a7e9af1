"""Scenes in C++ on simulated devices: ``cpusim``."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from optest.errors import Unavailable
from optest.scenes.declaration import ArgDirection, TaskArgs
from optest.scenes.runtimes import BaseRuntime, RunOptions, Span
from optest.scenes.runtimes.callables import numbers_of, required
from optest.scenes.runtimes.cpp.compiler import GXX, compiled
from optest.spec import Fault, Reason

__all__ = ["CallTensor", "CppRuntime", "call_tensors", "function_in", "scalars_of"]

_HERE = Path(__file__).parent
_RUNTIME = _HERE / "runtime.cpp"
_MOST_SPANS = 1 << 16
_REASONS = {2: Reason.OUT_OF_BOUNDS, 3: Reason.NONDETERMINISTIC}
_COPY = -1
_ENDING_S = 0.005


@dataclass(frozen=True, slots=True)
class _Program:
    """Shared objects: of the orchestration with its function, and of the kernels by ``func_id``; ``writes`` has a bit
    for each tensor that a kernel writes, in the same order."""

    orchestration: tuple[Path, str]
    kernels: Mapping[int, tuple[Path, str]]
    writes: Sequence[int]


class CppRuntime(BaseRuntime):
    """Orchestration and kernels as C++ sources (``optest_scene.h``); a kernel's function is ``kernel_entry`` unless its
    entry states ``function_name``."""

    name = "cpp"
    platforms = ("cpusim", "a2a3sim", "a5sim")
    config: ClassVar[Mapping[str, Any]] = {"block_dim": 1, "aicpu_thread_num": 3, "device_count": 1}

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        try:
            GXX.compiler()
        except Unavailable as error:
            return str(error)
        return None

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> _Program:  # noqa: A002, ARG002
        orchestration = required(callable, "orchestration", Mapping)
        kernels = required(callable, "incores", Sequence)
        functions = {_whole(each, "func_id"): str(each.get("function_name", "kernel_entry")) for each in kernels}
        if len(functions) != len(kernels):
            raise Fault(Reason.BAD_CASE, "CALLABLE: two kernels have the same func_id")
        sources = [Path(required(each, "source", str)) for each in (orchestration, *kernels)]
        with ThreadPoolExecutor() as pool:  # beside the scene's own sources the runtime, which `open` loads
            first, *rest, _ = pool.map(lambda source: compiled(source, (_HERE,)), (*sources, _RUNTIME))
        return _Program(
            (first, required(orchestration, "function_name", str)),
            {each: (made, name) for (each, name), made in zip(functions.items(), rest, strict=True)},
            [_written(each.get("signature")) for each in kernels],
        )

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(ctypes.CDLL(str(compiled(_RUNTIME, (_HERE,), rebuild=rebuild))), device_ids)


def _whole(entry: Mapping[str, Any], key: str) -> int:
    if type(entry.get(key)) is not int:
        raise Fault(Reason.BAD_CASE, f"CALLABLE: {key} of a kernel is {entry.get(key)!r}, but should be a whole number")
    return int(entry[key])


def _threads() -> set[str]:
    """The threads of this process, where the system tells."""
    return set(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else set()


def _left_running(before: set[str]) -> int:
    """How many threads are there that were not; one that has just ended may be listed a little longer."""
    ends = time.monotonic() + _ENDING_S
    while (left := _threads() - before) and time.monotonic() < ends:
        time.sleep(_ENDING_S / 10)
    return len(left)


def _written(signature: Sequence[Any] | None) -> int:
    """A bit for each tensor of a signature that is written; without a signature all may be."""
    if signature is None:
        return (1 << 64) - 1
    try:
        kinds = [ArgDirection(getattr(each, "value", each)) for each in signature if each is not None]
    except ValueError as error:
        raise Fault(Reason.BAD_CASE, f"CALLABLE: signature of a kernel: {error}") from None
    return sum(1 << place for place, each in enumerate(kinds) if each is not ArgDirection.IN)


class CallTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("elements", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
    )


_OBSERVER = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
)


class _Call(ctypes.Structure):
    _fields_ = (
        ("tensors", ctypes.POINTER(CallTensor)),
        ("scalars", ctypes.POINTER(ctypes.c_double)),
        ("func_ids", ctypes.POINTER(ctypes.c_int32)),
        ("kernels", ctypes.POINTER(ctypes.c_void_p)),
        ("writes", ctypes.POINTER(ctypes.c_uint64)),
        ("orchestration", ctypes.c_void_p),
        ("observer", _OBSERVER),
        *((name, ctypes.c_int32) for name in ("tensor_count", "scalar_count", "kernel_count", "devices")),
        *((name, ctypes.c_int32) for name in ("threads", "blocks", "level", "profiles")),
    )


_SPANS = np.dtype(
    [
        *((name, np.int32) for name in ("task", "func_id", "block", "device", "row", "reserved")),
        *((name, np.float64) for name in ("began_s", "ended_s")),
    ]
)


class _Worker:
    """The runtime's library; programs that it has loaded stay loaded."""

    def __init__(self, library: ctypes.CDLL, device_ids: Sequence[int]) -> None:
        self._run = library.optest_scene_run
        self._device_ids = tuple(device_ids)
        self._loaded: dict[Path, ctypes.CDLL] = {}

    def run(self, program: _Program, args: TaskArgs, options: RunOptions) -> None:
        tensors = [getattr(args, name) for name in args.tensor_names()]
        scalars, calls = scalars_of(args), call_tensors(tensors)
        recording, config = options.recording, {**CppRuntime.config, **options.config}

        def observe(task: int, func_id: int, when: int, place: int, data: int | None, nbytes: int) -> None:
            content = np.frombuffer(ctypes.string_at(data, nbytes) if data else b"", np.uint8)
            array = next((each for each in tensors if data == each.ctypes.data and nbytes == each.nbytes), None)
            if array is not None:
                content = content.view(array.dtype).reshape(array.shape)
            recording.tensor(_name(task, func_id), ("before", "after")[when], place, content)

        kernels = [self._function(*each) for each in program.kernels.values()]
        call = _Call(
            tensors=(CallTensor * len(calls))(*calls),
            scalars=(ctypes.c_double * len(scalars))(*scalars),
            func_ids=(ctypes.c_int32 * len(kernels))(*program.kernels),
            kernels=(ctypes.c_void_p * len(kernels))(*kernels),
            writes=(ctypes.c_uint64 * len(kernels))(*program.writes),
            orchestration=self._function(*program.orchestration),
            observer=_OBSERVER(observe) if recording.dumps else _OBSERVER(),
            tensor_count=len(calls),
            scalar_count=len(scalars),
            kernel_count=len(kernels),
            devices=len(self._device_ids),
            threads=max(1, int(config["aicpu_thread_num"])),
            blocks=max(1, int(config["block_dim"])),
            level=options.level,
            profiles=recording.profiles,
        )
        message = ctypes.create_string_buffer(4096)
        spans = np.zeros(_MOST_SPANS if recording.profiles else 0, _SPANS)
        count = ctypes.c_int64(len(spans))
        threads = _threads()
        status = self._run(
            ctypes.byref(call), message, len(message), spans.ctypes.data_as(ctypes.c_void_p), ctypes.byref(count)
        )
        if left := _left_running(threads):
            raise Fault(Reason.STATE, f"{left} threads that kernels started still run behind them")
        if status:
            raise Fault(_REASONS.get(status, Reason.RAISED), message.value.decode(errors="replace"))
        for each in spans[: count.value]:
            name = f"{_name(each['task'], each['func_id'])} block {each['block']}"
            recording.span(
                Span(
                    name=name,
                    device=self._device_ids[each["device"]],
                    row=int(each["row"]),
                    began_s=float(each["began_s"]),
                    ended_s=float(each["ended_s"]),
                )
            )

    def _function(self, path: Path, name: str) -> int:
        if path not in self._loaded:
            self._loaded[path] = ctypes.CDLL(str(path))
        return function_in(self._loaded[path], name)

    def close(self) -> None:
        """Nothing: libraries that are loaded stay so until the process ends."""


def _name(task: int, func_id: int) -> str:
    return f"task {task} {'copy' if func_id == _COPY else f'kernel {func_id}'}"


def call_tensors(tensors: Sequence[Any]) -> list[CallTensor]:
    """The arrays as C has them; they have to stay while it does."""
    shapes = [(ctypes.c_int64 * array.ndim)(*array.shape) for array in tensors]
    return [
        CallTensor(array.ctypes.data, array.nbytes, array.size, shape, array.ndim)
        for array, shape in zip(tensors, shapes, strict=True)
    ]


def scalars_of(args: TaskArgs) -> list[float]:
    return [float(each) for each in numbers_of(args).values()]


def function_in(library: ctypes.CDLL, name: str) -> int:
    """The address of a function.

    Raises:
        Fault: BAD_CASE if the library has none of the name.
    """
    try:
        function = getattr(library, name)
    except AttributeError:
        raise Fault(Reason.BAD_CASE, f'the source has no function extern "C" {name}') from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address

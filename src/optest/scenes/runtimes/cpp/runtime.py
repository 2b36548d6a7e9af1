"""Scenes in C++ on simulated devices: ``cpusim``."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from optest.scenes.declaration import ArgDirection, TaskArgs, numbers_of, tensors_of
from optest.scenes.runtimes import BaseRuntime, RunOptions, SceneWorker, Span
from optest.scenes.runtimes.callables import directions_in, required
from optest.scenes.runtimes.cpp.compiler import GXX, compiled
from optest.spec import Fault, Reason

_HERE = Path(__file__).parent
_RUNTIME = _HERE / "runtime.cpp"
_MOST_SPANS = 1 << 16
_REASONS = (None, Reason.RAISED, Reason.OUT_OF_BOUNDS, Reason.NONDETERMINISTIC, Reason.DEVICE_LOST)
_COPY = -1
_ENDING_S = 0.005
"""A thread that has just ended may be listed so long."""


_Function: TypeAlias = tuple[Path, str]
_Program: TypeAlias = tuple[_Function, list[tuple[int, _Function, int]]]
"""The orchestration, and the kernels: each with its ``func_id``, and a bit for each of its tensors that it writes."""


class CppRuntime(BaseRuntime):
    """Orchestration and kernels as C++ sources (``optest_scene.h``); a kernel's function is ``kernel_entry`` unless its
    entry states ``function_name``."""

    name = "cpp"
    platforms = ("cpusim", "a2a3sim", "a5sim")
    config: ClassVar[Mapping[str, Any]] = {"block_dim": 1, "aicpu_thread_num": 3, "device_count": 1}

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        return GXX.lack()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> _Program:  # noqa: A002, ARG002
        orchestration = required(callable, "orchestration", Mapping)
        kernels = required(callable, "incores", Sequence)
        func_ids = [required(each, "func_id", int) for each in kernels]
        if len(set(func_ids)) != len(kernels):
            raise Fault(Reason.BAD_CASE, "CALLABLE: two kernels have the same func_id")
        sources = [Path(required(each, "source", str)) for each in (orchestration, *kernels)]
        with ThreadPoolExecutor() as pool:  # beside the scene's own sources the runtime, which `open` loads
            first, *rest, _ = pool.map(lambda source: compiled(source, (_HERE,)), (*sources, _RUNTIME))
        names = [str(each.get("function_name", "kernel_entry")) for each in kernels]
        written = [_written(each.get("signature")) for each in kernels]
        made = list(zip(func_ids, zip(rest, names, strict=True), written, strict=True))
        return (first, required(orchestration, "function_name", str)), made

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(compiled(_RUNTIME, (_HERE,), rebuild=rebuild), device_ids)


def _threads() -> set[str]:
    """The threads of this process, where the system tells."""
    return set(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else set()


def _written(signature: Sequence[Any] | None) -> int:
    """A bit for each tensor of a signature that is written; without a signature all may be."""
    if signature is None:
        return (1 << 64) - 1
    return sum(1 << place for place, each in enumerate(directions_in(signature)) if each is not ArgDirection.IN)


class _Tensor(ctypes.Structure):  # these have the fields of optest_scene.h and optest_call.h
    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("bytes", "elements")),
        *((name, ctypes.c_int32) for name in ("device", "rank")),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dtype", ctypes.c_int32),
    )


class _Kernel(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("writes", ctypes.c_uint64), ("func_id", ctypes.c_int32))


class _Span(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("task", "func_id", "block", "device", "row")),
        *((name, ctypes.c_double) for name in ("began_s", "ended_s")),
    )


_OBSERVER = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 4, ctypes.POINTER(_Tensor))


class _Call(ctypes.Structure):
    _fields_ = (
        ("tensors", ctypes.POINTER(_Tensor)),
        ("scalars", ctypes.POINTER(ctypes.c_double)),
        ("kernels", ctypes.POINTER(_Kernel)),
        ("orchestration", ctypes.c_void_p),
        ("observer", _OBSERVER),
        ("spans", ctypes.POINTER(_Span)),
        *((name, ctypes.c_int32) for name in ("tensor_count", "scalar_count", "kernel_count", "span_count")),
        *((name, ctypes.c_int32) for name in ("devices", "threads", "blocks", "level")),
        ("message", ctypes.c_char * 4096),
    )


class _Worker(SceneWorker):
    def __init__(self, library: Path, device_ids: Sequence[int]) -> None:
        self._library, self._device_ids = library, tuple(device_ids)

    def run(self, program: _Program, args: TaskArgs, options: RunOptions) -> None:
        recording, config = options.recording, {**CppRuntime.config, **options.config}
        tensors = list(tensors_of(args).values())

        def observe(task: int, func_id: int, when: int, place: int, tensor: Any) -> None:
            of = tensor.contents
            dtype = np.uint8 if of.dtype < 0 else tensors[of.dtype].dtype
            content = np.frombuffer(ctypes.string_at(of.data, of.bytes) if of.data else b"", dtype)
            if of.rank:
                content = content.reshape(of.shape[: of.rank])
            recording.tensor(_name(task, func_id), ("before", "after")[when], place, content)

        orchestration, entries = program
        kernels = [_Kernel(_function(*function), writes, func_id) for func_id, function, writes in entries]
        spans = (_Span * (_MOST_SPANS if recording.profiles else 0))()
        threads = _threads()
        try:
            call = call_scene(
                self._library,
                orchestration,
                args,
                kernels=(_Kernel * len(kernels))(*kernels),
                kernel_count=len(kernels),
                observer=_OBSERVER(observe) if recording.dumps else _OBSERVER(),
                spans=spans,
                span_count=len(spans),
                devices=len(self._device_ids),
                threads=max(1, int(config["aicpu_thread_num"])),
                blocks=max(1, int(config["block_dim"])),
                level=options.level,
            )
        finally:
            ends = time.monotonic() + _ENDING_S
            while (left := _threads() - threads) and time.monotonic() < ends:
                time.sleep(_ENDING_S / 10)
            if left:
                raise Fault(Reason.STATE, f"{len(left)} threads that kernels started still run behind them")
        for each in spans[: call.span_count]:
            name = f"{_name(each.task, each.func_id)} block {each.block}"
            device = self._device_ids[each.device]
            recording.span(Span(name=name, device=device, row=each.row, began_s=each.began_s, ended_s=each.ended_s))


def _name(task: int, func_id: int) -> str:
    return f"task {task} {'copy' if func_id == _COPY else f'kernel {func_id}'}"


def call_scene(library: Path, orchestration: _Function, args: TaskArgs, **more: Any) -> _Call:
    """Have a runtime's ``library`` run a scene over ``args``; ``more`` are fields of its Call (optest_call.h).

    Raises:
        Fault: for whatever keeps it from its end.
    """
    arrays, scalars = tensors_of(args).values(), list(map(float, numbers_of(args).values()))
    tensors = [
        _Tensor(
            each.ctypes.data, each.nbytes, each.size, -1, each.ndim, (ctypes.c_int64 * each.ndim)(*each.shape), place
        )
        for place, each in enumerate(arrays)
    ]
    call = _Call(
        tensors=(_Tensor * len(tensors))(*tensors),
        scalars=(ctypes.c_double * len(scalars))(*scalars),
        tensor_count=len(tensors),
        scalar_count=len(scalars),
        orchestration=_function(*orchestration),
        **more,
    )
    if reason := _REASONS[_library(library).optest_scene_run(ctypes.byref(call))]:
        raise Fault(reason, call.message.decode(errors="replace"))
    return call


def _function(path: Path, name: str) -> int:
    """The address of a function in a library.

    Raises:
        Fault: BAD_CASE if the library has none of the name.
    """
    try:
        return ctypes.cast(_library(path)[name], ctypes.c_void_p).value or 0
    except AttributeError:
        raise Fault(Reason.BAD_CASE, f'the source has no function extern "C" {name}') from None


@cache
def _library(path: Path) -> ctypes.CDLL:
    """It stays loaded until the process ends."""
    return ctypes.CDLL(str(path))

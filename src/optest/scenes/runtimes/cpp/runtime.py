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
from optest.scenes.runtimes.cpp.compiler import GXX, compile_source
from optest.spec import Fault, Reason

_HERE = Path(__file__).parent
_RUNTIME = _HERE / "runtime.cpp"
_MOST_SPANS = 1 << 16
_REASONS = (None, Reason.RAISED, Reason.OUT_OF_BOUNDS, Reason.NONDETERMINISTIC, Reason.DEVICE_LOST)
_COPY = -1
# A thread that has ended may be listed for so long.
_ENDING_S = 0.005


_Function: TypeAlias = tuple[Path, str]
# The orchestration, and the kernels: func_id, function, and a bit for each tensor that the kernel writes.
_Program: TypeAlias = tuple[_Function, list[tuple[int, _Function, int]]]


class CppRuntime(BaseRuntime):
    """Orchestration and kernels in C++ sources (``optest_scene.h``); a kernel's function is ``kernel_entry`` unless its
    entry has ``function_name``."""

    name = "cpp"
    platforms = ("cpusim", "a2a3sim", "a5sim")
    config: ClassVar[Mapping[str, Any]] = {"block_dim": 1, "aicpu_thread_num": 3, "device_count": 1}

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        return GXX.lack()

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> _Program:  # noqa: A002, ARG002
        orchestration = required(callable, "orchestration", Mapping)
        kernels = required(callable, "incores", Sequence)
        func_ids = [required(kernel, "func_id", int) for kernel in kernels]
        if len(set(func_ids)) != len(kernels):
            raise Fault(Reason.BAD_CASE, "CALLABLE: two kernels have the same func_id")
        sources = [Path(required(entry, "source", str)) for entry in (orchestration, *kernels)]
        with ThreadPoolExecutor() as pool:  # the runtime, too, which `open` loads
            first, *rest, _ = pool.map(lambda source: compile_source(source, (_HERE,)), (*sources, _RUNTIME))
        names = [str(kernel.get("function_name", "kernel_entry")) for kernel in kernels]
        # A bit for each tensor that a kernel may write; all without a signature.
        signatures = [kernel.get("signature") for kernel in kernels]
        writes = [
            (1 << 64) - 1
            if signature is None
            else sum(1 << n for n, x in enumerate(directions_in(signature)) if x is not ArgDirection.IN)
            for signature in signatures
        ]
        functions = zip(rest, names, strict=True)
        name = required(orchestration, "function_name", str)
        return (first, name), list(zip(func_ids, functions, writes, strict=True))

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> _Worker:  # noqa: ARG002
        return _Worker(compile_source(_RUNTIME, (_HERE,), rebuild=rebuild), device_ids)


def _thread_ids() -> set[str]:
    """Return the threads of this process, empty without /proc."""
    return set(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else set()


# These structures have the fields of optest_scene.h and optest_call.h.
class _Tensor(ctypes.Structure):
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

        def observe(task: int, func_id: int, when: int, index: int, pointer: Any) -> None:
            tensor = pointer.contents
            dtype = np.uint8 if tensor.dtype < 0 else tensors[tensor.dtype].dtype
            content = np.frombuffer(ctypes.string_at(tensor.data, tensor.bytes) if tensor.data else b"", dtype)
            if tensor.rank:
                content = content.reshape(tensor.shape[: tensor.rank])
            recording.tensor(_task_name(task, func_id), ("before", "after")[when], index, content)

        orchestration, entries = program
        kernels = [_Kernel(_address_of(*function), writes, func_id) for func_id, function, writes in entries]
        spans = (_Span * (_MOST_SPANS if recording.profiles else 0))()
        threads = _thread_ids()
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
            while (left := _thread_ids() - threads) and time.monotonic() < ends:
                time.sleep(_ENDING_S / 10)
            if left:
                message = f"{len(left)} threads started by kernels are still running after the kernels returned"
                raise Fault(Reason.STATE, f"{message}; join them before returning")
        for span in spans[: call.span_count]:
            name = f"{_task_name(span.task, span.func_id)} block {span.block}"
            device = self._device_ids[span.device]
            recording.span(Span(name=name, device=device, row=span.row, began_s=span.began_s, ended_s=span.ended_s))


def _task_name(task: int, func_id: int) -> str:
    return f"task {task} {'copy' if func_id == _COPY else f'kernel {func_id}'}"


def call_scene(library: Path, orchestration: _Function, args: TaskArgs, **fields: Any) -> _Call:
    """Run a scene by a runtime's ``library`` with further ``fields`` of optest_call.h; return its Call, raise Fault."""
    arrays, scalars = tensors_of(args).values(), list(map(float, numbers_of(args).values()))
    tensors = [
        _Tensor(x.ctypes.data, x.nbytes, x.size, -1, x.ndim, (ctypes.c_int64 * x.ndim)(*x.shape), index)
        for index, x in enumerate(arrays)
    ]
    call = _Call(
        tensors=(_Tensor * len(tensors))(*tensors),
        scalars=(ctypes.c_double * len(scalars))(*scalars),
        tensor_count=len(tensors),
        scalar_count=len(scalars),
        orchestration=_address_of(*orchestration),
        **fields,
    )
    if reason := _REASONS[_load_library(library).optest_scene_run(ctypes.byref(call))]:
        raise Fault(reason, call.message.decode(errors="replace"))
    return call


def _address_of(path: Path, name: str) -> int:
    """Return the address of a function in a library; raise Fault BAD_CASE if it has no such function."""
    try:
        return ctypes.cast(_load_library(path)[name], ctypes.c_void_p).value or 0
    except AttributeError:
        raise Fault(Reason.BAD_CASE, f'the source has no function extern "C" {name}') from None


@cache  # a library stays loaded until the process ends
def _load_library(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))

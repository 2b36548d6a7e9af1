"""ONNX Runtime as a backend, at each of its levels of graph optimization."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from optest.backends import PreparedCall
from optest.backends.abilities import Program
from optest.errors import UnknownName
from optest.numerics import dtype_of, numpy_dtype
from optest.onnx.driver import OnnxBackend
from optest.onnx.models import DTYPE_NAMES, ELEMENT_TYPES, Model, checked, program_of, spec_of
from optest.process.command import run
from optest.settings import environment
from optest.spec import Fault, Numerics, Reason, TensorSpec, TestCase, dtype

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_SUFFIX = "ExecutionProvider"
_CPU = f"CPU{_SUFFIX}"
_FATAL = 4
"""The severity from which on the runtime logs: what it refuses it raises, too."""
_TYPES = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
"""Our names of its element types, where they are not the same."""
_LOGS = """
import sys
import onnxruntime
level, provider, *disabled = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
options.log_severity_level = 1
onnxruntime.InferenceSession("model.onnx", options, providers=[provider], disabled_optimizers=disabled)
"""
_MODIFIED = re.compile(r"GraphTransformer (\S+) modified: 1")
_LOAD_S = 300.0
_LOG_BYTES = 1 << 24
_UNKNOWN = "is not a registered function/op"
_LACKING = {
    "fallback to CPU EP has been explicitly disabled": "the provider has no kernel, and nothing is run elsewhere",
    "is not currently registered or supported": "it has no tensors of this dtype",
    "data type is not supported with": "it has no such kernel for this dtype",
    "t be converted to MLDataType": "it reads no arrays of this dtype",
    "No corresponding Numpy type": "it hands out no arrays of this dtype",
}
"""What it says of kernels that it lacks, where it has no error of its own for it."""


class OnnxRuntimeBackend(OnnxBackend):
    """Runs models on one execution provider; nodes that it has no kernel for are gaps, not run elsewhere."""

    name = "onnxruntime"
    options = ("provider",)
    variants = tuple(_LEVELS)

    def __init__(self) -> None:
        super().__init__()
        self._provider = _CPU
        self._threads = 0

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take ``provider``, with or without the end of its name.

        Raises:
            UnknownName: for a provider that this build does not have.
        """
        stated, known = str(options.get("provider") or _CPU), onnxruntime.get_available_providers()
        found = next((each for each in known if stated.lower() in (each.lower(), each[: -len(_SUFFIX)].lower())), None)
        if found is None:
            raise UnknownName("execution provider of onnxruntime", stated, known)
        self._provider = found
        self._kept.clear()

    @property
    def numerics(self) -> Numerics:  # type: ignore[override]
        return Numerics(processor="cpu" if self._provider == _CPU else "accelerator")

    def unsupported(self, case: TestCase) -> str | None:
        if case.descriptor.name == "einsum" and any(0 in each.spec.shape for each in case.inputs):
            return "ONNX Runtime dies (SIGFPE) of a size of 0 in Einsum"
        return super().unsupported(case)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        if case.descriptor.name == "div" and all(each.dtype == np.int64 for each in inputs):
            least = np.iinfo(np.int64).min
            if np.any(inputs[0] == least) and np.any(inputs[1] == -1):
                raise Fault(Reason.UNSUPPORTED, "ONNX Runtime dies (SIGFPE) of the smallest int64 divided by -1 in Div")
        return super().run(case, inputs)

    def loaded_nodes(self, content: bytes, variant: str) -> Any:
        """By one thread: each session has a pool of threads, and starting it takes longer than the nodes do. Without an
        arena, which keeps as much memory as a session has ever used."""
        return self.loaded(content, variant, threads=1)

    def loaded(self, content: bytes, variant: str, dump: str = "", profile: str = "", threads: int = 0) -> Any:
        """``variant`` is a level, then names of optimizers that are left out, each after a hyphen."""
        options = onnxruntime.SessionOptions()
        level, *disabled = variant.split("-")
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
        options.log_severity_level = _FATAL
        options.optimized_model_filepath = dump
        options.intra_op_num_threads = threads or self._threads
        options.enable_cpu_mem_arena = not threads
        options.enable_profiling, options.profile_file_prefix = bool(profile), profile or "unused"
        if self._provider != _CPU:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        with _faults():
            return onnxruntime.InferenceSession(
                content, options, providers=[self._provider], disabled_optimizers=disabled
            )

    def passes(self, content: bytes, variant: str) -> Sequence[str]:
        """As the runtime logs them while it loads the model."""
        with TemporaryDirectory() as folder:
            Path(folder, "model.onnx").write_bytes(content)
            level, *disabled = variant.split("-")
            command = [sys.executable, "-c", _LOGS, _LEVELS[level], self._provider, *disabled]
            ended = run(command, cwd=folder, env=environment(), timeout_s=_LOAD_S, tail_bytes=_LOG_BYTES)
        return list(dict.fromkeys(_MODIFIED.findall(ended.stderr_tail)))

    def captured_program(self, case: TestCase, values: object) -> Program:  # noqa: ARG002 - a model has none
        """The model that a session of the case's variant has once it is loaded."""
        variant = self.variant_of(case)
        content, _ = self.optimized(checked(self.sized_model(case)), variant)
        return program_of(content, is_optimized=variant != "disabled")

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        with TemporaryDirectory() as folder:
            dump = Path(folder) / "optimized.onnx"
            self.loaded(content, variant, str(dump))
            return dump.read_bytes(), "disabled"

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """As a session says that is only loaded."""
        found = self.loaded(self.sized_model(case).content, "disabled").get_outputs()
        return [spec_of(_TYPES.get(each.type[7:-1], each.type[7:-1]), each.shape) for each in found]

    def called(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        with _faults():
            types = " ".join(each.type for each in (*program.get_inputs(), *program.get_outputs()))
            if "bfloat16" not in types and "float8" not in types:  # three times as fast, where NumPy has the dtypes
                return list(program.run(list(model.outputs), dict(feeds), _quiet()))
            values = {name: _value(array) for name, array in feeds.items()}
            return [_array(each) for each in program.run_with_ort_values(list(model.outputs), values, _quiet())]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """One run of a session whose inputs are bound; it allocates its outputs."""
        model = self.model(case)
        session = self.program(model, case)
        binding, values = session.io_binding(), {name: _value(array) for name, array in model.fed(inputs).items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in model.outputs:
            binding.bind_output(name)

        def call() -> None:
            session.run_with_iobinding(binding)

        def outputs() -> list[Any]:
            call()
            return [_array(each) for each in binding.get_outputs()]

        yield PreparedCall(call=call, outputs=outputs)

    def threads(self) -> int:
        return self._threads or os.cpu_count() or 1

    def use_threads(self, count: int) -> None:
        self._threads = count

    def profiled(
        self, content: bytes, variant: str, model: Model, feeds: Mapping[str, Any], trace: Path
    ) -> list[tuple[str, int, float]]:
        session = self.loaded(content, variant, profile=str(trace.with_suffix("")))
        for _ in range(2):  # a warm-up first
            self.called(session, model, feeds)
        os.replace(session.end_profiling(), trace)
        events = [each for each in json.loads(trace.read_text()) if "dur" in each]
        began = max(each["ts"] for each in events if each["name"] == "model_run")
        spent: dict[str, list[float]] = {}
        for each in events:
            if each["cat"] == "Node" and each["ts"] >= began and each["name"].endswith("_kernel_time"):
                spent.setdefault(each["args"]["op_name"], []).append(each["dur"] / 1e6)
        return [(name, len(seconds), sum(seconds)) for name, seconds in spent.items()]

    def device(self) -> str | None:
        return self._provider[: -len(_SUFFIX)].lower()

    def versions(self) -> Mapping[str, str]:
        return {"onnxruntime": str(onnxruntime.__version__), **super().versions()}

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("runtime_expectations.yaml")) if self._provider == _CPU else None

    def expectations_of_samples(self) -> str | None:
        return str(Path(__file__).with_name("node_expectations.yaml")) if self._provider == _CPU else None

    def doctor(self) -> Sequence[str]:
        return (*super().doctor(), f"providers: {', '.join(onnxruntime.get_available_providers())}")


@contextmanager
def _faults() -> Iterator[None]:
    """What the runtime says that it has no kernel for."""
    try:
        yield
    except state.NotImplemented as error:
        words = str(error).partition("NOT_IMPLEMENTED : ")[2].strip() or str(error)
        raise Fault(Reason.UNSUPPORTED, f"ONNX Runtime: {words}") from error
    except (state.Fail, state.RuntimeException, RuntimeError) as error:
        operator = str(error).partition(_UNKNOWN)[0].split()[-1]
        lacking = {**_LACKING, _UNKNOWN: f"it has no operator {operator}"}
        why = next((why for words, why in lacking.items() if words in str(error)), None)
        if why is None:
            raise
        raise Fault(Reason.UNSUPPORTED, f"ONNX Runtime: {why}") from error


@cache
def _quiet() -> Any:
    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL
    return options


def _value(array: np.ndarray[Any, Any]) -> Any:
    """A tensor of the runtime; it takes dtypes of NumPy alone, others as their bits."""
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    number = ELEMENT_TYPES[dtype_of(array.dtype).name]
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.itemsize}"), number)


def _array(value: Any) -> Any:
    """The elements of a tensor of the runtime, copied."""
    entry = numpy_dtype(dtype(DTYPE_NAMES[value.element_type()]))
    if entry.isbuiltin == 1:
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * entry.itemsize
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), entry).reshape(shape)

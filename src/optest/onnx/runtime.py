"""Backend of ONNX Runtime; its variants are the levels of graph optimization."""

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
# The runtime logs nothing below this severity, since it raises its errors as well.
_FATAL = 4
# Names of element types that differ from optest's.
_TYPES = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
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
# Messages that mean a missing kernel although their error type does not say so.
_LACKING = {
    "fallback to CPU EP has been explicitly disabled": "the provider has no kernel, and fallback is disabled",
    "is not currently registered or supported": "tensors of this dtype are not supported",
    "data type is not supported with": "the kernel does not support this dtype",
    "t be converted to MLDataType": "input arrays of this dtype are not supported",
    "No corresponding Numpy type": "output arrays of this dtype are not supported",
}


class OnnxRuntimeBackend(OnnxBackend):
    """Backend that runs models on one execution provider, without fallback to the CPU for missing kernels."""

    name = "onnxruntime"
    options = ("provider",)
    variants = tuple(_LEVELS)

    def __init__(self) -> None:
        super().__init__()
        self._provider = _CPU
        self._threads = 0

    def configure(self, options: Mapping[str, Any]) -> None:
        """Select ``provider``, with or without the suffix ExecutionProvider; the CPU if it is empty.

        Raises:
            UnknownName: for a provider that this build does not have.
        """
        name, known = str(options.get("provider") or _CPU), onnxruntime.get_available_providers()
        provider = next((x for x in known if name.lower() in (x.lower(), x[: -len(_SUFFIX)].lower())), None)
        if provider is None:
            raise UnknownName("execution provider of onnxruntime", name, known)
        self._provider = provider
        self._kept.clear()

    @property
    def numerics(self) -> Numerics:  # type: ignore[override]
        return Numerics(processor="cpu" if self._provider == _CPU else "accelerator")

    def unsupported(self, case: TestCase) -> str | None:
        if case.descriptor.name == "einsum" and any(0 in each.spec.shape for each in case.inputs):
            return "ONNX Runtime crashes (SIGFPE) on a size of 0 in Einsum"
        return super().unsupported(case)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        if case.descriptor.name == "div" and all(each.dtype == np.int64 for each in inputs):
            least = np.iinfo(np.int64).min
            if np.any(inputs[0] == least) and np.any(inputs[1] == -1):
                raise Fault(
                    Reason.UNSUPPORTED, "ONNX Runtime crashes (SIGFPE) when Div divides the smallest int64 by -1"
                )
        return super().run(case, inputs)

    def loaded_nodes(self, content: bytes, variant: str) -> Any:
        """Load a model of a few nodes with one thread and without a memory arena."""
        # Starting a session's thread pool takes longer than its nodes; an arena keeps the session's peak memory.
        return self.load(content, variant, threads=1)

    def load(self, content: bytes, variant: str, dump: str = "", profile: str = "", threads: int = 0) -> Any:
        """Load a model; ``variant`` is LEVEL or LEVEL-PASS…, passes to disable; ``dump`` and ``profile`` are paths."""
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
        with _faults_of_runtime():
            return onnxruntime.InferenceSession(
                content, options, providers=[self._provider], disabled_optimizers=disabled
            )

    def passes(self, content: bytes, variant: str) -> Sequence[str]:
        """Return the passes that change a model, from the log of a process that loads it."""
        with TemporaryDirectory() as folder:
            Path(folder, "model.onnx").write_bytes(content)
            level, *disabled = variant.split("-")
            command = [sys.executable, "-c", _LOGS, _LEVELS[level], self._provider, *disabled]
            ended = run(command, cwd=folder, env=environment(), timeout_s=_LOAD_S, tail_bytes=_LOG_BYTES)
        return list(dict.fromkeys(_MODIFIED.findall(ended.stderr_tail)))

    def captured_program(self, case: TestCase, values: object) -> Program:  # noqa: ARG002 - a model has none
        """Return the case's model as a session of its variant has optimised it."""
        variant = self.variant_of(case)
        content, _ = self.optimized(checked(self.sized_model(case)), variant)
        return program_of(content, is_optimized=variant != "disabled")

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        with TemporaryDirectory() as folder:
            dump = Path(folder) / "optimized.onnx"
            self.load(content, variant, str(dump))
            return dump.read_bytes(), "disabled"

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Return the output specs of a session that is loaded but not run."""
        outputs = self.load(self.sized_model(case).content, "disabled").get_outputs()
        # A type is written as "tensor(float)".
        return [spec_of(_TYPES.get(output.type[7:-1], output.type[7:-1]), output.shape) for output in outputs]

    def call(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        with _faults_of_runtime():
            types = " ".join(each.type for each in (*program.get_inputs(), *program.get_outputs()))
            if "bfloat16" not in types and "float8" not in types:  # three times as fast as OrtValues
                return list(program.run(list(model.outputs), dict(feeds), _quiet_options()))
            values = {name: _ort_value(array) for name, array in feeds.items()}
            return [
                _array_of_value(each)
                for each in program.run_with_ort_values(list(model.outputs), values, _quiet_options())
            ]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """Yield one run of a session whose inputs are bound; each run allocates its outputs."""
        model = self.model(case)
        session = self.program(model, case)
        binding, values = session.io_binding(), {name: _ort_value(array) for name, array in model.fed(inputs).items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in model.outputs:
            binding.bind_output(name)

        def call() -> None:
            session.run_with_iobinding(binding)

        def outputs() -> list[Any]:
            call()
            return [_array_of_value(each) for each in binding.get_outputs()]

        yield PreparedCall(call=call, outputs=outputs)

    def threads(self) -> int:
        return self._threads or os.cpu_count() or 1

    def use_threads(self, count: int) -> None:
        self._threads = count

    def profile(
        self, content: bytes, variant: str, model: Model, feeds: Mapping[str, Any], trace: Path
    ) -> list[tuple[str, int, float]]:
        session = self.load(content, variant, profile=str(trace.with_suffix("")))
        for _ in range(2):  # a warm-up first
            self.call(session, model, feeds)
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
def _faults_of_runtime() -> Iterator[None]:
    """Convert errors in the block that mean a missing kernel to a Fault UNSUPPORTED."""
    try:
        yield
    except state.NotImplemented as error:
        words = str(error).partition("NOT_IMPLEMENTED : ")[2].strip() or str(error)
        raise Fault(Reason.UNSUPPORTED, f"ONNX Runtime: {words}") from error
    except (state.Fail, state.RuntimeException, RuntimeError) as error:
        operator = str(error).partition(_UNKNOWN)[0].split()[-1]
        lacking = {**_LACKING, _UNKNOWN: f"there is no operator {operator}"}
        why = next((why for words, why in lacking.items() if words in str(error)), None)
        if why is None:
            raise
        raise Fault(Reason.UNSUPPORTED, f"ONNX Runtime: {why}") from error


@cache
def _quiet_options() -> Any:
    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL
    return options


def _ort_value(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a tensor of the runtime; dtypes that NumPy lacks are passed as their bits."""
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    number = ELEMENT_TYPES[dtype_of(array.dtype).name]
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.itemsize}"), number)


def _array_of_value(value: Any) -> Any:
    """Return the elements of a tensor of the runtime as an array; dtypes that NumPy lacks are copied bit by bit."""
    entry = numpy_dtype(dtype(DTYPE_NAMES[value.element_type()]))
    if entry.isbuiltin == 1:
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * entry.itemsize
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), entry).reshape(shape)

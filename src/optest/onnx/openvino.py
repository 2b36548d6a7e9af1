"""OpenVINO's CPU plug-in as a backend, in float32 or in the precision that it chooses for the processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import openvino
from onnx import TensorProto, helper

from optest.backends import PreparedCall
from optest.numerics import numpy_dtype
from optest.onnx.driver import OnnxBackend
from optest.onnx.models import Model, spec_of
from optest.spec import Fault, Numerics, Reason, TensorSpec, TestCase, dtype

_DEVICE = "CPU"
_PRECISION = "INFERENCE_PRECISION_HINT"
# OpenVINO's names of element types that differ from optest's beyond f32, i64 …
_NAMES = {"boolean": "bool", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bf16": "bfloat16"}
_NO_KERNEL = ("No conversion rule found for operations", "Unsupported data type", "Unsupported padding")
_NARROWED = {"float64": "float32", "uint64": "int32", "uint32": "int32"}
_QUANTIZED = {"QuantizeLinear": 0, "DequantizeLinear": 0}
# Operators whose results are indices, which fit into the int32 that OpenVINO computes.
_INDICES = ("argmax", "argmin")


class OpenVinoBackend(OnnxBackend):
    """Backend that reads ONNX models into OpenVINO and compiles them for the CPU."""

    name = "openvino"
    variants = ("default", "f32")
    compares_variants = False  # variants differ in precision, so their outputs differ
    shows_its_graph = False
    sized: ClassVar[Mapping[str, int]] = {
        "Conv": 1,
        "ConvInteger": 1,
        "RotaryEmbedding": 1,
        "Attention": 0,
        **_QUANTIZED,
    }

    def __init__(self) -> None:
        super().__init__()
        self._core = openvino.Core()
        self._precisions: dict[str, str] = {}
        self._hints: dict[str, Any] = {}

    def precision_of(self, variant: str) -> str:
        """Return the dtype in which the plug-in computes float32: by default ``bfloat16`` on some processors."""
        if variant not in self._precisions:
            name = self._compiled(_smallest_model(), variant).get_property(_PRECISION).get_type_name()
            self._precisions[variant] = _dtype_name(name)
        return self._precisions[variant]

    def threads(self) -> int:
        return int(self._compiled(_smallest_model(), "f32").get_property("INFERENCE_NUM_THREADS"))

    def use_threads(self, count: int) -> None:
        self._hints = {"INFERENCE_NUM_THREADS": count}

    def profile(
        self,
        content: bytes,
        variant: str,
        model: Model,
        feeds: Mapping[str, Any],
        trace: Path,  # noqa: ARG002 - the plug-in reports durations without start times
    ) -> list[tuple[str, int, float]]:
        request = self._compiled(content, variant, PERF_COUNT=True).create_infer_request()
        for _ in range(2):
            self.call(request, model, feeds)
        spent: dict[str, list[float]] = {}
        for node in request.get_profiling_info():
            if node.status == openvino.ProfilingInfo.Status.EXECUTED:
                spent.setdefault(node.node_type, []).append(node.real_time.total_seconds())
        return [(name, len(seconds), sum(seconds)) for name, seconds in spent.items()]

    def numerics_of(self, case: TestCase) -> Numerics:
        return Numerics(processor="cpu", operands="bfloat16" if self._is_cut(case) else "float32")

    def _is_cut(self, case: TestCase) -> bool:
        return self.precision_of(self.variant_of(case)) == "bfloat16"

    def unsupported(self, case: TestCase) -> str | None:
        """Return why a case is unsupported, such as a dtype that the plug-in narrows by documentation; else None."""
        name = case.descriptor.name
        is_product = name == "dot" or case.descriptor.category in ("contraction", "attention")
        is_cut = is_product and self._is_cut(case)
        if is_cut and any(each.name == "float16" for each in case.dtypes):
            return f"OpenVINO's CPU plug-in computes {name} of float16 in bfloat16 here; use --variant f32"
        is_exact = any(each.fill.kind == "integer-exact" for each in case.inputs)
        if is_cut and is_exact and (name == "dot" or len(case.inputs) > 2):
            return "OpenVINO's CPU plug-in rounds the product to bfloat16 here before it adds a bias; use --variant f32"
        dtypes = [case.inputs[0].spec.dtype.name] if case.inputs else []
        if name not in _INDICES:
            dtypes += [each.dtype.name for each in case.outputs[:1]]
        dtypes += [each.name for each in case.dtypes if each.name == "float64"]
        wide = next((each for each in dtypes if each in _NARROWED), None)
        if wide is not None:
            return f"OpenVINO's CPU plug-in computes {wide} in {_NARROWED[wide]}"
        return super().unsupported(case)

    def load(self, content: bytes, variant: str) -> Any:
        with _faults_of_openvino():
            return self._compiled(content, variant).create_infer_request()

    def _compiled(self, content: bytes, variant: str, **hints: Any) -> Any:
        hints |= self._hints | ({_PRECISION: "f32"} if variant == "f32" else {})
        return self._core.compile_model(self._core.read_model(content), _DEVICE, hints)

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Return the output specs of the case's model as OpenVINO reads it."""
        with _faults_of_openvino():
            outputs = self._core.read_model(self.sized_model(case).content).outputs
        specs = []
        for output in outputs:
            shape = output.partial_shape
            sizes = [None] if shape.rank.is_dynamic else [x.get_length() if x.is_static else None for x in shape]
            specs.append(spec_of(_dtype_name(output.element_type.get_type_name()), sizes))
        return specs

    def call(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        _set_inputs(program, feeds)
        with _faults_of_openvino():
            program.infer()
        return _copied_outputs(program, model)

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """Yield one inference of a request whose inputs are set."""
        model = self.model(case)
        request = self.program(model, case)
        _set_inputs(request, model.fed(inputs))

        def outputs() -> list[Any]:
            request.infer()
            return _copied_outputs(request, model)

        yield PreparedCall(call=request.infer, outputs=outputs)

    def versions(self) -> Mapping[str, str]:
        kind = {"openvino_default": self.precision_of("default")}
        processor = Path("/proc/cpuinfo")
        # AVX-512 rounds to bfloat16, also without instructions for it; code for AVX2 cuts bits off.
        has_avx512 = processor.exists() and "avx512f" in processor.read_text(encoding="utf-8", errors="replace")
        is_native = "BF16" in self._core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES")
        kind["openvino_bfloat16"] = "native" if is_native else "rounded" if has_avx512 else "emulated"
        return {"openvino": openvino.__version__.partition("-")[0], **kind, **super().versions()}

    def doctor(self) -> Sequence[str]:
        return (*super().doctor(), *(f"variant {name} computes in {self.precision_of(name)}" for name in self.variants))

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("openvino_expectations.yaml"))


def _smallest_model() -> bytes:
    made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "smallest", *([each] for each in made))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


@contextmanager
def _faults_of_openvino() -> Iterator[None]:
    """Convert errors in the block that name a missing kernel to a Fault UNSUPPORTED."""
    try:
        yield
    except RuntimeError as error:
        # OpenVINO raises one type for all errors, and most lines of a message are locations in its source.
        reasons = [line.strip() for line in str(error).splitlines() if any(words in line for words in _NO_KERNEL)]
        if not reasons:
            raise
        raise Fault(Reason.UNSUPPORTED, f"OpenVINO: {reasons[-1].lstrip('- ')}") from error


def _set_inputs(request: Any, feeds: Mapping[str, Any]) -> None:
    for name, array in feeds.items():
        if array.dtype.isbuiltin == 1:
            tensor = openvino.Tensor(array)
        else:  # a dtype that NumPy lacks is passed as its bits
            kind = request.get_tensor(name).element_type
            tensor = openvino.Tensor(array.view(f"u{array.itemsize}"), list(array.shape), kind)
        request.set_tensor(name, tensor)


def _copied_outputs(request: Any, model: Model) -> list[Any]:
    outputs = []
    for tensor in map(request.get_tensor, model.outputs):  # copied: the next call overwrites the tensor's memory
        data, entry = np.array(tensor.data), numpy_dtype(dtype(_dtype_name(tensor.element_type.get_type_name())))
        outputs.append(data if entry.isbuiltin == 1 else data.view(entry))
    return outputs


def _dtype_name(name: str) -> str:
    return dtype(_NAMES.get(name, name)).name

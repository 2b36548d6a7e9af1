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
_NAMES = {"boolean": "bool", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bf16": "bfloat16"}
"""Our names of its element types, where they are not ``f32``, ``i64`` … in both."""
_NO_KERNEL = ("No conversion rule found for operations", "Unsupported data type", "Unsupported padding")
_NARROWED = {"float64": "float32", "uint64": "int32", "uint32": "int32"}
_QUANTIZED = {"QuantizeLinear": 0, "DequantizeLinear": 0}
_PLACES = ("argmax", "argmin")
"""Operators whose result is an index, which fits into int32."""


class OpenVinoBackend(OnnxBackend):
    """Reads models as it reads any ONNX file and compiles them for the CPU."""

    name = "openvino"
    variants = ("default", "f32")
    compares_variants = False  # precisions, and no optimisation
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
        """What the plug-in says that it computes float32 in: by its own choice ``bfloat16`` on some processors."""
        if variant not in self._precisions:
            found = self._compiled(_smallest_model(), variant).get_property(_PRECISION).get_type_name()
            self._precisions[variant] = _dtype_name(found)
        return self._precisions[variant]

    def threads(self) -> int:
        return int(self._compiled(_smallest_model(), "f32").get_property("INFERENCE_NUM_THREADS"))

    def use_threads(self, count: int) -> None:
        self._hints = {"INFERENCE_NUM_THREADS": count}

    def profiled(
        self,
        content: bytes,
        variant: str,
        model: Model,
        feeds: Mapping[str, Any],
        trace: Path,  # noqa: ARG002 - the plug-in says how long a node took, and not when
    ) -> list[tuple[str, int, float]]:
        request = self._compiled(content, variant, PERF_COUNT=True).create_infer_request()
        for _ in range(2):
            self.called(request, model, feeds)
        spent: dict[str, list[float]] = {}
        for each in request.get_profiling_info():
            if each.status == openvino.ProfilingInfo.Status.EXECUTED:
                spent.setdefault(each.node_type, []).append(each.real_time.total_seconds())
        return [(name, len(seconds), sum(seconds)) for name, seconds in spent.items()]

    def numerics_of(self, case: TestCase) -> Numerics:
        return Numerics(processor="cpu", operands="bfloat16" if self._is_cut(case) else "float32")

    def _is_cut(self, case: TestCase) -> bool:
        return self.precision_of(self.variant_of(case)) == "bfloat16"

    def unsupported(self, case: TestCase) -> str | None:
        """What the plug-in computes in a narrower dtype, as its documentation says, is another call."""
        name = case.descriptor.name
        is_product = name == "dot" or case.descriptor.category in ("contraction", "attention")
        is_cut = is_product and self._is_cut(case)
        if is_cut and any(each.name == "float16" for each in case.dtypes):
            return f"OpenVINO's CPU plug-in computes {name} of float16 in bfloat16 here; --variant f32 does not"
        is_exact = any(each.fill.kind == "integer-exact" for each in case.inputs)
        if is_cut and is_exact and (name == "dot" or len(case.inputs) > 2):
            return "OpenVINO's CPU plug-in rounds the product to bfloat16 here before it adds a bias; see --variant f32"
        dtypes = [case.inputs[0].spec.dtype.name] if case.inputs else []
        if name not in _PLACES:
            dtypes += [each.dtype.name for each in case.outputs[:1]]
        dtypes += [each.name for each in case.dtypes if each.name == "float64"]
        wide = next((each for each in dtypes if each in _NARROWED), None)
        if wide is not None:
            return f"OpenVINO's CPU plug-in computes {wide} in {_NARROWED[wide]}"
        return super().unsupported(case)

    def loaded(self, content: bytes, variant: str) -> Any:
        with _faults():
            return self._compiled(content, variant).create_infer_request()

    def _compiled(self, content: bytes, variant: str, **hints: Any) -> Any:
        hints |= self._hints | ({_PRECISION: "f32"} if variant == "f32" else {})
        return self._core.compile_model(self._core.read_model(content), _DEVICE, hints)

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """As the model says once it is read."""
        with _faults():
            found = self._core.read_model(self.sized_model(case).content).outputs
        return [spec_of(_dtype_name(each.element_type.get_type_name()), _sizes(each.partial_shape)) for each in found]

    def called(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        _place(program, feeds)
        with _faults():
            program.infer()
        return _outputs(program, model)

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """One inference of a request whose inputs are set."""
        model = self.model(case)
        request = self.program(model, case)
        _place(request, model.fed(inputs))

        def outputs() -> list[Any]:
            request.infer()
            return _outputs(request, model)

        yield PreparedCall(call=request.infer, outputs=outputs)

    def versions(self) -> Mapping[str, str]:
        is_native = "BF16" in self._core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES")
        kind = {"openvino_default": self.precision_of("default")}
        kind["openvino_bfloat16"] = "native" if is_native else "emulated"
        return {"openvino": openvino.__version__.partition("-")[0], **kind, **super().versions()}

    def doctor(self) -> Sequence[str]:
        return (*super().doctor(), *(f"variant {each} computes in {self.precision_of(each)}" for each in self.variants))

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("openvino_expectations.yaml"))


def _smallest_model() -> bytes:
    made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "smallest", *([each] for each in made))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


@contextmanager
def _faults() -> Iterator[None]:
    """What it says that it cannot do at all; it raises one type for everything."""
    try:
        yield
    except RuntimeError as error:
        # Lines that say what is wrong; others are places in OpenVINO's source.
        telling = [line.strip() for line in str(error).splitlines() if any(each in line for each in _NO_KERNEL)]
        if not telling:
            raise
        raise Fault(Reason.UNSUPPORTED, f"OpenVINO: {telling[-1].lstrip('- ')}") from error


def _sizes(shape: Any) -> list[int | None]:
    return [None] if shape.rank.is_dynamic else [each.get_length() if each.is_static else None for each in shape]


def _place(request: Any, feeds: Mapping[str, Any]) -> None:
    for name, array in feeds.items():
        is_numpys = array.dtype.isbuiltin == 1
        wanted = request.get_tensor(name).element_type
        stored = array if is_numpys else array.view(f"u{array.itemsize}")
        tensor = openvino.Tensor(stored) if is_numpys else openvino.Tensor(stored, list(array.shape), wanted)
        request.set_tensor(name, tensor)


def _outputs(request: Any, model: Model) -> list[Any]:
    made = []
    for tensor in map(request.get_tensor, model.outputs):  # copied: it lends its memory until the next call
        data, entry = np.array(tensor.data), numpy_dtype(dtype(_dtype_name(tensor.element_type.get_type_name())))
        made.append(data if entry.isbuiltin == 1 else data.view(entry))
    return made


def _dtype_name(name: str) -> str:
    return dtype(_NAMES.get(name, name)).name

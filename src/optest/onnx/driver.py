"""What all backends that run ONNX models share: which cases have a model, and programs kept for later cases."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx

from optest.backends import BackendDriver
from optest.backends.abilities import Program
from optest.backends.command_abilities import HasVariants
from optest.errors import UsageError
from optest.onnx.models import Model, checked, inferred_program, model_of, why_no_model
from optest.onnx.nodes import node_of
from optest.registry import load_object
from optest.spec import Fault, Numerics, OperatorDescriptor, Reason, TensorSpec, TestCase

NODE_TEST = "ONNX node test"
"""The category of operators in ONNX's own tests (:mod:`optest.onnx.node_tests`)."""
_KEPT = 16
"""Programs that are kept: each may hold threads. Cases of one operator come one after another."""
_COUNT_FROM_THE_END = ("Gather", "GatherElements", "ScatterElements")


class OnnxBackend(BackendDriver):
    """Makes a model of a case, loads it unless one of the last models was the same, and calls it."""

    kind = "onnx"
    reads_inputs = False
    numerics = Numerics(processor="cpu")
    sized: ClassVar[Mapping[str, int]] = {}
    """Operators of which sizes have to be known when a model is loaded: of inputs from this place on."""
    shows_its_graph = True
    """Whether :meth:`optimized` says what the runtime makes of a model."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[bytes, str, bool], Any] = OrderedDict()
        self._compile_s: float | None = None

    @abstractmethod
    def loaded(self, content: bytes, variant: str) -> Any:
        """A program of a serialized model, by a variant of the backend, "" of one that has none.

        Raises:
            Fault: UNSUPPORTED if there is no kernel for it.
        """

    def loaded_nodes(self, content: bytes, variant: str) -> Any:
        """As :meth:`loaded`, of a few nodes that are called once."""
        return self.loaded(content, variant)

    @abstractmethod
    def called(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs as arrays.

        Raises:
            Fault: UNSUPPORTED if there is no kernel for it.
        """

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        """A model as the runtime has optimised it, and the variant that runs it as it is."""
        return content, variant

    def passes(self, content: bytes, variant: str) -> Sequence[str]:  # noqa: ARG002 - of one that names none
        """The optimizer's passes that change a model, each of which ``VARIANT-PASS`` leaves out."""
        return ()

    def precision_of(self, variant: str) -> str:  # noqa: ARG002 - as every variant does, but OpenVINO's
        """The dtype in which it computes what a model has in float32."""
        return "float32"

    def threads(self) -> int:
        """How many threads compute a call."""
        return 1

    def use_threads(self, count: int) -> None:
        """Load programs that compute with so many threads from here on.

        Raises:
            UsageError: for a backend that computes with one alone.
        """
        if count != 1:
            raise UsageError(f"backend {self.name} computes with one thread, and not with {count}")

    def profiled(self, *_: Any, **__: Any) -> list[tuple[str, int, float]]:
        """Of ``(content, variant, model, feeds, trace)``: operator, calls and seconds in all for each kind of node, in
        one run after a warm-up, by the runtime's own profiler; the file ``trace`` is in the format of chrome://tracing,
        and written where the runtime says when a node ran.

        Raises:
            Fault: UNSUPPORTED for a runtime without a profiler.
        """
        raise Fault(Reason.UNSUPPORTED, f"{self.name} has no profiler: --backend onnxruntime or openvino has")

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        return None if node_of(descriptor) is not None else "not in ONNX"

    def unsupported(self, case: TestCase) -> str | None:
        return None if case.descriptor.category == NODE_TEST else why_no_model(case, self.sized)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self._compile_s = None
        model = self.model(case)
        # Negative indices have to be refused as the catalogue has it, and mean something in ONNX.
        indices = inputs[1:2] if case.expects_error is not None and model.op in _COUNT_FROM_THE_END else ()
        if any(each.dtype.kind == "i" and bool(np.any(each < 0)) for each in indices):
            raise Fault(Reason.UNSUPPORTED, f"ONNX: {model.op} counts negative indices from the end")
        return self.called(self.program(model, case), model, model.fed(inputs))

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        return [spec for _, spec in inferred_program(self.sized_model(case)).outputs]

    def captured_program(self, case: TestCase, values: object) -> Program:  # noqa: ARG002 - a model has none
        """The model as a runtime gets it."""
        return inferred_program(self.sized_model(case))

    def sized_model(self, case: TestCase) -> Model:
        """The case's model, in which all sizes are stated."""
        model = self.model(case)
        return model if case.descriptor.category == NODE_TEST else model_of(case, {model.op: 0})

    def model(self, case: TestCase) -> Model:
        """The model of a case, with the sizes that this runtime needs; a test of ONNX's own brings its model."""
        if case.descriptor.category != NODE_TEST:
            return model_of(case, self.sized)
        own: Model = load_object("optest.onnx.node_tests:model_of_test")(case)
        return own

    def program(self, model: Model, case: TestCase) -> Any:
        """The model of the case as what is called; another for empty tensors, which OpenVINO refuses after others."""
        is_empty = not all(argument.spec.elements for argument in case.inputs)
        key = (checked(model), self.variant_of(case), is_empty)
        if key not in self._kept:
            began = time.perf_counter()
            try:
                self._kept[key] = self.loaded(*key[:2])
            except Fault as fault:  # kept, too: the next case of the model need not try again
                self._kept[key] = fault
            self._compile_s = time.perf_counter() - began
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        found = self._kept[key]
        if isinstance(found, Fault):
            raise Fault(found.reason, found.message)
        return found

    def variant_of(self, case: TestCase) -> str:
        """The variant that the case asks, else the default one."""
        known = self.variants if isinstance(self, HasVariants) else ("",)
        return case.backend.variant or known[-1]

    def compile_s(self) -> float | None:
        return self._compile_s

    def device(self) -> str | None:
        return "cpu"

    def versions(self) -> Mapping[str, str]:
        return {"onnx": str(onnx.__version__)}

    def doctor(self) -> Sequence[str]:
        return tuple(f"{name} {version}" for name, version in self.versions().items())

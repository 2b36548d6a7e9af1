"""Base class of backends that run ONNX models: models of cases, and a cache of loaded programs."""

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
"""Category of the operators in ONNX's node tests (:mod:`optest.onnx.node_tests`)."""
# Few, since a loaded program may hold threads; the cases of one operator follow one another.
_KEPT = 16
_COUNT_FROM_THE_END = ("Gather", "GatherElements", "ScatterElements")


class OnnxBackend(BackendDriver):
    """Backend that converts a case to an ONNX model, loads it unless it is cached, and runs it."""

    kind = "onnx"
    reads_inputs = False
    numerics = Numerics(processor="cpu")
    # Operators whose inputs, from this index on, need known sizes when a model is loaded.
    sized: ClassVar[Mapping[str, int]] = {}
    # False if the runtime gives no access to its optimised graph; then `optimized` returns the model unchanged.
    shows_its_graph = True

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[bytes, str, bool], Any] = OrderedDict()
        self._compile_s: float | None = None

    @abstractmethod
    def load(self, content: bytes, variant: str) -> Any:
        """Load a serialized model; ``variant`` is "" for a backend without variants.

        Raises:
            Fault: UNSUPPORTED if there is no kernel for it.
        """

    def loaded_nodes(self, content: bytes, variant: str) -> Any:
        """Load a model of a few nodes that is called once; raise as :meth:`loaded`."""
        return self.load(content, variant)

    @abstractmethod
    def call(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Run a loaded program and return its outputs as arrays.

        Raises:
            Fault: UNSUPPORTED if there is no kernel for it.
        """

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        """Return the model optimised by the runtime, and the variant that runs it without changes."""
        return content, variant

    def passes(self, content: bytes, variant: str) -> Sequence[str]:  # noqa: ARG002 - the default has no passes
        """Return the optimizer passes that change a model; the variant ``VARIANT-PASS`` disables one."""
        return ()

    def precision_of(self, variant: str) -> str:  # noqa: ARG002 - only OpenVINO's variants differ
        """Return the dtype in which a variant computes float32 values."""
        return "float32"

    def threads(self) -> int:
        """Return the number of threads of a call."""
        return 1

    def use_threads(self, count: int) -> None:
        """Use ``count`` threads in programs loaded from now on.

        Raises:
            UsageError: for a backend that always uses one thread.
        """
        if count != 1:
            raise UsageError(f"--threads is {count}, expected 1: backend {self.name} computes with one thread")

    def profile(self, *_: Any, **__: Any) -> list[tuple[str, int, float]]:
        """Profile one run after a warm-up; return operator, calls and total seconds of each kind of node.

        Arguments are ``(content, variant, model, feeds, trace)``. The file ``trace`` is written, in the format of
        chrome://tracing, if the runtime's profiler reports start times.

        Raises:
            Fault: UNSUPPORTED for a runtime without a profiler.
        """
        raise Fault(Reason.UNSUPPORTED, f"{self.name} has no profiler; choose --backend onnxruntime or openvino")

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        return None if node_of(descriptor) is not None else "not in ONNX"

    def unsupported(self, case: TestCase) -> str | None:
        return None if case.descriptor.category == NODE_TEST else why_no_model(case, self.sized)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self._compile_s = None
        model = self.model(case)
        # The operators refuse negative indices, ONNX counts them from the end.
        indices = inputs[1:2] if case.expects_error is not None and model.op in _COUNT_FROM_THE_END else ()
        if any(array.dtype.kind == "i" and bool(np.any(array < 0)) for array in indices):
            raise Fault(Reason.UNSUPPORTED, f"ONNX: {model.op} counts negative indices from the end")
        return self.call(self.program(model, case), model, model.fed(inputs))

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        return [spec for _, spec in inferred_program(self.sized_model(case)).outputs]

    def captured_program(self, case: TestCase, values: object) -> Program:  # noqa: ARG002 - a model has none
        """Return the program of the case's model before a runtime optimises it."""
        return inferred_program(self.sized_model(case))

    def sized_model(self, case: TestCase) -> Model:
        """Return the case's model with all sizes known."""
        model = self.model(case)
        return model if case.descriptor.category == NODE_TEST else model_of(case, {model.op: 0})

    def model(self, case: TestCase) -> Model:
        """Return the model of a case, with the sizes that this runtime needs; a node test of ONNX has its own model."""
        if case.descriptor.category != NODE_TEST:
            return model_of(case, self.sized)
        model: Model = load_object("optest.onnx.node_tests:model_of_test")(case)
        return model

    def program(self, model: Model, case: TestCase) -> Any:
        """Return the loaded program of a model from the cache, loading it if needed; raise again a Fault of loading."""
        # OpenVINO refuses empty tensors in a program that ran with others before.
        is_empty = not all(argument.spec.elements for argument in case.inputs)
        key = (checked(model), self.variant_of(case), is_empty)
        if key not in self._kept:
            began = time.perf_counter()
            try:
                self._kept[key] = self.load(*key[:2])
            except Fault as fault:  # kept, so that the next case of the model does not load it again
                self._kept[key] = fault
            self._compile_s = time.perf_counter() - began
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        program = self._kept[key]
        if isinstance(program, Fault):
            raise Fault(program.reason, program.message)
        return program

    def variant_of(self, case: TestCase) -> str:
        """Return the variant that the case requests, else the default one."""
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

"""The references as a backend: what a case's reference yields, rounded once to the declared output dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.arguments import at_their_places
from optest.numerics import dtype_of, round_to
from optest.registry import load_object
from optest.spec import Fault, Numerics, Reason, TestCase, UnfitArguments, undeclared_output_dtype

__all__ = ["NumpyBackend", "reference_label", "reference_outputs"]

Reference = Callable[[Sequence[Any], Mapping[str, Any]], Any]


class NumpyBackend(BackendDriver):
    """Answers with the case's own reference: shows that plan, generator and rules work, never that a kernel does."""

    name = "numpy"
    kind = "cpu"
    isolated = False
    is_reference = True
    numerics = Numerics(accumulator="float64")

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return one array for each output, rounded to the dtype that is declared or follows from the inputs.

        Raises:
            UnfitArguments: for inputs that the operator is not defined for.
        """
        _refuse_unfit(case)
        outputs = reference_outputs(case, inputs)
        if len(case.outputs) == len(outputs):
            return [round_to(output, spec.dtype) for output, spec in zip(outputs, case.outputs, strict=True)]
        return [round_to(output, undeclared_output_dtype(dtype_of(output.dtype), case.dtypes)) for output in outputs]

    def unsupported(self, case: TestCase) -> str | None:
        if _stated_reference(case) is None:
            return f"operator {case.descriptor.name} has no reference, which is what backend {self.name} answers with"
        return None

    def device(self) -> str | None:
        return "cpu"

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__}

    def doctor(self) -> Sequence[str]:
        return (f"numpy {np.__version__}",)


def reference_outputs(case: TestCase, inputs: Sequence[Any]) -> list[Any]:
    """What the case's reference yields for ``inputs``, unrounded."""
    return _in_order(_reference_of(case)(at_their_places(case, inputs), dict(case.attributes)))


def reference_label(case: TestCase) -> str:
    """The import path of the case's reference, as one word; ``none`` without one."""
    reference = _stated_reference(case)
    if reference is None or isinstance(reference, str):
        return reference or "none"
    return f"{getattr(reference, '__module__', '?')}:{getattr(reference, '__qualname__', '?')}".replace(" ", "")


def _stated_reference(case: TestCase) -> str | Reference | None:
    return case.reference or case.descriptor.reference


def _reference_of(case: TestCase) -> Reference:
    reference = _stated_reference(case)
    if reference is None:
        raise Fault(Reason.UNSUPPORTED, f"operator {case.descriptor.name} has no reference")
    if isinstance(reference, str):
        found: Reference = load_object(reference)
        return found
    return reference


def _refuse_unfit(case: TestCase) -> None:
    """A reference may compute something for arguments that the operator refuses; those have no outputs in the case."""
    descriptor = case.descriptor
    if not descriptor.admits([entry.name for entry in case.dtypes]):
        raise UnfitArguments(f"{descriptor.name} is not defined for {', '.join(entry.name for entry in case.dtypes)}")
    if case.outputs or descriptor.infer is None:
        return
    infer = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
    infer(at_their_places(case, [argument.spec for argument in case.inputs]), case.attributes)


def _in_order(outputs: Any) -> list[Any]:
    """The outputs as a list; a bare array is one output, not one for each row."""
    if isinstance(outputs, np.ndarray) or np.isscalar(outputs):
        return [np.asarray(outputs)]
    if isinstance(outputs, Mapping):
        outputs = outputs.values()
    return [np.asarray(output) for output in outputs]

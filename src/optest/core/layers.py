"""Layers on backends: a driver without the layer itself is called for each of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.capabilities import capability_of
from optest.backends.command_abilities import (
    DeclaresCapabilities,
    LacksOperators,
    outside_capabilities,
    skip_reason_for_operator,
)
from optest.core.border import Border
from optest.numerics import Array, dtype_of, numpy_dtype, round_to
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Argument, Fault, Fill, OperatorDescriptor, Reason, TensorSpec, TestCase, UnfitArguments

RunPart = Callable[[TestCase, Sequence[Array]], Sequence[Array]]


def is_composed(driver: BackendDriver, descriptor: OperatorDescriptor) -> bool:
    """Return whether the operator is a layer that the driver computes by its parts."""
    if descriptor.composition is None or driver.is_reference or driver.runs_programs:
        return False
    if isinstance(driver, LacksOperators):
        return driver.lacks(descriptor) is not None
    capabilities = driver.capabilities if isinstance(driver, DeclaresCapabilities) else {}
    return capability_of(capabilities, descriptor) is None


def lack_of_operator(driver: BackendDriver, descriptor: OperatorDescriptor) -> str | None:
    """Return why a check runs no case of an operator or layer with the driver, None if it runs them."""
    if not is_composed(driver, descriptor):
        return skip_reason_for_operator(driver, descriptor)
    for part in descriptor.parts:
        if all(skip_reason_for_operator(driver, operators.get(name)) is not None for name in part.split("|")):
            return f"made of {part.replace('|', ' or ')}, which the backend lacks"
    return None


def composed_outputs(case: TestCase, driver: BackendDriver, inputs: Sequence[Array], run_part: RunPart) -> list[Array]:
    """Return the outputs of a layer, computed by calls of its parts; ``run_part`` runs the driver for one of them.

    Raises:
        Fault: that of a part, with its call; UNSUPPORTED if the driver does not accept one.
    """
    layer = load_object(case.descriptor.composition)
    by_name = {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}
    tensors = [by_name.get(parameter.name) for parameter in case.descriptor.tensors.inputs]
    with Border(f"the composition of {case.descriptor.name}", Reason.BAD_CASE):
        return list(layer(_Calls(case, driver, run_part), tensors, dict(case.attributes)))


class _Calls:
    """Call interface of a layer's composition: runs the parts with a driver."""

    def __init__(self, case: TestCase, driver: BackendDriver, run_part: RunPart) -> None:
        self._case = case
        self._driver = driver
        self._run_part = run_part
        self._count = 0

    def __call__(self, operator: str, *tensors: Array | None, **attributes: Any) -> Array:
        """Run an operator with the driver, return its first output; raise ``Fault`` if unsupported or wrong."""
        self._count += 1
        part, arrays = self._case_of_part(operators.get(operator), tensors, attributes)
        call = f"call {self._count} of the layer, {part.identifier()}"
        lack = skip_reason_for_operator(self._driver, part.descriptor) or outside_capabilities(self._driver, part)
        lack = lack or self._driver.unsupported(part)
        if lack is not None:
            raise Fault(Reason.UNSUPPORTED, f"{call}: {lack}")
        try:
            first = self._run_part(part, arrays)[0]
        except Fault as fault:
            raise Fault(fault.reason, f"{call}: {fault.message}", details=fault.details) from None
        for reason, actual, required in (
            (Reason.DTYPE, dtype_of(first.dtype), part.outputs[0].dtype),
            (Reason.SHAPE, first.shape, part.outputs[0].shape),
        ):
            if actual != required:
                raise Fault(reason, f"{call} is {actual}, expected {required}")
        return first

    def constant(self, values: Any) -> Array:
        """Return the values rounded to the dtype of the layer's first input."""
        values = np.asarray(values, np.float64)
        return round_to(values, self._case.inputs[0].spec.dtype)

    def _case_of_part(
        self, descriptor: OperatorDescriptor, tensors: Sequence[Array | None], attributes: dict[str, Any]
    ) -> tuple[TestCase, list[Array]]:
        """Return the call of a part as a case, and its arrays without omitted inputs."""
        arrays: list[Array] = []
        arguments = []
        for position, tensor in enumerate(tensors):
            if tensor is None:
                continue
            spec = TensorSpec(dtype=dtype_of(tensor.dtype), shape=tensor.shape)
            name = descriptor.tensors.input_name(position)
            arguments.append(Argument(name=name, path=f"input{len(arrays)}", spec=spec, fill=Fill(kind="data")))
            arrays.append(np.asarray(tensor, numpy_dtype(spec.dtype), order="C"))
        bound = descriptor.bind(attributes)
        specs = [None if each is None else TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in tensors]
        part = replace(
            self._case, descriptor=descriptor, inputs=tuple(arguments), outputs=(), attributes=bound, name="", tags=()
        )
        try:
            outputs = load_object(descriptor.infer)(specs, bound)
        except UnfitArguments as error:
            raise Fault(Reason.BAD_CASE, f"the layer's call of {descriptor.name} is invalid: {error}") from None
        return replace(part, outputs=tuple(outputs)), arrays

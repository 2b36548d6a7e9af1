"""Layers on backends: a driver that does not have the layer itself is called for each of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.capabilities import capability_of
from optest.backends.command_abilities import (
    LacksOperators,
    StatesCapabilities,
    lack_of,
    outside_capabilities,
    runs_programs,
)
from optest.core.border import Border
from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Argument, Fault, Fill, OperatorDescriptor, Reason, TensorSpec, TestCase, UnfitArguments

Array = np.ndarray[Any, Any]
Ask = Callable[[TestCase, Sequence[Array]], Sequence[Array]]


def is_composed(driver: BackendDriver, descriptor: OperatorDescriptor) -> bool:
    """Whether the operator is a layer that the driver computes by its parts."""
    if descriptor.composition is None or driver.is_reference or runs_programs(driver):
        return False
    if isinstance(driver, LacksOperators):
        return driver.lacks(descriptor) is not None
    stated = driver.capabilities if isinstance(driver, StatesCapabilities) else {}
    return capability_of(stated, descriptor) is None


def lack_of_operator(driver: BackendDriver, descriptor: OperatorDescriptor) -> str | None:
    """Why a check asks the driver for no case of an operator or layer, None if it asks."""
    if not is_composed(driver, descriptor):
        return lack_of(driver, descriptor)
    for part in descriptor.parts:
        if all(lack_of(driver, operators.get(name)) is not None for name in part.split("|")):
            return f"made of {part.replace('|', ' or ')}, which the backend lacks"
    return None


def composed_outputs(case: TestCase, driver: BackendDriver, inputs: Sequence[Array], ask: Ask) -> list[Array]:
    """The outputs of a layer, by calls of its parts; ``ask`` has the driver run one of them.

    Raises:
        Fault: what a part raises, and which it was; UNSUPPORTED if the driver does not take one.
    """
    layer = load_object(case.descriptor.composition)
    by_name = {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}
    placed = [by_name.get(parameter.name) for parameter in case.descriptor.tensors.inputs]
    with Border(f"the composition of {case.descriptor.name}", Reason.BAD_CASE):
        return list(layer(_Calls(case, driver, ask), placed, dict(case.attributes)))


class _Calls:
    """The parts of a layer, computed by a driver."""

    def __init__(self, case: TestCase, driver: BackendDriver, ask: Ask) -> None:
        self._case = case
        self._driver = driver
        self._ask = ask
        self._count = 0

    def __call__(self, operator: str, *tensors: Array | None, **attributes: Any) -> Array:
        self._count += 1
        part, arrays = self._part(operators.get(operator), tensors, attributes)
        place = f"call {self._count} of the layer, {part.identifier()}"
        lack = lack_of(self._driver, part.descriptor) or outside_capabilities(self._driver, part)
        lack = lack or self._driver.unsupported(part)
        if lack is not None:
            raise Fault(Reason.UNSUPPORTED, f"{place}: {lack}")
        try:
            first = self._ask(part, arrays)[0]
        except Fault as fault:
            raise Fault(fault.reason, f"{place}: {fault.message}", details=fault.details) from None
        for reason, actual, wanted in (
            (Reason.DTYPE, dtype_of(first.dtype), part.outputs[0].dtype),
            (Reason.SHAPE, first.shape, part.outputs[0].shape),
        ):
            if actual != wanted:
                raise Fault(reason, f"{place} is {actual}, but should be {wanted}")
        return first

    def constant(self, values: Any) -> Array:
        values = np.asarray(values, np.float64)
        return round_to(values, self._case.inputs[0].spec.dtype)

    def _part(
        self, descriptor: OperatorDescriptor, tensors: Sequence[Array | None], attributes: dict[str, Any]
    ) -> tuple[TestCase, list[Array]]:
        """The call of a part as a case of its own, with the inputs that it has."""
        arrays: list[Array] = []
        arguments = []
        for place, tensor in enumerate(tensors):
            if tensor is None:
                continue
            spec = TensorSpec(dtype=dtype_of(tensor.dtype), shape=tensor.shape)
            name = descriptor.tensors.input_name(place)
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
            raise Fault(Reason.BAD_CASE, f"the layer makes no call of {descriptor.name}: {error}") from None
        return replace(part, outputs=tuple(outputs)), arrays

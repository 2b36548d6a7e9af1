"""A case's inputs at the places of its operator's signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from optest.registry import load_object
from optest.spec import TestCase, UnfitArguments

__all__ = ["at_their_places", "refuse_unfit"]

Tensor = TypeVar("Tensor")


def at_their_places(case: TestCase, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return ``inputs`` in the order of the signature, with None for an optional input that the case leaves out."""
    signature = case.descriptor.tensors
    by_name = {argument.name: tensor for argument, tensor in zip(case.inputs, inputs, strict=True)}
    if signature.is_variadic or len(by_name) != len(inputs):
        return list(inputs)
    return [by_name.get(parameter.name) for parameter in signature.inputs]


def refuse_unfit(case: TestCase) -> None:
    """Say why the operator has no outputs for the case's dtypes, shapes and attributes.

    Raises:
        UnfitArguments: for inputs that the operator is not defined for.
    """
    descriptor = case.descriptor
    if not descriptor.admits([entry.name for entry in case.dtypes]):
        raise UnfitArguments(f"{descriptor.name} is not defined for {', '.join(entry.name for entry in case.dtypes)}")
    if case.outputs or descriptor.infer is None:
        return
    infer = load_object(descriptor.infer)
    infer(at_their_places(case, [argument.spec for argument in case.inputs]), case.attributes)

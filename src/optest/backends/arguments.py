"""A case's inputs at the places of its operator's signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from optest.spec import TestCase

__all__ = ["at_their_places"]

Tensor = TypeVar("Tensor")


def at_their_places(case: TestCase, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return ``inputs`` in the order of the signature, with None for an optional input that the case leaves out."""
    signature = case.descriptor.tensors
    by_name = {argument.name: tensor for argument, tensor in zip(case.inputs, inputs, strict=True)}
    if signature.is_variadic or len(by_name) != len(inputs):
        return list(inputs)
    return [by_name.get(parameter.name) for parameter in signature.inputs]

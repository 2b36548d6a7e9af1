"""What a JAX call of an operator looks like, and which cases of the operator it cannot be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optest.spec import Kind, TensorSpec

Tensors = Sequence[Any]
"""JAX arrays at the places of the operator's signature, None for one left out."""
Specs = Sequence[TensorSpec | None]
Attributes = Mapping[str, Any]
Gap = Callable[[Specs, Attributes], "str | None"]
"""Why a case with these inputs and attributes is none for the call; None if it is one."""


def no_gap(specs: Specs, attributes: Attributes) -> str | None:  # noqa: ARG001 - part of the type
    return None


@dataclass(frozen=True, slots=True)
class JaxCall:
    """``function`` returns an array, or a sequence of them for an operator with several outputs.

    It is traced by ``jax.jit``, so that it depends on shapes, dtypes and attributes, never on values.
    """

    function: Callable[[Tensors, Attributes], Any]
    gap: Gap = no_gap


def lacks(name: str, **usual: Any) -> Gap:
    """The JAX function ``name`` has none of these attributes, which have to have the values given here."""

    def gap(_: Specs, attributes: Attributes) -> str | None:
        for attribute, value in usual.items():
            if attributes.get(attribute, value) != value:
                return f"{name} has no {attribute}, which is {attributes[attribute]!r} here"
        return None

    return gap


def takes_no(name: str, *kinds: Kind) -> Gap:
    """The JAX function ``name`` takes no first input of these kinds."""

    def gap(specs: Specs, _: Attributes) -> str | None:
        return (
            f"{name} takes no {specs[0].dtype.name}" if specs[0] is not None and specs[0].dtype.kind in kinds else None
        )

    return gap


def of_rank(name: str, index: int, what: str, rank: int) -> Gap:
    """The JAX function ``name`` stands for the operator only where ``what``, at this place, has ``rank`` dimensions."""

    def gap(specs: Specs, _: Attributes) -> str | None:
        spec = specs[index] if index < len(specs) else None
        if spec is None or spec.rank == rank:
            return None
        return f"{name} is called with {rank} dimensions of {what} alone, which has {spec.rank} here"

    return gap


def first_gap(*gaps: Gap) -> Gap:
    """The first reason that any of ``gaps`` gives."""

    def gap(specs: Specs, attributes: Attributes) -> str | None:
        return next((why for each in gaps if (why := each(specs, attributes)) is not None), None)

    return gap

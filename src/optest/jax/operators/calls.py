"""JAX calls of operators, and the conditions under which a call does not support a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optest.spec import Kind, TensorSpec

Tensors = Sequence[Any]
"""JAX arrays in the order of the operator's signature; None for an omitted input."""
Specs = Sequence[TensorSpec | None]
Attributes = Mapping[str, Any]
Gap = Callable[[Specs, Attributes], "str | None"]
"""Function that returns why a case is unsupported, None if it is supported."""


def no_gap(specs: Specs, attributes: Attributes) -> str | None:  # noqa: ARG001 - part of the type
    return None


@dataclass(frozen=True, slots=True)
class JaxCall:
    """A JAX function that computes an operator: it returns an array, or a sequence of arrays for several outputs."""

    # jax.jit traces the function, so it may depend on shapes, dtypes and attributes, but not on values.

    function: Callable[[Tensors, Attributes], Any]
    gap: Gap = no_gap


def unsupported_if(why: str, condition: Callable[[Specs, Attributes], bool]) -> Gap:
    """Reject cases that meet ``condition``, with the reason ``why``."""
    return lambda specs, attributes: why if condition(specs, attributes) else None


def lacks(name: str, **usual: Any) -> Gap:
    """Reject cases whose attributes differ from the values in ``usual``: the JAX function ``name`` lacks them."""

    def gap(_: Specs, attributes: Attributes) -> str | None:
        for attribute, value in usual.items():
            if attributes.get(attribute, value) != value:
                return f"{name} has no {attribute}, which the case sets to {attributes[attribute]!r}"
        return None

    return gap


def takes_no(name: str, *kinds: Kind) -> Gap:
    """Reject cases whose first input has a dtype of these kinds."""

    def gap(specs: Specs, _: Attributes) -> str | None:
        return (
            f"{name} takes no {specs[0].dtype.name}" if specs[0] is not None and specs[0].dtype.kind in kinds else None
        )

    return gap


def of_rank(name: str, index: int, label: str, rank: int) -> Gap:
    """Reject cases in which input ``index``, called ``label`` in the reason, has not ``rank`` dimensions."""

    def gap(specs: Specs, _: Attributes) -> str | None:
        spec = specs[index] if index < len(specs) else None
        if spec is None or spec.rank == rank:
            return None
        return f"{name} needs {rank} dimensions of {label}, which has {spec.rank}"

    return gap


def first_gap(*gaps: Gap) -> Gap:
    """Combine ``gaps`` into one that returns the first reason."""

    def gap(specs: Specs, attributes: Attributes) -> str | None:
        return next((why for check in gaps if (why := check(specs, attributes)) is not None), None)

    return gap


CALLS: dict[str, JaxCall] = {}
"""JAX calls by canonical operator name."""


def computes(operator: str, *gaps: Gap) -> Callable[[Callable[[Tensors, Attributes], Any]], Any]:
    """Register the decorated function in :data:`CALLS` as the JAX call of an operator."""

    def add(function: Callable[[Tensors, Attributes], Any]) -> Any:
        CALLS[operator] = JaxCall(function, first_gap(*gaps))
        return function

    return add

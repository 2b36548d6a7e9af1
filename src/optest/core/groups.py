"""Executions that may be asked for at once: small ones, in which only optest's own code runs beside a library's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from optest.core.messages import encode
from optest.spec import TestCase

__all__ = ["Groups", "brings_code", "is_small", "split"]

Groups: TypeAlias = Sequence[Sequence[TestCase]]
"""The cases of several executions."""

_SMALL_BYTES = 1 << 15
"""Of all tensors of a case that shares its parts with others."""

_OWN = frozenset({"name", "seed", "inputs", "outputs"})
"""What differs from case to case, so that nobody asks whether it is the same."""


def is_small(case: TestCase) -> bool:
    """Whether all tensors of a case together are so small that a few more of them may be alive."""
    if not case.outputs:
        return False
    specs = [*[argument.spec for argument in case.inputs], *case.outputs]
    return sum([spec.storage_elements * spec.dtype.itemsize_bytes for spec in specs]) <= _SMALL_BYTES


def brings_code(case: TestCase) -> bool:
    """Whether a generator or reference of the user's runs beside the driver."""
    return bool(case.generator or case.reference) or not str(case.descriptor.reference).startswith("optest.")


def split(wires: Sequence[Sequence[dict[str, Any]]]) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    """What all wire forms share, and what each has beside it; equal is what has the same bytes: 1 is not 1.0."""
    every = [wire for group in wires for wire in group]
    common = {}
    for name, value in every[0].items():
        if name in _OWN:
            continue
        told = encode(value)
        if all(name in wire and (wire[name] is value or encode(wire[name]) == told) for wire in every):
            common[name] = value
    return common, [[{name: wire[name] for name in wire if name not in common} for wire in group] for group in wires]

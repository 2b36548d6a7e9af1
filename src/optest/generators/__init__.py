"""Generators of inputs: the protocol and the built-in fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from optest.generators.fills import FILLS, check_fill
from optest.registry import load_object
from optest.spec import TestCase

if TYPE_CHECKING:
    import numpy as np

    from optest.generators.random_tensors import RandomTensorGenerator
    from optest.generators.resolve import numpy_generator, resolve_generator

__all__ = ["FILLS", "Generator", "RandomTensorGenerator", "check_fill", "numpy_generator", "resolve_generator"]

# Imported at their first use: reading a plan does not import NumPy.
_WITH_NUMPY = {
    "RandomTensorGenerator": "optest.generators.random_tensors:RandomTensorGenerator",
    "numpy_generator": "optest.generators.resolve:numpy_generator",
    "resolve_generator": "optest.generators.resolve:resolve_generator",
}


class Generator(Protocol):
    """Generator of the inputs of a case, and optionally of expected outputs in place of the reference's."""

    def generate(self, case: TestCase, rng: np.random.Generator) -> tuple[Sequence[Any], Sequence[Any] | None]:
        """Return ``(inputs, expected outputs or None)``; ``rng`` is seeded from the case key."""
        ...


def __getattr__(name: str) -> Any:
    if name not in _WITH_NUMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_object(_WITH_NUMPY[name])

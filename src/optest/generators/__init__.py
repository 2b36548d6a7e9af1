"""Who makes the inputs: the generator protocol and the fills that a plan can name."""

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

_WITH_NUMPY = {
    "RandomTensorGenerator": "optest.generators.random_tensors:RandomTensorGenerator",
    "numpy_generator": "optest.generators.resolve:numpy_generator",
    "resolve_generator": "optest.generators.resolve:resolve_generator",
}


class Generator(Protocol):
    """Makes the inputs of a case, and the expected outputs if it knows them better than the reference."""

    def generate(self, case: TestCase, rng: np.random.Generator) -> tuple[Sequence[Any], Sequence[Any] | None]:
        """Return ``(inputs, expected or None)``; ``rng`` is made from the case key, so the draw is reproducible."""
        ...


def __getattr__(name: str) -> Any:
    if name not in _WITH_NUMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_object(_WITH_NUMPY[name])

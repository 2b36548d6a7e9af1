"""Who makes the inputs: the generator protocol and the fills that a plan can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from optest.registry import load_object
from optest.spec import TestCase

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FILLS", "Generator", "RandomTensorGenerator", "resolve_generator"]

FILLS = (
    "randn",
    "uniform",
    "randint",
    "integer-exact",
    "ones",
    "zeros",
    "full",
    "arange",
    "special",
    "data",
    "file",
)
"""Names that ``generator:`` and ``--generator`` take beside a dotted path."""


class Generator(Protocol):
    """Makes the inputs of a case, and the expected outputs if it knows them better than the reference."""

    def generate(self, case: TestCase, rng: np.random.Generator) -> tuple[Sequence[Any], Sequence[Any] | None]:
        """Return ``(inputs, expected or None)``; ``rng`` is made from the case key, so the draw is reproducible."""
        ...


def resolve_generator(path: str | None) -> Generator:
    """Return the generator at a dotted path: an instance, a class (instantiated), or a function ``(case, rng)``.

    None is the built-in :class:`RandomTensorGenerator`.
    """
    from optest.generators.resolve import resolve

    return resolve(path, load_object)


def __getattr__(name: str) -> Any:
    if name == "RandomTensorGenerator":
        from optest.generators.random_tensors import RandomTensorGenerator

        return RandomTensorGenerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if TYPE_CHECKING:
    from optest.generators.random_tensors import RandomTensorGenerator

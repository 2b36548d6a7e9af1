"""Who makes the inputs: the generator protocol and the fills that a plan can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from optest.generators.fills import FILLS, check_fill
from optest.spec import TestCase

if TYPE_CHECKING:
    import numpy as np

    from optest.generators.random_tensors import RandomTensorGenerator
    from optest.generators.resolve import numpy_generator

__all__ = ["FILLS", "Generator", "RandomTensorGenerator", "check_fill", "numpy_generator", "resolve_generator"]


class Generator(Protocol):
    """Makes the inputs of a case, and the expected outputs if it knows them better than the reference."""

    def generate(self, case: TestCase, rng: np.random.Generator) -> tuple[Sequence[Any], Sequence[Any] | None]:
        """Return ``(inputs, expected or None)``; ``rng`` is made from the case key, so the draw is reproducible."""
        ...


def resolve_generator(path: str | None) -> Generator:
    """Return the generator at a dotted path: an instance, a class (instantiated), or a function ``(case, rng)``.

    None is the built-in :class:`RandomTensorGenerator`.

    Raises:
        UsageError: if there is nothing at the path, or something that is none of them.
        Unavailable: if its module needs a package that is not installed.
    """
    from optest.generators.resolve import resolve

    generator: Generator = resolve(path)
    return generator


def __getattr__(name: str) -> Any:
    if name == "RandomTensorGenerator":
        from optest.generators.random_tensors import RandomTensorGenerator

        return RandomTensorGenerator
    if name == "numpy_generator":
        from optest.generators.resolve import numpy_generator

        return numpy_generator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

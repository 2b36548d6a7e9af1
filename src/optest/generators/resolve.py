"""From what a plan calls a generator to something with ``generate``, and the randomness that a user's one gets."""

from __future__ import annotations

import hashlib
import random
import sys
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.generators.random_tensors import RandomTensorGenerator
from optest.registry import load_object
from optest.spec import TestCase


@lru_cache(maxsize=256)
def resolve_generator(path: str | None) -> Any:
    """The generator at a dotted path: an instance, a class, which is called without arguments, or a function
    ``(case, rng)``. None is the built-in :class:`RandomTensorGenerator`.

    Raises:
        UsageError: if there is nothing at the path, or something that is none of them.
        Unavailable: if its module needs a package that is not installed.
    """
    if path is None:
        return RandomTensorGenerator()
    generator = load_object(path)
    if isinstance(generator, type):
        generator = generator()
    if callable(getattr(generator, "generate", None)):
        return generator
    if callable(generator):
        return SimpleNamespace(generate=generator)
    raise UsageError(
        f"generator {path!r} is a {type(generator).__name__}, but should be a function (case, rng), "
        f"or a class or object with generate(case, rng)"
    )


def numpy_generator(case: TestCase) -> np.random.Generator:
    """A NumPy Generator that depends on the case key alone; its distributions may change with NumPy's version."""
    digest = hashlib.blake2b(case.key.encode(), digest_size=32, person=b"optest numpy").digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def seed_global_state(case: TestCase) -> None:
    """Seed what code without a generator of its own draws from: Python's, NumPy's and, if it is there, torch's."""
    seed = int.from_bytes(hashlib.blake2b(case.key.encode(), digest_size=4).digest(), "little")
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)

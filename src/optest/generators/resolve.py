"""Lookup of generators by import path, and the random state for user-defined generators."""

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
    """Return the generator at an import path, as an object with ``generate(case, rng)``.

    The path names such an object, a class without constructor arguments, or a function ``(case, rng)``. For None
    return the built-in :class:`RandomTensorGenerator`.

    Raises:
        UsageError: if the path does not exist, or names another kind of object.
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
        f"generator {path!r} is a {type(generator).__name__}, expected a function (case, rng), "
        f"or a class or object with generate(case, rng)"
    )


def numpy_generator(case: TestCase) -> np.random.Generator:
    """Return a NumPy Generator seeded from the case key; its distributions may change with NumPy's version."""
    digest = hashlib.blake2b(case.key.encode(), digest_size=32, person=b"optest numpy").digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def seed_global_state(case: TestCase) -> None:
    """Seed the global generators of Python, NumPy and, if it is imported, torch from the case key."""
    seed = int.from_bytes(hashlib.blake2b(case.key.encode(), digest_size=4).digest(), "little")
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)

"""A backend that works through its input in blocks, as a kernel with a small local memory does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.spec import TestCase

__all__ = ["BlockedBackend"]

BLOCK = 16


class BlockedBackend(BackendDriver):
    """hardshrink alone, 16 elements at a time; what is left at the end is a shorter block."""

    name = "blocked"
    kind = "cpu"

    def unsupported(self, case: TestCase) -> str | None:
        name = case.descriptor.name
        return None if name == "hardshrink" else f"{name} has no kernel"

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        source = np.ascontiguousarray(inputs[0]).reshape(-1)
        lambd = case.attributes["lambd"]
        result = np.empty_like(source)
        for start in range(0, source.size, BLOCK):
            block = source[start : start + BLOCK]
            result[start : start + BLOCK] = np.where(np.abs(block) <= lambd, 0, block)
        return [result.reshape(inputs[0].shape)]

"""The generator of exhaustive cases: every value that a dtype of 16 bits or fewer has."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.numerics import numpy_dtype
from optest.spec import DType, Fault, Reason, TestCase

__all__ = ["EveryValue"]


class EveryValue:
    """Counts through the bit patterns of each input's dtype, in order, and starts again after the last."""

    def generate(self, case: TestCase, rng: object) -> tuple[tuple[np.ndarray[Any, Any], ...], None]:  # noqa: ARG002
        """Return ``(inputs, None)``.

        Raises:
            Fault: BAD_CASE for a dtype of 4, or of more than 16 bits.
        """
        return tuple(_counted(each.spec.dtype, each.spec.shape) for each in case.inputs), None


def _counted(entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if entry.bits not in (8, 16):
        raise Fault(Reason.BAD_CASE, f"an input is {entry}, but should have 8 or 16 bits to be asked every value")
    codes = np.arange(1 << entry.bits, dtype=np.uint8 if entry.bits == 8 else np.uint16)
    return np.resize(codes, shape).view(numpy_dtype(entry))

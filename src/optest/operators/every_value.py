"""Generators of bit patterns: every value that a dtype of 16 bits or fewer has, and NaNs that are seldom made."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.numerics import numpy_dtype
from optest.spec import DType, Fault, Reason, TestCase


class _OfEachInput:
    def generate(self, case: TestCase, rng: object) -> tuple[tuple[np.ndarray[Any, Any], ...], None]:  # noqa: ARG002
        """Return ``(inputs, None)``.

        Raises:
            Fault: BAD_CASE for a dtype that has no such values.
        """
        return tuple(self._values(each.spec.dtype, each.spec.shape) for each in case.inputs), None

    def _values(self, entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        raise NotImplementedError


class EveryValue(_OfEachInput):
    """Counts through the bit patterns of each input's dtype, of 8 or 16 bits, in order, and starts again at the end."""

    def _values(self, entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if entry.bits not in (8, 16):
            raise Fault(Reason.BAD_CASE, f"an input is {entry}, but should have 8 or 16 bits to be asked every value")
        codes = np.arange(1 << entry.bits, dtype=np.uint8 if entry.bits == 8 else np.uint16)
        return np.resize(codes, shape).view(numpy_dtype(entry))


class OddNans(_OfEachInput):
    """NaNs of both signs in float32 and float64 whose payload is all ones, or one bit at either end, and a number after
    each: rounding that adds to the bits of a NaN makes 0 or infinity of it."""

    def _values(self, entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if entry.name not in ("float32", "float64"):
            raise Fault(Reason.BAD_CASE, f"an input is {entry}, but should be float32 or float64 to have odd NaNs")
        fraction = entry.precision - 1
        infinity = ((1 << (entry.bits - 1 - fraction)) - 1) << fraction
        codes = [infinity | payload for payload in ((1 << fraction) - 1, 1 << (fraction - 1), 1 << (fraction - 1) | 1)]
        signed = [code | sign << (entry.bits - 1) for code in codes for sign in (0, 1)]
        nans = np.array(signed, np.uint32 if entry.bits == 32 else np.uint64).view(numpy_dtype(entry))
        values = np.stack([nans, np.arange(len(nans)).astype(nans.dtype)], axis=1)
        return np.resize(values.ravel(), shape)

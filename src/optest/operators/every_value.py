"""Generators of bit patterns: every value of an 8- or 16-bit dtype, and NaNs with rare payloads."""

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
        return tuple(self._values(tensor.spec.dtype, tensor.spec.shape) for tensor in case.inputs), None

    def _values(self, entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        raise NotImplementedError


class EveryValue(_OfEachInput):
    """Generator that counts through all bit patterns of an 8- or 16-bit dtype, from 0 again after the last."""

    def _values(self, entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if entry.bits not in (8, 16):
            raise Fault(Reason.BAD_CASE, f"an input is {entry}, expected a dtype of 8 or 16 bits to try every value")
        codes = np.arange(1 << entry.bits, dtype=np.uint8 if entry.bits == 8 else np.uint16)
        return np.resize(codes, shape).view(numpy_dtype(entry))


class OddNans(_OfEachInput):
    """Generator of float32 and float64 NaNs of both signs, each followed by a number.

    The payloads are all ones, only the highest bit, and the highest and the lowest bit.
    """

    # Rounding that adds to the bits of such a NaN overflows into the exponent or the sign: 0 or infinity.
    def _values(self, entry: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if entry.name not in ("float32", "float64"):
            raise Fault(Reason.BAD_CASE, f"an input is {entry}, expected float32 or float64 for NaNs with payloads")
        fraction = entry.precision - 1
        infinity = ((1 << (entry.bits - 1 - fraction)) - 1) << fraction
        codes = [infinity | payload for payload in ((1 << fraction) - 1, 1 << (fraction - 1), 1 << (fraction - 1) | 1)]
        signed = [code | sign << (entry.bits - 1) for code in codes for sign in (0, 1)]
        nans = np.array(signed, np.uint32 if entry.bits == 32 else np.uint64).view(numpy_dtype(entry))
        values = np.stack([nans, np.arange(len(nans)).astype(nans.dtype)], axis=1)
        return np.resize(values.ravel(), shape)

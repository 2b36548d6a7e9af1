"""Integers of a few bits, stored with a bias: the ``scalar_types`` of scripts for quantised operators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScalarType:
    """A type with ``mantissa`` bits besides the sign; the value is the stored number minus ``bias``."""

    exponent: int
    mantissa: int
    signed: bool
    bias: int = 0

    @property
    def size_bits(self) -> int:
        return self.exponent + self.mantissa + self.signed

    @property
    def id(self) -> int:
        """Identifier for C: 8 bits each of exponent and mantissa, the sign, 32 bits of bias, and IEEE's NaN (1)."""
        ieee_nan = 1 << 50
        return self.exponent | self.mantissa << 8 | self.signed << 16 | (self.bias & 0xFFFFFFFF) << 17 | ieee_nan

    def min(self) -> int:
        return -(1 << self.mantissa) * self.signed - self.bias

    def max(self) -> int:
        return (1 << self.mantissa) - 1 - self.bias

    def has_bias(self) -> bool:
        return self.bias != 0

    def is_signed(self) -> bool:
        return self.signed

    def is_integer(self) -> bool:
        return self.exponent == 0


class scalar_types:  # noqa: N801 - the name that scripts import
    int4, uint4, uint4b8 = ScalarType(0, 3, True), ScalarType(0, 4, False), ScalarType(0, 4, False, 8)
    int8, uint8, uint8b128 = ScalarType(0, 7, True), ScalarType(0, 8, False), ScalarType(0, 8, False, 128)

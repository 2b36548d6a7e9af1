"""The values at which kernels break: not finite, zero, subnormal, smallest, largest, powers of two."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from optest.generators.domains import integer_pieces
from optest.numerics import Array, round_to
from optest.spec import DType, Interval, Kind

__all__ = ["special_values"]


@lru_cache(maxsize=256)
def special_values(dtype: DType, interval: Interval | None, largest: int = 0) -> Array:
    """What ``dtype`` has of them, in that type. Integers keep to ``interval``, floats are asked about all.

    ``largest``, unless it is 0, takes the place of larger finite magnitudes.
    """
    if dtype.kind is Kind.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        return _integers(dtype, interval)
    values = np.array(_floats(dtype))
    if largest:
        values = np.where(np.isfinite(values), np.clip(values, -float(largest), float(largest)), values)
    return round_to(values, dtype)


def _floats(dtype: DType) -> list[float]:
    smallest_normal = 2.0**dtype.emin
    smallest = smallest_normal * 2.0 ** (1 - dtype.precision)
    powers = [2.0**power for power in (dtype.emin // 2, -1, 0, 1, dtype.precision - 1, dtype.precision, dtype.emax)]
    finite = [0.0, smallest, smallest_normal - smallest, smallest_normal, dtype.max_finite, *powers]
    infinite = [np.inf] if dtype.has_infinity else []
    return [np.nan, *(sign * value for value in (*infinite, *finite) for sign in (1.0, -1.0))]


def _integers(dtype: DType, interval: Interval | None) -> Array:
    pieces = integer_pieces(interval, dtype)
    ends = {end for piece in pieces for end in piece}
    powers = {sign * 2**power for power in range(dtype.bits) for sign in (1, -1)}
    wanted = sorted(ends | powers | {0, dtype.min_int, dtype.max_int})
    legal = [value for value in wanted if any(low <= value <= high for low, high in pieces)]
    return round_to(np.array(legal, dtype=object), dtype)

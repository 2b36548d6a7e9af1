"""Numbers that become integers of a dtype that does not hold them: torch leaves open which, and its kernels differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.numerics import Array, dtype_of, widen
from optest.spec import AsRight
from optest.spec.calls import parse_call

__all__ = ["left_open"]


def left_open(inputs: Sequence[Any], text: str, results: Sequence[Any]) -> list[AsRight | None]:
    """True where the first tensor of the call has no number that its result could hold; None for other results."""
    tensors = parse_call(text).tensors()
    if not tensors:
        return [None] * len(results)
    given = np.asarray(inputs[tensors[0]])
    return [_beyond(given, np.asarray(each)) for each in results]


def _beyond(given: Array, result: Array) -> AsRight | None:
    if not dtype_of(given.dtype).is_float or result.dtype.kind not in "iu" or given.shape != result.shape:
        return None
    whole, limits = np.trunc(widen(given)), np.iinfo(result.dtype)
    mask = ~((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0))
    doubt = f"no number lies within {result.dtype}, and torch leaves open what becomes of others" if mask.all() else ""
    return AsRight(mask, doubt)

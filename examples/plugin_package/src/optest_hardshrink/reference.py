"""What hardshrink computes, in float64 and not rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optest.numerics import widen

__all__ = ["hardshrink_reference"]


def hardshrink_reference(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any]:
    """NaN is not within the threshold, so it stays."""
    values = widen(np.asarray(inputs[0]))
    return (np.where(np.abs(values) <= attributes["lambd"], 0.0, values),)

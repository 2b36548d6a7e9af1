"""The calls by which an operator is checked when nobody has written a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["TIERS", "Sample", "Tier"]


class Tier(str, Enum):
    """How much a check asks: each tier includes those before it."""

    SMOKE = "smoke"
    """A call or two of each operator: is anything there at all?"""
    PARITY = "parity"
    """What every backend has to get right, in minutes on a CPU."""
    FULL = "full"
    """Long reductions, large tensors, every combination."""


TIERS = tuple(Tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call of an operator.

    ``case`` is a case as a plan states it, without ``op``: ``shapes``, ``dtypes``, ``attributes``, ``generator``,
    ``expects_error`` and so on. ``case_set`` says what the call is there to find out, ``tier`` when it is asked.
    """

    case_set: str
    case: Mapping[str, Any]
    tier: Tier = Tier.PARITY

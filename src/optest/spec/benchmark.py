"""What a call costs: time, and what it moved and computed as far as that is declared. Never an opinion."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """Seconds of one call, from ``calls`` calls in ``batches`` batches after ``warm_up_calls`` that do not count.

    ``spread_s`` is the interquartile range over the batches, None where there was one batch: nothing is known of it
    then. ``gb_per_s`` and ``gflop_per_s`` follow from the median and from the bytes and operations that are declared.

    Raises:
        ValueError: for a time without a call, or one that is not finite and positive.
    """

    who: str
    median_s: float
    least_s: float
    spread_s: float | None
    calls: int
    batches: int
    warm_up_calls: int = 0
    gb_per_s: float | None = None
    gflop_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.calls < 1 or self.batches < 1:
            raise ValueError(f"time of {self.who} is that of {self.calls} calls, but should be that of 1 or more")
        for name in ("median_s", "least_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} of {self.who} is {getattr(self, name)}, but should be a positive number")
        if self.spread_s is not None and self.batches < 2:
            raise ValueError(f"spread of {self.who} is {self.spread_s}, but should be None for a single batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """The time of a case's call, and that of another implementation in the same run.

    ``ratio`` is how many times as long as ``against`` the call took, the median over pairs of neighbouring batches;
    ``ratio_spread`` their interquartile range. ``declared_bytes`` are those of the tensors, each read or written
    once; ``declared_operations`` what the operator's descriptor says. ``baseline_difference`` is the largest
    ``|this answer - the baseline variant's|``, infinity where one of them alone is not finite. ``lacks`` says in words
    what was not possible.
    """

    time: CallTime | None = None
    against: CallTime | None = None
    ratio: float | None = None
    ratio_spread: float | None = None
    declared_bytes: int | None = None
    declared_operations: int | None = None
    baseline_difference: float | None = None
    lacks: tuple[str, ...] = ()

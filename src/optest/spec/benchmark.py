"""Cost of a call: its time, and the declared bytes and operations."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """Seconds per call, measured over ``calls`` calls in ``batches`` batches, after ``warm_up_calls`` untimed calls.

    ``spread_s`` is the interquartile range over the batches, None for a single batch. ``gb_per_s`` and ``gflop_per_s``
    are computed from the median and the declared bytes and operations.

    Raises:
        ValueError: without a call or batch, for a time that is not finite and positive, or a spread of one batch.
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
            raise ValueError(f"the time of {self.who} has {self.calls} calls, expected 1 or more")
        for name in ("median_s", "least_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} of {self.who} is {getattr(self, name)}, expected a positive number")
        if self.spread_s is not None and self.batches < 2:
            raise ValueError(f"spread of {self.who} is {self.spread_s}, expected None for a single batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Time of a case's call, and of another implementation timed in the same run (``against``).

    ``ratio`` is the time of the call divided by that of ``against``, the median over pairs of neighbouring batches;
    ``ratio_spread`` is their interquartile range. ``declared_bytes`` count every tensor as read or written once;
    ``declared_operations`` come from the operator's descriptor. ``baseline_difference`` is the largest absolute
    difference to the output of the baseline variant, infinity if only one of the two is not finite. ``lacks`` lists in
    words the measurements that were not possible.
    """

    time: CallTime | None = None
    against: CallTime | None = None
    ratio: float | None = None
    ratio_spread: float | None = None
    declared_bytes: int | None = None
    declared_operations: int | None = None
    baseline_difference: float | None = None
    lacks: tuple[str, ...] = ()

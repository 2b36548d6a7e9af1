"""How long a worker may take for each phase of a case."""

from __future__ import annotations

from dataclasses import dataclass

from optest.core.phases import Phase
from optest.spec import TestCase

__all__ = ["Patience"]

_OWN_PHASES_S = 300.0
"""How long making inputs, asking the reference or comparing may take, beyond which optest ends them."""

_LEAST_OWN_S, _OWN_SHARE = 60.0, 10.0
"""That limit where a case states a short deadline: so often the deadline, since float64 on a CPU is slower than most
devices, and never less than a busy machine needs for a large case."""

_MOST_SLOW_CALLS = 12
"""Of two implementations, in a benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much longer than a case's deadline a worker may take: a driver that keeps deadlines itself ends first.

    ``times`` counts the workers that may wait for each other, ``extra_s`` is for ending and cleaning up, ``bench_s``
    what timings may take beside the calls that a slow case needs: two to warm up, three in turns, one to be judged.
    """

    times: int = 1
    extra_s: float = 0.0
    bench_s: float = 0.0

    def allowance_s(self, phase: Phase, case: TestCase) -> float:
        """Seconds that a phase may take; the case's own deadline is that of the backend, of which others have more."""
        if phase is Phase.RUN:
            return (case.timeout_s or _OWN_PHASES_S) * self.times + self.extra_s
        if phase is Phase.BENCHMARK:
            return (case.timeout_s or _OWN_PHASES_S) * _MOST_SLOW_CALLS + self.bench_s
        stated_s = case.timeout_s or _OWN_PHASES_S
        return max(stated_s, min(_OWN_PHASES_S, max(_LEAST_OWN_S, _OWN_SHARE * stated_s)))

"""How long a worker may take for each phase of a case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from optest.core.phases import Phase
from optest.spec import Reason, Status, TestCase, Verdict

_OWN_PHASES_S = 300.0
"""How long making inputs, asking the reference or comparing may take, beyond which optest ends them."""

_LEAST_OWN_S, _OWN_SHARE = 60.0, 10.0
"""That limit where a case states a short deadline: so often the deadline, since float64 on a CPU is slower than most
devices, and never less than a busy machine needs for a large case."""

_MOST_SLOW_CALLS = 12
"""Of two implementations, in a benchmark."""


_TIMES_LONGEST = 10.0
_ENOUGH_PASSED = 10
_LEAST_S = 60.0
_HANGS = 2
_LEAST_AFTER_HANGS_S = 10.0
"""Where enough cases of an operator passed, ten times the longest of them leaves room for a larger case or a busy
machine, and a minute for what a framework does once. An operator of which two cases exceeded their deadline is likely
to hang for others; ten seconds are left for the first call in a new worker."""


@dataclass(slots=True, kw_only=True)
class Deadlines:
    """What the cases of a run took so far, by operator, which makes the deadline of the next ones shorter.

    Only ``usual_s``, the deadline that nobody stated, does; None where every deadline was stated. Before any case hangs
    it does so only for cases of like size (``alike``): those of a model differ by a factor of a million.
    """

    usual_s: float | None = None
    alike: bool = False
    _hangs: Counter[str] = field(default_factory=Counter)
    _passed: Counter[str] = field(default_factory=Counter)
    _longest_s: dict[str, float] = field(default_factory=dict)

    def record(self, case: TestCase, verdict: Verdict, run_s: float | None) -> None:
        name = case.descriptor.name
        if verdict.reason is Reason.DEADLINE:
            self._hangs[name] += 1
        elif verdict.status is Status.PASSED and run_s is not None:
            self._passed[name] += 1
            self._longest_s[name] = max(run_s, self._longest_s.get(name, 0.0))

    def of(self, case: TestCase) -> float | None:
        """Seconds that the backend has for the case; None where it states none."""
        if case.timeout_s != self.usual_s or case.timeout_s is None:
            return case.timeout_s
        name = case.descriptor.name
        hangs = self._hangs[name] >= _HANGS
        if not hangs and (not self.alike or self._passed[name] < _ENOUGH_PASSED):
            return case.timeout_s
        least_s = _LEAST_AFTER_HANGS_S if hangs else _LEAST_S
        return min(case.timeout_s, max(least_s, _TIMES_LONGEST * self._longest_s.get(name, 0.0)))

    def applied(self, case: TestCase) -> TestCase:
        """The case with that deadline, for a driver that keeps it itself."""
        seconds = self.of(case)
        return case if seconds == case.timeout_s else replace(case, timeout_s=seconds)

    def why(self, case: TestCase) -> str:
        """Words for a deadline that is shorter than the case's own; empty if it is not."""
        if (shorter_s := self.of(case)) == case.timeout_s:
            return ""
        name = case.descriptor.name
        return (
            f"; the deadline was {shorter_s:.3g} s instead of {case.timeout_s:g} s, ten times the longest passed case "
            f"of {name} and {_LEAST_S:g} s at least ({_LEAST_AFTER_HANGS_S:g} s after {_HANGS} that exceeded theirs); "
            "state --timeout to keep it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """How much longer than a case's deadline a worker may take: a driver that keeps deadlines itself ends first.

    ``times`` counts the workers that may wait for each other, ``extra_s`` is for ending and cleaning up, ``bench_s``
    what timings may take beside the calls that a slow case needs: two to warm up, three in turns, one to be judged.
    """

    times: int = 1
    extra_s: float = 0.0
    bench_s: float = 0.0
    deadlines: Deadlines = field(default_factory=Deadlines)

    def allowance_s(self, phase: Phase, case: TestCase) -> float:
        """Seconds that a phase may take; the case's own deadline is that of the backend, of which others have more."""
        if phase is Phase.RUN:
            return (self.deadlines.of(case) or _OWN_PHASES_S) * self.times + self.extra_s
        if phase is Phase.BENCHMARK:
            return (case.timeout_s or _OWN_PHASES_S) * _MOST_SLOW_CALLS + self.bench_s
        stated_s = case.timeout_s or _OWN_PHASES_S
        return max(stated_s, min(_OWN_PHASES_S, max(_LEAST_OWN_S, _OWN_SHARE * stated_s)))

"""Time limits of a worker for each phase of a case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from optest.core.phases import Phase
from optest.spec import Reason, Status, TestCase, Verdict

# Limit of generating inputs, running the reference and comparing, if the case has no deadline.
_OWN_PHASES_S = 300.0

# That limit for a case with a short deadline: a multiple of it, because float64 on a CPU is slower than most devices,
# and at least what a large case needs on a busy machine.
_LEAST_OWN_S, _OWN_SHARE = 60.0, 10.0

# Calls of two implementations in a benchmark of a slow case: for each two to warm up, three timed, one compared.
_MOST_SLOW_CALLS = 12

# Ten times the longest passed case leaves room for a larger case or a busy machine, and a minute for what a framework
# initialises once. An operator of which two cases timed out is likely to hang for others; ten seconds are left for the
# first call in a new worker.
_TIMES_LONGEST = 10.0
_ENOUGH_PASSED = 10
_LEAST_S = 60.0
_HANGS = 2
_LEAST_AFTER_HANGS_S = 10.0


@dataclass(slots=True, kw_only=True)
class Deadlines:
    """Durations of a run's finished cases by operator, which shorten the default deadline of later cases.

    ``usual_s`` is the default deadline; only cases that have it are affected, none if it is None. ``alike`` declares
    that cases of one operator have similar sizes (those of a model differ by a factor of a million): only then does
    the longest passed case shorten the deadline before any case has timed out.
    """

    usual_s: float | None = None
    alike: bool = False
    _hangs: Counter[str] = field(default_factory=Counter)
    _passed: Counter[str] = field(default_factory=Counter)
    _longest_s: dict[str, float] = field(default_factory=dict)

    def record(self, case: TestCase, verdict: Verdict, run_s: float | None) -> None:
        """Count a timeout of the case's operator, or a pass that took ``run_s`` seconds."""
        name = case.descriptor.name
        if verdict.reason is Reason.DEADLINE:
            self._hangs[name] += 1
        elif verdict.status is Status.PASSED and run_s is not None:
            self._passed[name] += 1
            self._longest_s[name] = max(run_s, self._longest_s.get(name, 0.0))

    def limit_s(self, case: TestCase) -> float | None:
        """Return the seconds that the backend has for the case; None if the case has no deadline."""
        if case.timeout_s != self.usual_s or case.timeout_s is None:
            return case.timeout_s
        name = case.descriptor.name
        hangs = self._hangs[name] >= _HANGS
        if not hangs and (not self.alike or self._passed[name] < _ENOUGH_PASSED):
            return case.timeout_s
        least_s = _LEAST_AFTER_HANGS_S if hangs else _LEAST_S
        return min(case.timeout_s, max(least_s, _TIMES_LONGEST * self._longest_s.get(name, 0.0)))

    def with_limit(self, case: TestCase) -> TestCase:
        """Return the case with :meth:`limit_s` as its deadline, for drivers that enforce deadlines themselves."""
        seconds = self.limit_s(case)
        return case if seconds == case.timeout_s else replace(case, timeout_s=seconds)

    def explanation(self, case: TestCase) -> str:
        """Return the part of a message that explains a shortened deadline; "" if the case has its own deadline."""
        if (limit_s := self.limit_s(case)) == case.timeout_s:
            return ""
        return (
            f"; the deadline was shortened from {case.timeout_s:g} s to {limit_s:.3g} s, ten times the longest passed "
            f"case of {case.descriptor.name}, but at least {_LEAST_S:g} s ({_LEAST_AFTER_HANGS_S:g} s after {_HANGS} "
            "timeouts); set --timeout to keep it fixed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """Seconds that a worker may take for each phase: more than the deadline, so that drivers that keep it end first.

    ``times`` is the number of workers that may wait for each other, ``extra_s`` the time for ending and cleaning up,
    ``bench_s`` the time for timings in addition to the calls that a slow case needs.
    """

    times: int = 1
    extra_s: float = 0.0
    bench_s: float = 0.0
    deadlines: Deadlines = field(default_factory=Deadlines)

    def allowance_s(self, phase: Phase, case: TestCase) -> float:
        """Return the seconds that a phase of the case may take.

        RUN has the deadline of the case, 300 s without one; BENCHMARK has several times as much. Every other phase has
        ten times the deadline within 60 to 300 s, and never less than the deadline.
        """
        if phase is Phase.RUN:
            return (self.deadlines.limit_s(case) or _OWN_PHASES_S) * self.times + self.extra_s
        deadline_s = case.timeout_s or _OWN_PHASES_S
        if phase is Phase.BENCHMARK:
            return deadline_s * _MOST_SLOW_CALLS + self.bench_s
        return max(deadline_s, min(_OWN_PHASES_S, max(_LEAST_OWN_S, _OWN_SHARE * deadline_s)))

"""One execution of many cases: its request, its machine, and the summary of its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from optest.spec.outcome import BAD_STATUSES, CaseResult, Reason, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Description of a run at its start. ``started_at`` is UTC in ISO 8601; ``versions`` maps package to version.

    ``fingerprint`` contains everything that must be unchanged if the run is resumed.
    """

    run_id: str
    started_at: str
    total: int
    target: str
    seed: int
    directory: str = ""
    plan: str = ""
    isolation: str = "auto"
    jobs: int = 1
    optest_version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Counts and exit status of a finished or interrupted run; ``notes`` report events of its devices."""

    total: int
    finished: int
    duration_s: float
    interrupted: bool = False
    by_status: Mapping[str, int] = field(default_factory=dict)
    by_reason: Mapping[str, int] = field(default_factory=dict)
    exit_status: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        results: Iterable[CaseResult],
        *,
        total: int,
        duration_s: float,
        interrupted: bool = False,
        notes: Iterable[str] = (),
    ) -> RunSummary:
        """Summarise results; a result that represents several cases counts as many times."""
        collected = list(results)
        by_status, by_reason = Counter[Status](), Counter[str]()
        for result in collected:
            by_status[result.status] += len(result.keys)
            if result.reason is not None:
                by_reason[result.reason.value] += len(result.keys)
        return cls(
            total=total,
            finished=by_status.total(),
            duration_s=duration_s,
            interrupted=interrupted,
            by_status={status.value: by_status[status] for status in Status if by_status[status]},
            by_reason=dict(sorted(by_reason.items())),
            exit_status=_exit_status(collected, interrupted=interrupted),
            notes=tuple(notes),
        )


def _exit_status(results: list[CaseResult], *, interrupted: bool) -> int:
    """Return 130 if interrupted, 3 for a defect of optest, 1 for a bad status, 5 if all cases were skipped, else 0."""
    if interrupted:
        return 130
    if any(result.reason is Reason.INTERNAL for result in results):
        return 3
    if any(result.status in BAD_STATUSES for result in results):
        return 1
    if all(result.status is Status.SKIPPED for result in results):
        return 5
    return 0

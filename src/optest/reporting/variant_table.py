"""What the variants of a backend cost beside each other, operator by operator, from the calls that were timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns
from optest.spec import BAD_STATUSES, CaseResult, Status

__all__ = ["BASELINE", "VariantLine", "variant_lines", "variant_text"]

BASELINE = "@"
"""Stands in an id between the case and the baseline that it is asked of; the default variant has the plain id."""


@dataclass(slots=True)
class VariantLine:
    """The sums of one operator: seconds of the reference, of the baseline and of the default variant over the cases
    that were timed in both, and how many cases of either variant are not well."""

    operator: str
    reference_s: float = 0.0
    baseline_s: float = 0.0
    default_s: float = 0.0
    timed: int = 0
    failed: int = 0

    @property
    def speedup(self) -> float | None:
        """How many times as long as the default the baseline takes, None where nothing was timed in both."""
        return self.baseline_s / self.default_s if self.timed else None


def variant_lines(results: Sequence[CaseResult], variants: Sequence[str]) -> list[VariantLine]:
    """One line for each operator of which a case ran; ``variants`` are the baseline and the default."""
    suffix = f"{BASELINE}{variants[0]}"
    baseline = {each.id.removesuffix(suffix): each for each in results if each.id.endswith(suffix)}
    lines: dict[str, VariantLine] = {}
    for each in results:
        if each.status is Status.SKIPPED:
            continue
        line = lines.setdefault(each.operator, VariantLine(each.operator))
        line.failed += each.status in BAD_STATUSES
        other = baseline.get(each.id)
        mine_s, theirs_s = _seconds(each), _seconds(other)
        if other is not None and mine_s and theirs_s:
            line.timed += 1
            line.default_s += mine_s
            line.baseline_s += theirs_s
            line.reference_s += each.timings.reference_s or other.timings.reference_s or 0.0
    return list(lines.values())


def _seconds(result: CaseResult | None) -> float | None:
    timed = None if result is None or result.benchmark is None else result.benchmark.time
    return None if timed is None else timed.median_s


def variant_text(lines: Iterable[VariantLine], variants: Sequence[str]) -> list[str]:
    """The table, with ``n/a`` where nothing was timed in both variants."""
    rows = [
        [
            line.operator,
            *(
                [seconds_text(each) for each in (line.reference_s, line.baseline_s, line.default_s)]
                if line.timed
                else ["n/a"] * 3
            ),
            "n/a" if line.speedup is None else f"{line.speedup:.2f}",
            f"{line.failed} failed" if line.failed else "ok",
        ]
        for line in lines
    ]
    head = ["test", "reference", f"baseline ({variants[0]})", f"optimized ({variants[1]})", "speedup", "status"]
    return columns([head, *rows], left=frozenset({0, len(head) - 1}))

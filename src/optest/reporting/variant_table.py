"""What a backend's calls cost, and its variants beside each other, operator by operator, from those that were timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optest.reporting.bench_table import bench_notes, seconds_text
from optest.reporting.typography import columns, number
from optest.spec import BAD_STATUSES, CaseResult, Status

BASELINE = "@"
"""Stands in an id between the case and the baseline that it is asked of; the default variant has the plain id."""
_MISSING = "n/a"


@dataclass(slots=True)
class VariantLine:
    """The sums of one operator: seconds of the reference, of the baseline and of the default variant over the cases
    that were timed, in both where there are two; how many cases of either are not well; and the largest difference of
    the two answers, None where none was compared."""

    operator: str
    reference_s: float = 0.0
    baseline_s: float = 0.0
    default_s: float = 0.0
    timed: int = 0
    failed: int = 0
    difference: float | None = None

    @property
    def speedup(self) -> float | None:
        """How many times as long as the default the baseline takes, None where nothing was timed in both."""
        return self.baseline_s / self.default_s if self.timed and self.baseline_s else None


def with_baselines(
    results: Sequence[CaseResult], variants: Sequence[str]
) -> list[tuple[CaseResult, CaseResult | None]]:
    """The results of the default variant, each with that of the baseline; ``variants`` are both, or none."""
    suffix = f"{BASELINE}{variants[0]}" if variants else ""
    baselines = {each.id.removesuffix(suffix): each for each in results if suffix and each.id.endswith(suffix)}
    return [(each, baselines.get(each.id)) for each in results if not (suffix and each.id.endswith(suffix))]


def variant_lines(results: Sequence[CaseResult], variants: Sequence[str]) -> list[VariantLine]:
    """One line for each operator of which a case ran; ``variants`` are the baseline and the default, or none."""
    lines: dict[str, VariantLine] = {}
    for each, baseline in with_baselines(results, variants):
        ran = [one for one in (each, baseline) if one is not None and one.status is not Status.SKIPPED]
        if not ran:
            continue
        line = lines.setdefault(each.operator, VariantLine(each.operator))
        line.failed += sum(one.status in BAD_STATUSES for one in ran)
        mine_s, theirs_s = median_s(each), median_s(baseline)
        if mine_s is None or (variants and theirs_s is None):
            continue
        line.timed += 1
        line.default_s += mine_s
        line.baseline_s += theirs_s or 0.0
        line.reference_s += max(one.timings.reference_s or 0.0 for one in ran)
        differences = [line.difference, each.benchmark.baseline_difference if each.benchmark else None]
        line.difference = max((one for one in differences if one is not None), default=None)
    return list(lines.values())


def median_s(result: CaseResult | None) -> float | None:
    """Seconds of a call, None where it was not timed."""
    timed = None if result is None or result.benchmark is None else result.benchmark.time
    return None if timed is None else timed.median_s


def variant_text(results: Sequence[CaseResult], variants: Sequence[str]) -> list[str]:
    """The table, with ``n/a`` where nothing was timed, in both variants where there are two; below it stands why."""
    rows = [
        [
            line.operator,
            *(
                seconds_text(each) if line.timed and each else _MISSING
                for each in (line.reference_s, line.baseline_s, line.default_s)
            ),
            _MISSING if line.speedup is None else f"{line.speedup:.2f}",
            _MISSING if line.difference is None else number(line.difference, 2),
            f"{line.failed} failed" if line.failed else "ok",
        ]
        for line in variant_lines(results, variants)
    ]
    names = [f" ({name})" for name in variants] or ["", ""]
    head = ["test", "reference", f"baseline{names[0]}", f"optimized{names[1]}", "speedup", "difference", "status"]
    return [*columns([head, *rows], left=frozenset({0, len(head) - 1})), *bench_notes(results)]

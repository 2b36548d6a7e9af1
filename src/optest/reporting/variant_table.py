"""Table of timed calls by operator: reference, baseline variant and default variant of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optest.reporting.bench_table import bench_notes, seconds_text
from optest.reporting.typography import columns, number
from optest.spec import BAD_STATUSES, CaseResult, Status

# Separates the case and the baseline variant in an id; the default variant has the id of the case.
BASELINE = "@"
_MISSING = "n/a"


@dataclass(slots=True)
class VariantLine:
    """Sums of one operator over the cases that were timed in all variants, and the number of failed cases.

    ``difference`` is the largest difference between the outputs of the two variants, None if none were compared.
    """

    operator: str
    reference_s: float = 0.0
    baseline_s: float = 0.0
    default_s: float = 0.0
    timed: int = 0
    failed: int = 0
    difference: float | None = None

    @property
    def speedup(self) -> float | None:
        """Time of the baseline / time of the default variant, None if no case was timed in both."""
        return self.baseline_s / self.default_s if self.timed and self.baseline_s else None


def with_baselines(
    results: Sequence[CaseResult], variants: Sequence[str]
) -> list[tuple[CaseResult, CaseResult | None]]:
    """Return each result of the default variant with that of the baseline, None without one.

    ``variants`` are the names of baseline and default variant; empty for a backend without variants.
    """
    if not variants:
        return [(result, None) for result in results]
    suffix = f"{BASELINE}{variants[0]}"
    baselines = {result.id.removesuffix(suffix): result for result in results if result.id.endswith(suffix)}
    return [(result, baselines.get(result.id)) for result in results if not result.id.endswith(suffix)]


def variant_lines(results: Sequence[CaseResult], variants: Sequence[str]) -> list[VariantLine]:
    """Return a line for each operator of which a case ran; ``variants`` as for :func:`with_baselines`."""
    lines: dict[str, VariantLine] = {}
    for default, baseline in with_baselines(results, variants):
        ran = [result for result in (default, baseline) if result is not None and result.status is not Status.SKIPPED]
        if not ran:
            continue
        line = lines.setdefault(default.operator, VariantLine(default.operator))
        line.failed += sum(result.status in BAD_STATUSES for result in ran)
        default_s, baseline_s = median_s(default), median_s(baseline)
        if default_s is None or (variants and baseline_s is None):
            continue
        line.timed += 1
        line.default_s += default_s
        line.baseline_s += baseline_s or 0.0
        line.reference_s += max(result.timings.reference_s or 0.0 for result in ran)
        differences = [line.difference, default.benchmark.baseline_difference if default.benchmark else None]
        line.difference = max((difference for difference in differences if difference is not None), default=None)
    return list(lines.values())


def median_s(result: CaseResult | None) -> float | None:
    """Return the median seconds of the timed call of a result, None if there is none."""
    time = None if result is None or result.benchmark is None else result.benchmark.time
    return None if time is None else time.median_s


def variant_text(results: Sequence[CaseResult], variants: Sequence[str]) -> list[str]:
    """Return the lines of the table, with ``n/a`` for missing figures, and the reasons why these are missing."""
    rows = [
        [
            line.operator,
            *(
                seconds_text(seconds) if line.timed and seconds else _MISSING
                for seconds in (line.reference_s, line.baseline_s, line.default_s)
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

"""Tables of timings: by case (time, spread, rates, comparison), and by operator for the variants of a backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from optest.reporting.typography import clip, columns, number
from optest.spec import BAD_STATUSES, Benchmark, CallTime, CaseResult, Status

BENCH_HEAD = ("case", "time", "±", "GB/s", "GFLOP/s", "against", "its time", "×")
# Columns of names, aligned to the left: the case, and what it is timed against.
_LEFT = frozenset({0, 5})
_LONGEST_NAME = 72
_SHOWN_NOTES = 10

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds_text(seconds: float) -> str:
    """Return a time with three digits and a unit: ``1.23 µs``, ``45.6 ms``, ``0.12 ns``."""
    # 0.9995 of a unit would be rounded to 1.00 of it.
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if seconds >= 0.9995 * scale), _UNITS[-1])
    value = seconds / scale
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f} {unit}"


def bench_rows(results: Iterable[CaseResult]) -> list[list[str]]:
    """Return the cells of each timed case under :data:`BENCH_HEAD`, without cases that share an execution."""
    return [[result.id, *_cells(benchmark, time)] for result, benchmark, time in _timed(results)]


def _timed(results: Iterable[CaseResult]) -> Iterator[tuple[CaseResult, Benchmark, CallTime]]:
    """Yield the timed results with their times, without those that share the execution of another case."""
    for result in results:
        benchmark = result.benchmark
        if benchmark is not None and benchmark.time is not None and result.duplicate_of is None:
            yield result, benchmark, benchmark.time


def _cells(benchmark: Benchmark, time: CallTime) -> list[str]:
    against = benchmark.against
    ratio = "" if benchmark.ratio is None else _without_exponent(benchmark.ratio, 3)
    if ratio and benchmark.ratio_spread is not None:
        ratio += f" ± {_without_exponent(benchmark.ratio_spread, 2)}"
    return [
        seconds_text(time.median_s),
        "unknown" if time.spread_s is None else seconds_text(time.spread_s),
        *("" if rate is None else _without_exponent(rate, 3) for rate in (time.gb_per_s, time.gflop_per_s)),
        against.who if against else "",
        seconds_text(against.median_s) if against else "",
        ratio,
    ]


def _without_exponent(value: float, digits: int) -> str:
    """Return a number with ``digits`` significant digits; a larger number keeps all its integer digits."""
    return f"{value:.{digits}g}" if value < 10**digits - 0.5 else f"{value:.0f}"


def bench_lines(results: Iterable[CaseResult]) -> list[str]:
    """Return the table as text, with a legend and the reasons of missing figures; [] if no case was to be timed."""
    listed = list(results)
    rows = bench_rows(listed)
    notes = bench_notes(listed)
    if not rows:
        return ["timings", *notes] if notes else []
    used = [column for column in range(len(BENCH_HEAD)) if any(row[column] for row in rows)]
    shown = [[clip(row[0], _LONGEST_NAME), *row[1:]] for row in rows]
    cells = [[row[column] for column in used] for row in ([*BENCH_HEAD], *shown)]
    left = frozenset(new for new, old in enumerate(used) if old in _LEFT)
    meaning = "  median and interquartile range, warm caches; GB/s and GFLOP/s of declared bytes and operations"
    if any(row[7] for row in rows):
        meaning += "; × is time / its time, with alternating calls"
    return ["timings", *columns(cells, left=left), *timed_lines(listed), meaning, *notes]


def timed_lines(results: Iterable[CaseResult]) -> list[str]:
    """Return lines with the names of timed calls other than the target's (compiled calls, gradients), and counts."""
    counts = Counter(time.who for result, _, time in _timed(results) if not result.target.startswith(time.who))
    return [f"  timed: {count} × {clip(who, 120)}" for who, count in counts.items()]


def bench_notes(results: Iterable[CaseResult]) -> list[str]:
    """Return the reasons of missing figures, each once with the number of its cases; at most ten, then a count."""
    executed = (result for result in results if result.duplicate_of is None)
    counts = Counter(lack for result in executed if result.benchmark is not None for lack in result.benchmark.lacks)
    lines = [f"  {count} × {clip(lack, 200)}" for lack, count in counts.items()]
    if len(lines) > _SHOWN_NOTES:
        return [*lines[:_SHOWN_NOTES], f"  and {len(lines) - _SHOWN_NOTES} more reasons"]
    return lines


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

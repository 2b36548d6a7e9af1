"""Table of timings, one row for each case: time, spread, rates from declared bytes and operations, comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from optest.reporting.typography import clip, columns
from optest.spec import Benchmark, CallTime, CaseResult

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

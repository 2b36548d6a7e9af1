"""The table of timings: time, spread, rates from what is declared, and the comparison; one row for each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from optest.reporting.typography import clip, columns
from optest.spec import Benchmark, CallTime, CaseResult

BENCH_HEAD = ("case", "time", "±", "GB/s", "GFLOP/s", "against", "its time", "×")
_LEFT = frozenset({0, 5})
_LONGEST_NAME = 72
_SHOWN_NOTES = 10

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds_text(seconds: float) -> str:
    """Three digits with a unit: ``1.23 µs``, ``45.6 ms``; shorter than a nanosecond in parts of one."""
    for scale, unit in _UNITS:
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def _three_digits(value: float) -> str:
    for places in (2, 1):
        if value < 10 ** (3 - places) * (1 - 0.5 * 10**-3):
            return f"{value:.{places}f}"
    return f"{value:.0f}"


def bench_rows(results: Iterable[CaseResult]) -> list[list[str]]:
    """The cells of every case that was timed, under :data:`BENCH_HEAD`; those that share an execution stand once."""
    return [[result.id, *_cells(benchmark, time)] for result, benchmark, time in _timed(results)]


def _timed(results: Iterable[CaseResult]) -> Iterator[tuple[CaseResult, Benchmark, CallTime]]:
    for result in results:
        benchmark = result.benchmark
        if benchmark is not None and benchmark.time is not None and result.duplicate_of is None:
            yield result, benchmark, benchmark.time


def _cells(benchmark: Benchmark, mine: CallTime) -> list[str]:
    theirs = benchmark.against
    return [
        seconds_text(mine.median_s),
        "unknown" if mine.spread_s is None else seconds_text(mine.spread_s),
        _rate(mine.gb_per_s),
        _rate(mine.gflop_per_s),
        theirs.who if theirs else "",
        seconds_text(theirs.median_s) if theirs else "",
        _ratio(benchmark),
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else _plain(rate, 3)


def _ratio(benchmark: Benchmark) -> str:
    if benchmark.ratio is None:
        return ""
    spread = "" if benchmark.ratio_spread is None else f" ± {_plain(benchmark.ratio_spread, 2)}"
    return f"{_plain(benchmark.ratio, 3)}{spread}"


def _plain(value: float, digits: int) -> str:
    """So many digits, and never an exponent for a large number."""
    return f"{value:.{digits}g}" if value < 10**digits - 0.5 else f"{value:.0f}"


def bench_lines(results: Iterable[CaseResult]) -> list[str]:
    """The table as text, with what it means and what was not possible; empty where nothing was to be timed."""
    listed = list(results)
    rows = bench_rows(listed)
    notes = bench_notes(listed)
    if not rows:
        return ["timings", *notes] if notes else []
    used = [place for place in range(len(BENCH_HEAD)) if any(row[place] for row in rows)]
    shown = [[clip(row[0], _LONGEST_NAME), *row[1:]] for row in rows]
    cells = [[row[place] for place in used] for row in ([*BENCH_HEAD], *shown)]
    left = frozenset(new for new, old in enumerate(used) if old in _LEFT)
    meaning = "  median and interquartile range, warm caches; GB/s and GFLOP/s of declared bytes and operations"
    if any(row[7] for row in rows):
        meaning += "; × is how many times as long as the other, called in turns with it"
    return ["timings", *columns(cells, left=left), *timed_lines(listed), meaning, *notes]


def timed_lines(results: Iterable[CaseResult]) -> list[str]:
    """What was called, where the name of the target alone would mislead: compiled calls, and gradients."""
    counts = Counter(time.who for result, _, time in _timed(results) if not result.target.startswith(time.who))
    return [f"  timed: {count} × {clip(who, 120)}" for who, count in counts.items()]


def bench_notes(results: Iterable[CaseResult]) -> list[str]:
    """What was not possible, each reason once with the number of its cases."""
    own = [each.benchmark for each in results if each.benchmark is not None and each.duplicate_of is None]
    counts = Counter(lack for benchmark in own for lack in benchmark.lacks)
    lines = [f"  {count} × {clip(lack, 200)}" for lack, count in counts.items()]
    if len(lines) > _SHOWN_NOTES:
        return [*lines[:_SHOWN_NOTES], f"  and {len(lines) - _SHOWN_NOTES} more reasons"]
    return lines

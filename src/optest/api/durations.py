"""``--durations``: which cases took longest, and where their time went."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from optest.spec import CaseResult

__all__ = ["slowest"]

_PHASES = (
    ("generate_s", "inputs"),
    ("reference_s", "reference"),
    ("compile_s", "compiler"),
    ("run_s", "backend"),
    ("compare_s", "comparison"),
)


def slowest(results: Sequence[CaseResult], count: int) -> Iterator[str]:
    """Yield a heading and a line for each of the ``count`` slowest cases; cases that share an execution count once."""
    own = [result for result in results if result.duplicate_of is None and _seconds(result) > 0]
    if not own or not count:
        return
    shown = heapq.nlargest(count, own, key=_seconds)
    yield f"slowest {len(shown)} of {len(own)} cases"
    for result in shown:
        phases = [(getattr(result.timings, name) or 0.0, word) for name, word in _PHASES]
        parts = ", ".join(f"{word} {_time(seconds)}" for seconds, word in sorted(phases, reverse=True)[:2] if seconds)
        yield f"  {_time(_seconds(result)):>8}  {result.id}  ({parts})"


def _seconds(result: CaseResult) -> float:
    return result.timings.total_s or 0.0


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"

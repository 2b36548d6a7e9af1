"""Timelines in Chrome's trace format, which chrome://tracing and Perfetto show: a row for each device or lane."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from optest.spec import CaseResult, RunInfo, RunSummary

_PHASES = ("generate_s", "reference_s", "compile_s", "run_s", "compare_s")
"""In the order in which a case goes through them."""


def event(name: str, *, process: int, row: int, began_s: float, took_s: float, **facts: Any) -> dict[str, Any]:
    """A piece of work of a device (a process of the trace) in one of its rows; the trace counts in microseconds."""
    place = {"pid": process, "tid": row, "ts": began_s * 1e6, "dur": took_s * 1e6}
    return {"ph": "X", "name": name, **place, **({"args": facts} if facts else {})}


def trace_of(events: Iterable[dict[str, Any]]) -> str:
    """The trace of events, with a title for each device."""
    ordered = sorted(events, key=lambda each: each["ts"])
    titles = [
        {"ph": "M", "name": "process_name", "pid": device, "args": {"name": f"device {device}"}}
        for device in sorted({each["pid"] for each in ordered})
    ]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": [*titles, *ordered]})


def timeline_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:  # noqa: ARG001 - a format's
    """The whole run: each case on its devices, and below it what of its time was compiling, running and comparing.

    A case without devices is on device 0, in the first row where no other runs at that time.
    """
    return trace_of(_events(results))


def _events(results: Iterable[CaseResult]) -> Iterator[dict[str, Any]]:
    free_from: list[float] = []
    for result in sorted((each for each in results if each.began_s is not None), key=lambda each: each.began_s or 0.0):
        began_s, took_s = result.began_s or 0.0, result.timings.total_s or 0.0
        row = 0
        if not result.devices:
            row = next((place for place, free_s in enumerate(free_from) if free_s <= began_s), len(free_from))
            free_from[row : row + 1] = [began_s + took_s]
        facts = {"status": result.status.value, "reason": result.reason.value if result.reason else ""}
        for device in result.devices or (0,):
            yield event(result.id, process=device, row=row, began_s=began_s, took_s=took_s, **facts)
            at_s = began_s
            for phase in _PHASES:
                spent_s = getattr(result.timings, phase) or 0.0
                if spent_s:
                    yield event(phase.removesuffix("_s"), process=device, row=row, began_s=at_s, took_s=spent_s)
                at_s += spent_s

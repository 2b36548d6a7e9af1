"""Timelines in Chrome's trace format, for chrome://tracing and Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from optest.spec import CaseResult, RunInfo, RunSummary

# In the order in which a case goes through them.
_PHASES = ("generate_s", "reference_s", "compile_s", "run_s", "compare_s")


def event(name: str, *, process: int, row: int, began_s: float, took_s: float, **facts: Any) -> dict[str, Any]:
    """Return a trace event: work of a device (``process``) in one of its rows, with ``facts`` as its arguments."""
    # The format has times in microseconds.
    times = {"pid": process, "tid": row, "ts": began_s * 1e6, "dur": took_s * 1e6}
    return {"ph": "X", "name": name, **times, **({"args": facts} if facts else {})}


def trace_of(events: Iterable[dict[str, Any]]) -> str:
    """Return the JSON text of a trace with these events, in order of time, and a title for each device."""
    ordered = sorted(events, key=lambda event: event["ts"])
    titles = [
        {"ph": "M", "name": "process_name", "pid": device, "args": {"name": f"device {device}"}}
        for device in sorted({event["pid"] for event in ordered})
    ]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": [*titles, *ordered]})


def timeline_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:  # noqa: ARG001 - a format's
    """Return the trace of a run: each case on its devices, with the phases of its time below it.

    A case without devices is on device 0, in the first row in which no other case runs at that time. Cases of which
    the start is not known are left out.
    """
    return trace_of(_events(results))


def _events(results: Iterable[CaseResult]) -> Iterator[dict[str, Any]]:
    free_from: list[float] = []
    started = (result for result in results if result.began_s is not None)
    for result in sorted(started, key=lambda result: result.began_s or 0.0):
        began_s, took_s = result.began_s or 0.0, result.timings.total_s or 0.0
        row = 0
        if not result.devices:
            row = next((number for number, free_s in enumerate(free_from) if free_s <= began_s), len(free_from))
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

"""The JSON report of a run: built from its results, validated, then written in one piece."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from optest.reporting.schema import REPORT_SCHEMA_VERSION, CaseEntry, RunEntry, SummaryEntry, require_fit
from optest.reporting.tally import Tally
from optest.spec import CaseResult, Measure, RunInfo, RunSummary, Status
from optest.store import check_writable, codec, write_atomically

__all__ = ["JsonReporter", "build_report", "make", "report_text"]


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> JsonReporter:  # noqa: ARG001
    """The JSON report as the registry makes it; it names its path unless the run is very quiet."""
    return JsonReporter(path, stream=(stream or sys.stdout) if verbosity > -2 else None)


class JsonReporter:
    """Writes the report to ``path`` when the run ends, and says so on ``stream``.

    ``path`` None is ``optest_report_<start in UTC>.json`` in the current folder.

    Raises:
        UsageError: from the constructor, if ``path`` cannot be written: better before the run than after it.
    """

    def __init__(self, path: Path | None = None, *, stream: TextIO | None = None) -> None:
        check_writable(path or Path("optest_report.json"))
        self._path = path
        self._stream = stream
        self._info: RunInfo | None = None
        self._results: list[CaseResult] = []

    def on_start(self, info: RunInfo) -> None:
        self._info = info

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002 - the protocol's
        self._results.append(result)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        if self._info is None:
            raise RuntimeError("on_complete was called before on_start")
        path = self._path or Path(f"optest_report_{_compact(self._info.started_at)}.json")
        write_atomically(path, report_text(self._info, results or self._results, summary).encode())
        if self._stream is not None:
            self._stream.write(f"report: {path}\n")


def _compact(started_at: str) -> str:
    """``20260131_235959`` for ``2026-01-31T23:59:59.123+00:00``."""
    return re.sub(r"[^0-9T]", "", started_at.partition(".")[0].partition("+")[0]).replace("T", "_")


def report_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """The validated report as strict JSON in ASCII, which any reader can take; one line for each case."""
    report = build_report(info, results, summary)
    require_fit(report)
    parts = [f'"{name}": {_indented(report[name])}' for name in ("schema_version", "run", "summary")]
    cases = ",\n  ".join(json.dumps(case, allow_nan=False) for case in report["cases"])
    parts.append(f'"cases": [\n  {cases}\n ]' if cases else '"cases": []')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _indented(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False).replace("\n", "\n ")


def build_report(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> dict[str, Any]:
    """The report as plain data that fits :data:`optest.reporting.schema.REPORT_SCHEMA`.

    Cases stand in the order of the rounds and the plan, however they finished, so that reports can be compared.
    """
    tally = Tally()
    cases = []
    for result in sorted(results, key=_place):
        tally.add(result)
        cases.append(_case(result))
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "run": _run(info),
        "summary": _summary(summary, tally),
        "cases": cases,
    }


def _place(result: CaseResult) -> tuple[int, str, int]:
    """Round, and file and line of the plan; cases without a line keep the order in which they finished."""
    file, _, line = result.where.rpartition(":")
    return (result.round, file, int(line) if line.isdigit() else 0)


def _plain(noun: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(codec.encode(noun))
    return found


def _run(info: RunInfo) -> dict[str, Any]:
    entry = _plain(info)
    entry["id"] = entry["run_id"]
    return {name: entry[name] for name in RunEntry.__struct_fields__}


def _summary(summary: RunSummary, tally: Tally) -> dict[str, Any]:
    entry = _plain(summary)
    entry["duration_s"] = summary.duration_s if math.isfinite(summary.duration_s) else None
    entry["by_operator"] = {
        name: {status.value: each.statuses[status] for status in Status if each.statuses[status]}
        for name, each in tally.operators.items()
    }
    return {name: entry[name] for name in SummaryEntry.__struct_fields__}


def _case(result: CaseResult) -> dict[str, Any]:
    entry = _plain(result)
    entry |= entry["verdict"]
    entry["tolerance"] = _tolerance(result.verdict.measures)
    return {name: entry[name] for name in CaseEntry.__struct_fields__}


def _tolerance(measures: Sequence[Measure]) -> str:
    """Each rule once; which output it judged where they differ."""
    by_rule: dict[str, list[str]] = {}
    for measure in measures:
        if measure.rule is not None:
            by_rule.setdefault(measure.rule.text or measure.rule.name, []).append(measure.output)
    if len(by_rule) == 1:
        return next(iter(by_rule))
    return "; ".join(_ruled(by_rule))


def _ruled(by_rule: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{', '.join(outputs)}: {rule}" for rule, outputs in by_rule.items()]

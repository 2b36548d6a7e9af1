"""JSON report of a run, validated against its schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from optest.reporting.explain import explanation_of, rules_text
from optest.reporting.failure_groups import FailureGroup, failure_groups
from optest.reporting.figures import figures_of
from optest.reporting.patterns import layouts_data
from optest.reporting.schema import REPORT_SCHEMA_VERSION, CaseEntry, RunEntry, SummaryEntry, require_fit
from optest.reporting.tally import Tally, in_plan_order
from optest.spec import CaseResult, RunInfo, RunSummary, Status
from optest.store import codec


def report_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """Return the validated report as strict JSON in ASCII, with one line for each case.

    Raises:
        InternalError: if the report does not fit its schema.
    """
    report = build_report(info, results, summary)
    require_fit(report)
    parts = [
        f'"{name}": {json.dumps(report[name], indent=1, allow_nan=False)}'.replace("\n", "\n ")
        for name in ("schema_version", "run", "summary")
    ]
    cases = ",\n  ".join(json.dumps(case, allow_nan=False) for case in report["cases"])
    parts.append(f'"cases": [\n  {cases}\n ]' if cases else '"cases": []')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def build_report(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> dict[str, Any]:
    """Return the report as plain data that fits :data:`optest.reporting.schema.REPORT_SCHEMA`.

    Cases are in the order of :func:`in_plan_order`, so that reports can be compared.
    """
    tally = Tally()
    cases = []
    ordered = in_plan_order(results)
    explanations = {
        id(result): _explanation(result, group)
        for group in failure_groups(ordered)
        for result in (group.first, *group.others)
    }
    for result in ordered:
        tally.add(result)
        case = _plain_data(result)
        case |= case["verdict"]
        case["tolerance"] = rules_text(result.verdict.measures)
        case["layouts"] = layouts_data(result)
        case["explanation"] = explanations.get(id(result))
        cases.append({name: case[name] for name in CaseEntry.__struct_fields__})
    run, counts = _plain_data(info), _plain_data(summary)
    run["id"] = run["run_id"]
    counts["duration_s"] = summary.duration_s if math.isfinite(summary.duration_s) else None
    counts["by_operator"] = {
        name: {status.value: group.statuses[status] for status in Status if group.statuses[status]}
        for name, group in tally.operators.items()
    }
    counts["figures"] = figures_of(info, tally)
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "run": {name: run[name] for name in RunEntry.__struct_fields__},
        "summary": {name: counts[name] for name in SummaryEntry.__struct_fields__},
        "cases": cases,
    }


def _explanation(result: CaseResult, group: FailureGroup) -> dict[str, Any]:
    """Return the facts that a failure block has in addition to the result."""
    facts = explanation_of(result, group.pattern, always_fails=group.always_fails)
    layouts = {
        name: {"strides": list(layout["strides"]), "offset": layout.get("offset", 0)}
        for name, layout in facts.output_layouts.items()
    }
    return asdict(facts) | {"output_layouts": layouts, "same_cause": group.first.id}


def _plain_data(record: Any) -> dict[str, Any]:
    """Convert a record to plain data by the codec of the journal, which has the forms of non-finite numbers."""
    data: dict[str, Any] = msgspec.json.decode(codec.encode(record))
    return data

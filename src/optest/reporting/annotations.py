"""Annotations for GitHub Actions: one line for each case that is not well, shown beside the plan's line.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions says how such lines are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from optest.errors import plural
from optest.reporting.failure_groups import block
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import printable
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary

_MOST = 10
"""GitHub shows so many of a step."""


def annotations_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:  # noqa: ARG001 - every format's
    """``::error file=plan.yaml,line=7,title=…::the failure block``; at most ten, the last says what is left out."""
    bad = [result for result in in_plan_order(results) if result.status in BAD_STATUSES]
    lines = [_annotation(result) for result in (bad if len(bad) <= _MOST else bad[: _MOST - 1])]
    if left := len(bad) - len(lines):
        more = f"and {plural(left, 'more case')} failing: optest report {info.run_id}"
        lines.append(f"::error title=optest::{_data(more)}")
    return "".join(f"{line}\n" for line in lines)


def _annotation(result: CaseResult) -> str:
    file, _, line = result.where.rpartition(":")
    reason = f" {result.reason.value}" if result.reason else ""
    facts = {"title": f"{result.status.value.upper()}{reason}: {printable(result.id)}"}
    if line.isdigit():
        facts = {"file": file, "line": line, **facts}
    stated = ",".join(f"{name}={_data(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in facts.items())
    return f"::error {stated}::{_data(block(result))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

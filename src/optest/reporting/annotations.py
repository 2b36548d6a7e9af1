"""Annotations for GitHub Actions: one line for each failing case, which GitHub shows next to the plan's line.

Syntax: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterable

from optest.errors import plural
from optest.reporting.failure_groups import failure_block
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import printable
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary

# GitHub shows at most ten annotations of a step.
_MAX_ANNOTATIONS = 10


def annotations_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:  # noqa: ARG001 - every format's
    """Return lines ``::error file=plan.yaml,line=7,title=…::the failure block``, one for each failing case.

    There are at most ten; if there are more failures, the last line has the number of the rest.
    """
    bad = [result for result in in_plan_order(results) if result.status in BAD_STATUSES]
    lines = [_annotation(result) for result in (bad if len(bad) <= _MAX_ANNOTATIONS else bad[: _MAX_ANNOTATIONS - 1])]
    if left := len(bad) - len(lines):
        more = f"{plural(left, 'more case')} failed; to show all: optest report {info.run_id}"
        lines.append(f"::error title=optest::{_escaped(more)}")
    return "".join(f"{line}\n" for line in lines)


def _annotation(result: CaseResult) -> str:
    file, _, line = result.where.rpartition(":")
    reason = f" {result.reason.value}" if result.reason else ""
    facts = {"title": f"{result.status.value.upper()}{reason}: {printable(result.id)}"}
    if line.isdigit():
        facts = {"file": file, "line": line, **facts}
    # Values of properties, unlike the text, must not contain the separators of properties.
    properties = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in facts.items()
    )
    return f"::error {properties}::{_escaped(failure_block(result))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

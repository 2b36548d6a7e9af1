"""Annotations for GitHub Actions: one line for each case that is not well, shown beside the plan's line.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions says how such lines are read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from optest.reporting.failure_groups import block
from optest.reporting.file_report import make_file_reporter
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import plural, printable
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary

if TYPE_CHECKING:
    from optest.reporting import Reporter

__all__ = ["annotations_text", "make"]

_MOST = 10
"""GitHub shows so many of a step."""


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> Reporter:
    """The annotations as the registry makes them: on standard output, where the service reads them, unless ``path``."""
    if path is None:
        return _Printed()
    return make_file_reporter("github", stream=stream, path=path, verbosity=verbosity, color=color)


class _Printed:
    """Prints the annotations when the run ends."""

    def __init__(self) -> None:
        self._info: RunInfo | None = None
        self._results: list[CaseResult] = []

    def on_start(self, info: RunInfo) -> None:
        self._info = info

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002 - the protocol's
        self._results.append(result)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        assert self._info is not None, "on_complete was called before on_start"
        sys.stdout.write(annotations_text(self._info, results or self._results, summary))


def annotations_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:  # noqa: ARG001 - every format's
    """``::error file=plan.yaml,line=7,title=…::the failure block``; at most ten, the last says what is left out."""
    bad = [result for result in in_plan_order(results) if result.status in BAD_STATUSES]
    lines = [_annotation(result) for result in (bad if len(bad) <= _MOST else bad[: _MOST - 1])]
    if left := len(bad) - len(lines):
        more = f"and {plural(left, 'more case')} not well: optest report {info.run_id}"
        lines.append(f"::error title=optest::{_data(more)}")
    return "".join(f"{line}\n" for line in lines)


def _annotation(result: CaseResult) -> str:
    file, _, line = result.where.rpartition(":")
    reason = f" {result.reason.value}" if result.reason else ""
    facts = {"title": f"{result.status.value.upper()}{reason}: {printable(result.id)}"}
    if line.isdigit():
        facts = {"file": file, "line": line, **facts}
    stated = ",".join(f"{name}={_property(value)}" for name, value in facts.items())
    return f"::error {stated}::{_data(block(result))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

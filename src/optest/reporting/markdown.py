"""The summary in Markdown, for the pages of CI services; it never grows beyond what GitHub shows of one step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from optest.reporting.file_report import FileReporter, make_file_reporter
from optest.reporting.plain_results import block
from optest.reporting.tally import Tally, in_plan_order
from optest.reporting.typography import clip, duration, plural, printable, without_ansi
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, Status

__all__ = ["MOST_BYTES", "make", "markdown_text"]

MOST_BYTES = 1_000_000
"""GitHub shows 1 MiB for a step and nothing at all beyond; the rest is for what else the step writes there."""

_MOST_ROWS = 200
_LONGEST_BLOCK = 20_000
_LONGEST_CELL = 300
_SPECIAL = re.compile(r"[\\`*\[\]#|<>~@&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
"""What Markdown, GitHub's mentions and issues, formulas and HTML are made of; an underscore in a word is none of it."""


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> FileReporter:
    """The Markdown summary as the registry makes it."""
    return make_file_reporter("markdown", stream=stream, path=path, verbosity=verbosity, color=color)


def markdown_text(
    info: RunInfo, results: Iterable[CaseResult], summary: RunSummary, *, most_bytes: int = MOST_BYTES
) -> str:
    """Counts, a table by operator and reason, failure blocks folded in, provenance; at most ``most_bytes`` of UTF-8.

    Failures that do not fit are counted in its words, and the first of them come first.
    """
    ordered = in_plan_order(results)
    tally = Tally()
    for result in ordered:
        tally.add(result)
    head = [*_heading(tally, summary), *_notes(info), *_table(tally), *_skips(tally)]
    foot = _provenance(info, summary)
    bad = [result for result in ordered if result.status in BAD_STATUSES]
    room = most_bytes - _size(head) - _size(foot) - 300
    return "\n".join([*head, *_failures(bad, room, info), *foot]) + "\n"


def _heading(tally: Tally, summary: RunSummary) -> list[str]:
    mark = "✅" if summary.exit_status == 0 else "❌"
    missing = summary.total - tally.finished
    text = tally.phrase() + (f", {missing} not run" if missing > 0 else "")
    spent = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    word = "interrupted: " if summary.interrupted else ""
    return [f"## {mark} optest: {word}{text}{spent}", ""]


def _notes(info: RunInfo) -> list[str]:
    return [line for note in info.notes for line in (f"> {escaped(note)}", "")]


def _table(tally: Tally) -> list[str]:
    if not tally.operators:
        return []
    shown = [status for status in Status if tally.statuses[status]]
    lines = [
        _row(["operator", *(status.value for status in shown), "reasons"]),
        _row(["---", *("---:" for _ in shown), "---"]),
    ]
    rows = tally.worst_first()
    for name, each in rows[:_MOST_ROWS]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in each.reasons.most_common())
        lines.append(_row([escaped(name), *(str(each.statuses[status] or "") for status in shown), escaped(reasons)]))
    if len(rows) > _MOST_ROWS:
        lines += ["", f"and {plural(len(rows) - _MOST_ROWS, 'operator')} more"]
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _skips(tally: Tally) -> list[str]:
    groups = tally.skips.most_common()
    lines = [
        f"- {count} × skipped: {escaped(': '.join(part for part in why if part) or 'no reason given')}"
        for why, count in groups[:_MOST_ROWS]
    ]
    if len(groups) > _MOST_ROWS:
        lines.append(f"- and for {plural(len(groups) - _MOST_ROWS, 'other reason')}")
    return [*lines, ""] if lines else []


def _failures(bad: Sequence[CaseResult], room: int, info: RunInfo) -> list[str]:
    """As many failures as there is room for, and how many are left out."""
    lines: list[str] = []
    for shown, result in enumerate(bad):
        entry = _failure(result)
        room -= _size(entry)
        if room < 0:
            left = len(bad) - shown
            return [
                *lines,
                f"**{plural(left, 'failure')} of {len(bad)} left out here**, for want of room: "
                f"`optest report {printable(info.run_id).replace('`', '')}` shows all of them.",
                "",
            ]
        lines += entry
    return lines


def _failure(result: CaseResult) -> list[str]:
    reason = f" {result.reason.value}" if result.reason else ""
    title = f"{result.status.value.upper()}{reason}: {escaped(result.id)}"
    text = block(result)
    if len(text) > _LONGEST_BLOCK:
        cut = len(text) - _LONGEST_BLOCK
        kept = text[-_LONGEST_BLOCK // 2 :]
        text = f"{text[: _LONGEST_BLOCK // 2]}\n… {plural(cut, 'character')} left out …\n{kept}"
    fence = _fence(text)
    return [f"<details><summary>{title}</summary>", "", f"{fence}text", text, fence, "", "</details>", ""]


def _fence(text: str) -> str:
    """More backticks than any line of the text has in a row, so that nothing in it ends the block."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def _provenance(info: RunInfo, summary: RunSummary) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    host = ", ".join(str(fact) for fact in info.host.values())
    facts = [
        ("run", info.run_id),
        ("plan", info.plan),
        ("target", info.target),
        ("seed", str(info.seed)),
        ("started", info.started_at),
        ("isolation", f"{info.isolation}, {plural(info.jobs, 'job')}"),
        ("versions", versions),
        ("host", host),
        ("exit status", str(summary.exit_status)),
    ]
    rows = [_row([name, escaped(value)]) for name, value in facts if value]
    return ["<details><summary>provenance</summary>", "", "| | |", "| --- | --- |", *rows, "", "</details>"]


def escaped(text: str) -> str:
    """Foreign text as text: one line, and no character of it is Markdown or HTML."""
    line = " ".join(clip(printable(without_ansi(text)), _LONGEST_CELL).split())
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", line)


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)

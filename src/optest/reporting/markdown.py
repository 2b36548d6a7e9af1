"""The summary in Markdown, for the pages of CI services; it never grows beyond what GitHub shows of one step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from optest.reporting.bench_table import BENCH_HEAD, bench_notes, bench_rows, timed_lines
from optest.reporting.bias import leans, sentence
from optest.reporting.check_summary import (
    HEAD,
    OperatorLine,
    columns_of,
    folded,
    gap_reasons,
    in_order,
    is_check,
    operator_lines,
    sum_up,
)
from optest.reporting.failure_groups import FailureGroup, failure_groups, group_block
from optest.reporting.figures import coverage_text, group_cells, total_text
from optest.reporting.file_report import FileReporter, make_file_reporter
from optest.reporting.tally import Tally, in_plan_order
from optest.reporting.typography import clip, duration, plural, printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary, Status

__all__ = ["MOST_BYTES", "make", "markdown_text"]

MOST_BYTES = 1_000_000
"""GitHub shows 1 MiB for a step and nothing at all beyond; the rest is for what else the step writes there."""

_MOST_ROWS = 200
_MOST_GAPS = 12
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

    A check has the table of its own, and one block for all failures that are alike. Failures that do not fit are
    counted in its words, and the first of them come first.
    """
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    head = _head_of_check(info, ordered, summary) if is_check(info) else _head_of_run(info, ordered, summary)
    head += _timings(ordered)
    foot = _provenance(info, summary)
    room = most_bytes - _size(head) - _size(foot) - 300
    return "\n".join([*head, *_failures(failure_groups(ordered), room, info), *foot]) + "\n"


def _head_of_run(info: RunInfo, results: Sequence[CaseResult], summary: RunSummary) -> list[str]:
    tally = Tally()
    for result in results:
        tally.add(result)
    table = _figures(tally, info) if tally.models else _table(tally)
    return [*_heading(tally, summary), *_notes(info), *table, *_skips(tally)]


def _head_of_check(info: RunInfo, results: Sequence[CaseResult], summary: RunSummary) -> list[str]:
    """As on the terminal: a line for each operator, why cases were not run, what lies on one side."""
    lines = operator_lines(results)
    first, *rest = sum_up(info, lines, summary)
    told = [f"## {_mark(summary)} optest check: {escaped(first)}", ""]
    told += [line for each in rest for line in (escaped(each), "")]
    return [*told, *_notes(info), *_operators(lines), *_gaps(lines), *_leans(results)]


def _operators(lines: Sequence[OperatorLine]) -> list[str]:
    rows = sorted(folded(lines), key=lambda line: -line.failed.total())
    table = [_row([*HEAD, ""]), _row(["---", *("---:" for _ in HEAD[1:]), "---"])]
    for each in rows[:_MOST_ROWS]:
        counts = (str(counts.total() or "") for counts in columns_of(each))
        table.append(_row([escaped(each.operator), *counts, escaped(each.remark())]))
    if len(rows) > _MOST_ROWS:
        table += ["", f"and {plural(len(rows) - _MOST_ROWS, 'operator')} more"]
    return [*table, ""] if rows else []


def _gaps(lines: Sequence[OperatorLine]) -> list[str]:
    rows = gap_reasons(lines)
    sentences = [
        f"- {operators.total()} × declared gap: {escaped(reason)} ({escaped(clip(', '.join(operators), 160))})"
        for reason, operators in rows[:_MOST_GAPS]
    ]
    if len(rows) > _MOST_GAPS:
        sentences.append(f"- and for {plural(len(rows) - _MOST_GAPS, 'other reason')}")
    return [*sentences, ""] if sentences else []


def _leans(results: Sequence[CaseResult]) -> list[str]:
    lines = [
        f"- on one side of the true values: {escaped(which)}: {escaped(sentence(each))}"
        for which, each in leans(results)
    ]
    return [*lines, ""] if lines else []


def _heading(tally: Tally, summary: RunSummary) -> list[str]:
    missing = summary.total - tally.finished
    text = tally.phrase() + (f", {missing} not run" if missing > 0 else "")
    spent = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    word = "interrupted: " if summary.interrupted else ""
    return [f"## {_mark(summary)} optest: {word}{text}{spent}", ""]


def _mark(summary: RunSummary) -> str:
    return "✅" if summary.exit_status == 0 else "❌"


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


def _figures(tally: Tally, info: RunInfo) -> list[str]:
    """Tables of the models and of the operators of model cases, and a sentence for all."""
    rows = tally.worst_first()
    shown = dict(rows[:_MOST_ROWS])
    lines = _cells(group_cells("model", tally.models, with_operators=True))
    lines += [line for text in (total_text(tally), coverage_text(info, tally)) if text for line in (escaped(text), "")]
    lines += _cells(group_cells("operator", shown, with_operators=False))
    return lines + ([f"and {plural(len(rows) - len(shown), 'operator')} more", ""] if len(rows) > len(shown) else [])


def _cells(table: Sequence[Sequence[str]]) -> list[str]:
    head, *rows = table
    rule = ["---", *("---:" for _ in head[1:])]
    return [_row(head), _row(rule), *(_row([escaped(row[0]), *row[1:]]) for row in rows), ""]


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


def _timings(results: Sequence[CaseResult]) -> list[str]:
    rows = bench_rows(results)
    notes = [f"- {escaped(note.strip())}" for note in (*timed_lines(results), *bench_notes(results))]
    if not rows:
        return [*notes, ""] if notes else []
    lines = [_row(list(BENCH_HEAD)), _row(["---", "---:", "---:", "---:", "---:", "---", "---:", "---:"])]
    lines += [_row(list(map(escaped, row))) for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines += ["", f"and {plural(len(rows) - _MOST_ROWS, 'timed case')} more"]
    return [*lines, "", *notes, *([""] if notes else [])]


def _failures(groups: Sequence[FailureGroup], room: int, info: RunInfo) -> list[str]:
    """As many failures as there is room for, and how many are left out."""
    lines: list[str] = []
    for shown, group in enumerate(groups):
        entry = _failure(group)
        room -= _size(entry)
        if room < 0:
            left, total = (sum(1 + len(each.others) for each in part) for part in (groups[shown:], groups))
            return [
                *lines,
                f"**{plural(left, 'failure')} of {total} left out here**, for want of room: "
                f"`optest report {printable(info.run_id).replace('`', '')}` shows all of them.",
                "",
            ]
        lines += entry
    return lines


def _failure(group: FailureGroup) -> list[str]:
    result = group.first
    reason = f" {result.reason.value}" if result.reason else ""
    more = f" and {len(group.others)} more like it" if group.others else ""
    title = f"{result.status.value.upper()}{reason}: {escaped(result.id)}{more}"
    text = group_block(group)
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

"""Markdown summary for the pages of CI services, within the size that GitHub shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from optest.errors import plural
from optest.reporting.bench_table import BENCH_HEAD, bench_notes, bench_rows, timed_lines
from optest.reporting.check_summary import (
    HEAD,
    folded,
    in_order,
    is_check,
    operator_lines,
    skip_reasons,
    sum_up,
)
from optest.reporting.failure_groups import FailureGroup, failure_groups, group_block
from optest.reporting.figures import coverage_text, group_cells, outcome_text, provenance, status_cells, total_text
from optest.reporting.tally import Tally, in_plan_order, skip_text
from optest.reporting.typography import clip, printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary

# GitHub shows 1 MiB of a step, and nothing at all of a longer summary; the rest is for other text of the step.
MAX_BYTES = 1_000_000

_MAX_ROWS = 200
_MAX_SKIP_REASONS = 12
_MAX_BLOCK_LENGTH = 20_000
_MAX_CELL_LENGTH = 300
# Characters with a meaning in Markdown, GitHub's mentions, formulas or HTML; an underscore within a word has none.
_SPECIAL = re.compile(r"[\\`*\[\]#|<>~@&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")


def markdown_text(
    info: RunInfo, results: Iterable[CaseResult], summary: RunSummary, *, max_bytes: int = MAX_BYTES
) -> str:
    """Return the summary: counts, tables, timings, folded failure blocks and provenance, in at most ``max_bytes``.

    Failures that do not fit are counted.
    """
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    head = _head_of_check(info, ordered, summary) if is_check(info) else _head_of_run(info, ordered, summary)
    timings = [list(map(escaped, row)) for row in bench_rows(ordered)]
    head += _markdown_table(BENCH_HEAD, timings, left={0, 5}, noun="timed case") if timings else []
    notes = [f"- {escaped(note.strip())}" for note in (*timed_lines(ordered), *bench_notes(ordered))]
    head += [*notes, ""] if notes else []
    rows = [_markdown_row([name, escaped(value)]) for name, value in provenance(info, summary)]
    foot = ["<details><summary>provenance</summary>", "", "| | |", "| --- | --- |", *rows, "", "</details>"]
    # 300 bytes are for the line with the number of failures that do not fit.
    room = max_bytes - _byte_count(head) - _byte_count(foot) - 300
    return "\n".join([*head, *_failures(failure_groups(ordered), room, info), *foot]) + "\n"


def _head_of_run(info: RunInfo, results: Sequence[CaseResult], summary: RunSummary) -> list[str]:
    tally = Tally()
    for result in results:
        tally.add(result)
    if tally.models:
        models, operators = (
            [[escaped(row[0]), *row[1:]] for row in group_cells(word, groups, with_operators=word == "model")]
            for word, groups in (("model", tally.models), ("operator", dict(tally.worst_first())))
        )
        texts = [text for text in (total_text(tally), coverage_text(info, tally)) if text]
        # A run has few models, so all are shown, but may have hundreds of operators.
        table = [
            *_markdown_table(models[0], models[1:], limit=len(models)),
            *(line for text in texts for line in (escaped(text), "")),
            *_markdown_table(operators[0], operators[1:]),
        ]
    elif tally.operators:
        head, *rows = status_cells(tally, none="")
        table = _markdown_table(head, [list(map(escaped, row)) for row in rows], left={0, len(head) - 1})
    else:
        table = []
    heading = [f"## {_mark(summary)} optest: {outcome_text(tally, summary)}", ""]
    skips = [f"- {count} × skipped: {escaped(skip_text(why))}" for why, count in tally.skips.most_common()]
    return [*heading, *_note_lines(info), *table, *_limited_list(skips, _MAX_ROWS)]


def _head_of_check(info: RunInfo, results: Sequence[CaseResult], summary: RunSummary) -> list[str]:
    """Return the lines above the failures of a check: counts, table of operators, reasons of skips."""
    lines = operator_lines(results)
    first, *rest = sum_up(info, lines, summary)
    head = [f"## {_mark(summary)} optest check: {escaped(first)}", ""]
    head += [line for text in rest for line in (escaped(text), "")]
    head += _note_lines(info)
    rows = [
        [escaped(line.operator), *(str(count or "") for count in line.counts), escaped(line.remark())]
        for line in sorted(folded(lines), key=lambda line: -line.failed.total())
    ]
    head += _markdown_table([*HEAD, ""], rows, left={0, len(HEAD)}) if rows else []
    reasons = [
        f"- {operators.total()} × skipped: {escaped(reason)} ({escaped(clip(', '.join(operators), 160))})"
        for reason, operators in skip_reasons(lines)
    ]
    return head + _limited_list(reasons, _MAX_SKIP_REASONS)


def _limited_list(items: Sequence[str], limit: int) -> list[str]:
    """Return at most ``limit`` items of a Markdown list of reasons, and the number of the others."""
    if len(items) > limit:
        items = [*items[:limit], f"- and {plural(len(items) - limit, 'more reason')}"]
    return [*items, ""] if items else []


def _mark(summary: RunSummary) -> str:
    return "✅" if summary.exit_status == 0 else "❌"


def _note_lines(info: RunInfo) -> list[str]:
    return [line for note in info.notes for line in (f"> {escaped(note)}", "")]


def _markdown_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[int] = (0,),
    noun: str = "operator",
    limit: int = _MAX_ROWS,
) -> list[str]:
    """Return a table of at most ``limit`` rows, each for a ``noun``; columns in ``left`` are aligned to the left."""
    lines = [_markdown_row(head), _markdown_row(["---" if column in left else "---:" for column in range(len(head))])]
    lines += map(_markdown_row, rows[:limit])
    if len(rows) > limit:
        lines += ["", f"and {plural(len(rows) - limit, f'more {noun}')}"]
    return [*lines, ""]


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _failures(groups: Sequence[FailureGroup], room: int, info: RunInfo) -> list[str]:
    """Return the failure blocks of groups in at most ``room`` bytes, and a line with the number of those left out."""
    lines: list[str] = []
    for shown, group in enumerate(groups):
        result = group.first
        reason = f" {result.reason.value}" if result.reason else ""
        more = f" and {len(group.others)} more like it" if group.others else ""
        title = f"{result.status.value.upper()}{reason}: {escaped(result.id)}{more}"
        text = group_block(group)
        if len(text) > _MAX_BLOCK_LENGTH:
            omitted = len(text) - _MAX_BLOCK_LENGTH
            end = text[-_MAX_BLOCK_LENGTH // 2 :]
            text = f"{text[: _MAX_BLOCK_LENGTH // 2]}\n… {plural(omitted, 'character')} omitted …\n{end}"
        # More backticks than the text has in a row, so that nothing in it ends the block.
        fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
        entry = [f"<details><summary>{title}</summary>", "", f"{fence}text", text, fence, "", "</details>", ""]
        room -= _byte_count(entry)
        if room < 0:
            left, total = (sum(1 + len(group.others) for group in part) for part in (groups[shown:], groups))
            return [
                *lines,
                f"**{left} of {plural(total, 'failure')} omitted**, since the summary is limited in size; to show all: "
                f"`optest report {printable(info.run_id).replace('`', '')}`",
                "",
            ]
        lines += entry
    return lines


def escaped(text: str) -> str:
    """Return text of tested code as one line of plain text: characters of Markdown and HTML become references."""
    line = " ".join(clip(printable(without_ansi(text)), _MAX_CELL_LENGTH).split())
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", line)


def _byte_count(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)

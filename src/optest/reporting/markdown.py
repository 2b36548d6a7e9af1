"""The summary in Markdown, for the pages of CI services; it never grows beyond what GitHub shows of one step."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from optest.errors import plural
from optest.reporting.bench_table import BENCH_HEAD, bench_notes, bench_rows, timed_lines
from optest.reporting.bias import leans, sentence
from optest.reporting.check_summary import (
    HEAD,
    columns_of,
    folded,
    gap_reasons,
    in_order,
    is_check,
    operator_lines,
    sum_up,
)
from optest.reporting.failure_groups import FailureGroup, failure_groups, group_block
from optest.reporting.figures import coverage_text, group_cells, outcome_text, provenance, status_cells, total_text
from optest.reporting.tally import Tally, in_plan_order, skip_text
from optest.reporting.typography import clip, printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary

MOST_BYTES = 1_000_000
"""GitHub shows 1 MiB for a step and nothing at all beyond; the rest is for what else the step writes there."""

_MOST_ROWS = 200
_MOST_GAPS = 12
_LONGEST_BLOCK = 20_000
_LONGEST_CELL = 300
_SPECIAL = re.compile(r"[\\`*\[\]#|<>~@&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
"""What Markdown, GitHub's mentions and issues, formulas and HTML are made of; an underscore in a word is none of it."""


def markdown_text(
    info: RunInfo, results: Iterable[CaseResult], summary: RunSummary, *, most_bytes: int = MOST_BYTES
) -> str:
    """Counts, a table by operator and reason, failure blocks folded in, provenance; at most ``most_bytes`` of UTF-8.

    A check has the table of its own, and one block for all failures that are alike. Failures that do not fit are
    counted in its words, and the first of them come first.
    """
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    head = _head_of_check(info, ordered, summary) if is_check(info) else _head_of_run(info, ordered, summary)
    timings = [list(map(escaped, row)) for row in bench_rows(ordered)]
    head += _table(BENCH_HEAD, timings, left={0, 5}, word="timed case") if timings else []
    notes = [f"- {escaped(note.strip())}" for note in (*timed_lines(ordered), *bench_notes(ordered))]
    head += [*notes, ""] if notes else []
    rows = [_row([name, escaped(value)]) for name, value in provenance(info, summary)]
    foot = ["<details><summary>provenance</summary>", "", "| | |", "| --- | --- |", *rows, "", "</details>"]
    room = most_bytes - _size(head) - _size(foot) - 300
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
        table = [
            *_table(models[0], models[1:], most=len(models)),
            *(line for text in texts for line in (escaped(text), "")),
            *_table(operators[0], operators[1:]),
        ]
    elif tally.operators:
        head, *rows = status_cells(tally, none="")
        table = _table(head, [list(map(escaped, row)) for row in rows], left={0, len(head) - 1})
    else:
        table = []
    heading = [f"## {_mark(summary)} optest: {outcome_text(tally, summary)}", ""]
    skips = [f"- {count} × skipped: {escaped(skip_text(why))}" for why, count in tally.skips.most_common()]
    return [*heading, *_notes(info), *table, *_counted(skips, _MOST_ROWS)]


def _head_of_check(info: RunInfo, results: Sequence[CaseResult], summary: RunSummary) -> list[str]:
    """As on the terminal: a line for each operator, why cases were not run, what lies on one side."""
    lines = operator_lines(results)
    first, *rest = sum_up(info, lines, summary)
    told = [f"## {_mark(summary)} optest check: {escaped(first)}", ""]
    told += [line for each in rest for line in (escaped(each), "")]
    told += _notes(info)
    rows = [
        [escaped(each.operator), *(str(counts.total() or "") for counts in columns_of(each)), escaped(each.remark())]
        for each in sorted(folded(lines), key=lambda line: -line.failed.total())
    ]
    told += _table([*HEAD, ""], rows, left={0, len(HEAD)}) if rows else []
    reasons = [
        f"- {operators.total()} × skipped: {escaped(reason)} ({escaped(clip(', '.join(operators), 160))})"
        for reason, operators in gap_reasons(lines)
    ]
    told += _counted(reasons, _MOST_GAPS)
    biases = [
        f"- on one side of the true values: {escaped(which)}: {escaped(sentence(each))}"
        for which, each in leans(results)
    ]
    return [*told, *biases, ""] if biases else told


def _counted(reasons: Sequence[str], most: int) -> list[str]:
    """Items of a list, as many as ``most``."""
    if len(reasons) > most:
        reasons = [*reasons[:most], f"- and for {plural(len(reasons) - most, 'other reason')}"]
    return [*reasons, ""] if reasons else []


def _mark(summary: RunSummary) -> str:
    return "✅" if summary.exit_status == 0 else "❌"


def _notes(info: RunInfo) -> list[str]:
    return [line for note in info.notes for line in (f"> {escaped(note)}", "")]


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[int] = (0,),
    word: str = "operator",
    most: int = _MOST_ROWS,
) -> list[str]:
    """A table, the columns in ``left`` to the left; ``word`` is what a row is, of which ``most`` are shown."""
    lines = [_row(head), _row(["---" if place in left else "---:" for place in range(len(head))])]
    lines += map(_row, rows[:most])
    if len(rows) > most:
        lines += ["", f"and {plural(len(rows) - most, word)} more"]
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _failures(groups: Sequence[FailureGroup], room: int, info: RunInfo) -> list[str]:
    """As many failures as there is room for, and how many are left out."""
    lines: list[str] = []
    for shown, group in enumerate(groups):
        result = group.first
        reason = f" {result.reason.value}" if result.reason else ""
        more = f" and {len(group.others)} more like it" if group.others else ""
        title = f"{result.status.value.upper()}{reason}: {escaped(result.id)}{more}"
        text = group_block(group)
        if len(text) > _LONGEST_BLOCK:
            cut = len(text) - _LONGEST_BLOCK
            kept = text[-_LONGEST_BLOCK // 2 :]
            text = f"{text[: _LONGEST_BLOCK // 2]}\n… {plural(cut, 'character')} left out …\n{kept}"
        # more backticks than any line of the text has in a row, so that nothing in it ends the block
        fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
        entry = [f"<details><summary>{title}</summary>", "", f"{fence}text", text, fence, "", "</details>", ""]
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


def escaped(text: str) -> str:
    """Foreign text as text: one line, and no character of it is Markdown or HTML."""
    line = " ".join(clip(printable(without_ansi(text)), _LONGEST_CELL).split())
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", line)


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)

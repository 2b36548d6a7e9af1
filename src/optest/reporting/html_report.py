"""HTML report: one page with failures and pictures of wrong outputs, a searchable table of cases, and the environment.

The page loads nothing from a network. Its data are compressed JSON, which its script inserts as text, never as markup.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment

from optest.reporting.check_summary import in_order, is_check, operator_lines, sum_up
from optest.reporting.failure_groups import failure_block, failure_groups
from optest.reporting.figures import outcome_text, provenance
from optest.reporting.history import history_of, runs_until
from optest.reporting.patterns import tile_of
from optest.reporting.tally import Tally, in_plan_order, total_seconds
from optest.reporting.typography import clip, duration, number, printable
from optest.spec import (
    BAD_STATUSES,
    LIMIT,
    NO_MULTIPLE,
    PER_DOUBLING,
    CaseResult,
    Picture,
    RunInfo,
    RunSummary,
    Status,
    format_shape,
)

_MAX_TRENDS = 20
_PAGE = Path(__file__).parent / "html_page"


def html_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """Return the page as one text with style, script and data."""
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    tally = Tally()
    for result in ordered:
        tally.add(result)
    first, *rest = sum_up(info, operator_lines(ordered), summary) if is_check(info) else [outcome_text(tally, summary)]
    data = json.dumps(_page_data(ordered, tally), separators=(",", ":")).encode()
    style, script, page = ((_PAGE / f"page.{kind}").read_text("utf-8") for kind in ("css", "js", "html"))
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(page)
    return template.render(
        title=printable(first),
        well=summary.exit_status == 0,
        notes=[clip(printable(note), 300) for note in (*rest, *info.notes, *summary.notes)],
        facts=[(name, printable(value)) for name, value in provenance(info, summary)],
        trend=_trend(info, ordered),
        style=style,
        script=script,
        data=base64.b64encode(zlib.compress(data, 9)).decode(),
    )


def _trend(info: RunInfo, results: Sequence[CaseResult]) -> dict[str, list[tuple[int, float, str]]]:
    """Return the passes, times and largest errors of operators over this run and earlier ones, by a title.

    Each point has the index of the run, a value and its text. Without earlier runs, return {}.
    """
    runs = runs_until(info, results)
    if len(runs) < 2:
        return {}
    trend: dict[str, list[tuple[int, float, str]]] = {"passed": [], "time": []}
    for index, run in enumerate(runs):
        passed = sum(run.word(name) == Status.PASSED.value for name in run.results)
        spent = sum(result.seconds or 0.0 for of_case in run.results.values() for result in of_case)
        trend["passed"].append((index, passed / len(run.results), f"{passed} of {len(run.results)}"))
        trend["time"].append((index, spent, duration(spent)))
    indices = {run.info.run_id: index for index, run in enumerate(runs)}
    for (operator, _), by_run in islice(history_of(runs).errors.items(), _MAX_TRENDS):
        points = [(indices[run], used, number(used, 2)) for run, used in by_run.items() if math.isfinite(used)]
        trend[f"{printable(operator)}: error / allowance of passed cases"] = points
    return trend


def _page_data(results: Sequence[CaseResult], tally: Tally) -> dict[str, Any]:
    """Return the data of the page: cases as rows, pictures, reproduction commands, operators and groups of failures."""
    index = {id(result): number for number, result in enumerate(results)}
    # Texts are stored once, and rows have their numbers: a run of 20,000 cases has a few hundred different texts.
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(printable(text), len(words))

    groups: dict[str, list[Any]] = {}
    for group in failure_groups(results):
        members = [index[id(result)] for result in (group.first, *group.others)]
        groups.setdefault(group.first.operator, []).append({"members": members, "pattern": printable(group.pattern)})
    return {
        "scale": {"limit": LIMIT, "noMultiple": NO_MULTIPLE, "perDoubling": PER_DOUBLING},
        "statuses": [[status.value, status in BAD_STATUSES] for status in Status],
        "cases": [_case_row(result, word) for result in results],
        "pictures": {
            index[id(result)]: [_picture(picture, result) for picture in result.verdict.pictures]
            for result in results
            if result.verdict.pictures
        },
        "repro": {index[id(result)]: printable(result.repro) for result in results if result.repro},
        "operators": [
            {
                "name": word(name),
                "counts": [operator.statuses[status] for status in Status],
                "reasons": operator.reasons_text(),
                "spent": operator.spent_s,
                "groups": groups.get(name, []),
            }
            for name, operator in tally.worst_first()
        ],
        "words": list(words),
    }


def _case_row(result: CaseResult, word: Any) -> list[Any]:
    """Return id, operator, status, reason, dtypes, error / allowance, seconds and text of a case.

    ``word`` returns the number of a text. The page's script has the same order.
    """
    used = [measure.worst_used for measure in result.verdict.measures if measure.worst_used is not None]
    worst = max(filter(math.isfinite, used), default=None)
    if result.status in BAD_STATUSES:
        text = failure_block(result)
    else:
        rules = [measure.rule for measure in result.verdict.measures if measure.rule]
        rule_lines = dict.fromkeys(f"rule: {rule.text or rule.name}" for rule in rules)
        text = "\n".join(filter(None, (result.verdict.message, *rule_lines)))
    return [
        printable(result.id),
        word(result.operator),
        list(Status).index(result.status),
        word(result.reason.value if result.reason else ""),
        word(", ".join(dict.fromkeys(result.dtypes))),
        # Three digits suffice for the table, and keep the page small.
        None if worst is None else float(f"{worst:.3g}"),
        float(f"{total_seconds(result):.3g}"),
        word(text),
    ]


def _picture(picture: Picture, result: CaseResult) -> dict[str, Any]:
    """Return the data of a picture, with the shape, locations and tiles of its output."""
    measure = next((measure for measure in result.verdict.measures if measure.output == picture.output), None)
    return {
        **asdict(picture),
        "output": printable(picture.output),
        "shape": format_shape(measure.shape) if measure else "",
        "where": printable(measure.where) if measure else "",
        "isOff": bool(measure and measure.mismatched),
        "tile": tile_of(picture),
        "grid": [list(row) for row in picture.grid()],
        "levels": "",  # the same as the grid, encoded
    }

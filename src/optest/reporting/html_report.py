"""The report as one page for a browser: what failed and a picture of it, all cases to search, where it ran.

The page asks nothing of any network. What it shows is data, compressed; its script makes text of it, never markup.
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
from optest.reporting.failure_groups import block, failure_groups
from optest.reporting.figures import outcome_text, provenance
from optest.reporting.history import history_of, runs_until
from optest.reporting.patterns import tile_of
from optest.reporting.tally import Tally, in_plan_order, spent_s
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

_MOST_TRENDS = 20
_PAGE = Path(__file__).parent / "html_page"


def html_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """One file with its style, script and data in it."""
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    tally = Tally()
    for result in ordered:
        tally.add(result)
    first, *rest = sum_up(info, operator_lines(ordered), summary) if is_check(info) else [outcome_text(tally, summary)]
    data = json.dumps(_data(ordered, tally), separators=(",", ":")).encode()
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
    """Passes, times and the largest errors of operators over the runs: place of the run, value, and that in words."""
    runs = runs_until(info, results)
    if len(runs) < 2:
        return {}
    trend: dict[str, list[tuple[int, float, str]]] = {"passed": [], "time": []}
    for place, run in enumerate(runs):
        passed = sum(run.word(name) == Status.PASSED.value for name in run.results)
        spent = sum(each.seconds or 0.0 for rounds in run.results.values() for each in rounds)
        trend["passed"].append((place, passed / len(run.results), f"{passed} of {len(run.results)}"))
        trend["time"].append((place, spent, duration(spent)))
    places = {run.info.run_id: place for place, run in enumerate(runs)}
    for (operator, _), by_run in islice(history_of(runs).errors.items(), _MOST_TRENDS):
        points = [(places[run], used, number(used, 2)) for run, used in by_run.items() if math.isfinite(used)]
        trend[f"{printable(operator)}: error / allowance of what passed"] = points
    return trend


def _data(results: Sequence[CaseResult], tally: Tally) -> dict[str, Any]:
    """Cases as rows of numbers that name words of lists: a run of 20,000 cases has a few hundred words."""
    place = {id(result): number for number, result in enumerate(results)}
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(printable(text), len(words))

    groups: dict[str, list[Any]] = {}
    for group in failure_groups(results):
        members = [place[id(each)] for each in (group.first, *group.others)]
        groups.setdefault(group.first.operator, []).append({"members": members, "pattern": printable(group.pattern)})
    return {
        "scale": {"limit": LIMIT, "noMultiple": NO_MULTIPLE, "perDoubling": PER_DOUBLING},
        "statuses": [[status.value, status in BAD_STATUSES] for status in Status],
        "cases": [_row(result, word) for result in results],
        "pictures": {
            place[id(result)]: [_picture(each, result) for each in result.verdict.pictures]
            for result in results
            if result.verdict.pictures
        },
        "again": {place[id(result)]: printable(result.repro) for result in results if result.repro},
        "operators": [
            {
                "name": word(name),
                "counts": [each.statuses[status] for status in Status],
                "reasons": ", ".join(f"{count} {reason}" for reason, count in each.reasons.most_common()),
                "spent": each.spent_s,
                "groups": groups.get(name, []),
            }
            for name, each in tally.worst_first()
        ],
        "words": list(words),
    }


def _row(result: CaseResult, word: Any) -> list[Any]:
    """Id, operator, status, reason, dtypes, share of the allowance, seconds, what is to be said of it."""
    used = [each.worst_used for each in result.verdict.measures if each.worst_used is not None]
    worst = max(filter(math.isfinite, used), default=None)
    return [
        printable(result.id),
        word(result.operator),
        list(Status).index(result.status),
        word(result.reason.value if result.reason else ""),
        word(", ".join(dict.fromkeys(result.dtypes))),
        None if worst is None else float(f"{worst:.3g}"),
        float(f"{spent_s(result):.3g}"),
        word(block(result) if result.status in BAD_STATUSES else _told(result)),
    ]


def _told(result: CaseResult) -> str:
    """What there is to say of a case that is well: why it was left out, by which rule it was judged."""
    rules = dict.fromkeys(f"rule: {each.rule.text or each.rule.name}" for each in result.verdict.measures if each.rule)
    return "\n".join(filter(None, (result.verdict.message, *rules)))


def _picture(picture: Picture, result: CaseResult) -> dict[str, Any]:
    measure = next((each for each in result.verdict.measures if each.output == picture.output), None)
    return {
        **asdict(picture),
        "output": printable(picture.output),
        "shape": format_shape(measure.shape) if measure else "",
        "where": printable(measure.where) if measure else "",
        "isOff": bool(measure and measure.mismatched),
        "tile": tile_of(picture),
        "grid": [list(row) for row in picture.grid()],
        "levels": "",
    }

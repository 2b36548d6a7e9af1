"""Runs of the same calls beside each other: how each ended, and with what kind of message it was refused."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from optest.errors import plural
from optest.reporting.bench_table import seconds_text
from optest.reporting.csv_report import csv_cell
from optest.reporting.typography import clip, columns
from optest.spec import CaseResult, Evidence, Status
from optest.store import Journal

MISSING = "n/a"
ALIKE, OTHER_KIND, DIFFERENT, ALONE = "yes", "other kind", "no", MISSING
"""Whether all backends that answered did the same; refused for another kind of reason; did not; or one alone did."""
_MOST_ROWS = 40

KINDS = {
    "unsupported": r"NotImplemented|not (yet )?(implemented|supported)|unsupported|find an implementation",
    "dtype": r"\bdtypes?\b|data ?types?\b|(scalar|element) types?\b|not defined for|long tensor|or complex|promot",
    "index": r"\bind(ex|ices)\b.*\b(bounds|range)\b|\btarget\b.*\bbounds\b|\bis -?\d+ at \[",
    "dimension": r"\bax[ei]s\b|\branks?\b|\bn?dims?\d?\b.*\b(range|bounds|once|to|least|unique)\b|\bperm|\d-?D\b"
    r"|\d-dim|\bdimension out of range|\d dimensions?\b|dimension or more|(duplicate|unique|repeated).*\bdim",
    "shape": r"\d+x\d+|shape|\bsizes?\b|broadcast|mismatch|incompatible|\bmatch|elements?\b|channels|rows\b"
    r"|columns\b|dimension|same reduction",
    "attribute": r"must|should|expect|invalid|negative|positive|greater|required|cannot|divisor|divi[ds]|value|zero"
    r"|bounds",
}
"""The words of each kind, as a regular expression; of several that fit, the first counts. Else it is ``other``."""

_PATTERNS = {kind: re.compile(words, re.IGNORECASE | re.DOTALL) for kind, words in KINDS.items()}
_PLACES = re.compile(r"\S*/\S*|\S*::\S*|\[\w+Error\]")
"""Files and names of C++, which say where an error was raised."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """``rows`` have the call, a cell for each of ``targets``, and whether these are consistent."""

    targets: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def differs(self) -> bool:
        return any(row[-1] == DIFFERENT for row in self.rows)


def side_by_side(journals: Sequence[Journal]) -> SideBySide:
    """A row for each call that was asked in any of the runs, in the order of the first."""
    targets = [journal.info.target if journal.info else "?" for journal in journals]
    names = [
        f"{target} ({journal.info.run_id})" if journal.info and targets.count(target) > 1 else target
        for target, journal in zip(targets, journals, strict=True)
    ]
    by_run = [{result.id: result for result in journal.results} for journal in journals]
    calls = dict.fromkeys(call for results in by_run for call in results)
    rows = [(call, [results.get(call) for results in by_run]) for call in calls]
    return SideBySide(tuple(names), tuple((call, *map(_cell, found), _consistency(found)) for call, found in rows))


def _cell(result: CaseResult | None) -> str:
    if result is None or result.status is Status.SKIPPED:
        return MISSING
    if (kind := _refused(result)) is not None:
        return f"refused: {kind}"
    time = result.benchmark.time if result.benchmark else None
    if result.status is Status.PASSED:
        return "passed" if time is None else seconds_text(time.median_s)
    return f"{result.status.value}{f' {result.reason.value}' if result.reason else ''}"


def _refused(result: CaseResult) -> str | None:
    """The kind of the message of a call that was refused as it had to be, else None."""
    if result.verdict.evidence is not Evidence.RAISED_AS_EXPECTED:
        return None
    return refusal_kind(result.verdict.message.removeprefix("refused: "))


def _consistency(found: Sequence[CaseResult | None]) -> str:
    ran = [each for each in found if each is not None and each.status is not Status.SKIPPED]
    if len(ran) < 2:
        return ALONE
    if len({(each.status, each.reason) for each in ran}) > 1:
        return DIFFERENT
    return ALIKE if len(set(map(_refused, ran))) == 1 else OTHER_KIND


def text_of(table: SideBySide, *, verbose: bool) -> str:
    """The calls that were not answered alike, all with ``verbose``, and how many there are of each kind."""
    shown = [row for row in table.rows if verbose or row[-1] in (DIFFERENT, OTHER_KIND)]
    shown.sort(key=lambda row: row[-1] != DIFFERENT)
    kept = shown if verbose else shown[:_MOST_ROWS]
    head = ["call", *table.targets, "consistent"]
    lines = columns([head, *([clip(row[0], 70), *row[1:]] for row in kept)], left=frozenset(range(len(head))))
    counts = Counter(row[-1] for row in table.rows)
    more = [f"and {plural(len(shown) - len(kept), 'call')} more; -v shows all"] if len(shown) > len(kept) else []
    sums = (
        f"{plural(len(table.rows), 'call')}: {counts[ALIKE]} alike, {counts[OTHER_KIND]} refused with another kind of "
        f"message, {counts[DIFFERENT]} not alike, {counts[ALONE]} answered by fewer than two"
    )
    return "\n".join([*(lines if kept else []), *more, sums]) + "\n"


def rows_as_csv(table: SideBySide) -> str:
    """A line for each call, with the columns of the table."""
    out = io.StringIO()
    lines = [("call", *table.targets, "consistent"), *table.rows]
    csv.writer(out, lineterminator="\n").writerows([csv_cell(cell) for cell in line] for line in lines)
    return out.getvalue()


def refusal_kind(message: str) -> str:
    """The kind of an error, given as ``TypeError: text``: a key of :data:`KINDS`, or ``other``."""
    text = _PLACES.sub("", message)
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), "other")

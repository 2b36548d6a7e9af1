"""Comparison of runs of the same calls: the result of each, and the kind of message of refused ones."""

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
# Whether all backends that ran a call had the same result: yes, all refused it but with another kind of message, no, or
# fewer than two ran it.
ALIKE, OTHER_KIND, DIFFERENT, ALONE = "yes", "other kind", "no", MISSING
_MAX_ROWS = 40

# Words of each kind of error message, as a regular expression. The first kind that fits counts; without one, the kind
# is `other`.
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

_PATTERNS = {kind: re.compile(words, re.IGNORECASE | re.DOTALL) for kind, words in KINDS.items()}
# Paths and names of C++ in a message: they are the location of the error, not its kind.
_LOCATIONS = re.compile(r"\S*/\S*|\S*::\S*|\[\w+Error\]")


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Table with a row for each call: its id, a cell for each of ``targets``, and whether the cells are consistent."""

    targets: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def differs(self) -> bool:
        return any(row[-1] == DIFFERENT for row in self.rows)


def side_by_side(journals: Sequence[Journal]) -> SideBySide:
    """Return the table of all calls of the runs, in the order of the first run.

    Targets of several runs have their run ids in parentheses.
    """
    targets = [journal.info.target if journal.info else "?" for journal in journals]
    names = [
        f"{target} ({journal.info.run_id})" if journal.info and targets.count(target) > 1 else target
        for target, journal in zip(targets, journals, strict=True)
    ]
    by_run = [{result.id: result for result in journal.results} for journal in journals]
    calls = dict.fromkeys(call for results in by_run for call in results)
    rows = [(call, [results.get(call) for results in by_run]) for call in calls]
    return SideBySide(
        tuple(names), tuple((call, *map(_cell_text, of_call), _consistency(of_call)) for call, of_call in rows)
    )


def _cell_text(result: CaseResult | None) -> str:
    """Return the kind of a refusal, the time of a timed pass, else status and reason; ``n/a`` without a result."""
    if result is None or result.status is Status.SKIPPED:
        return MISSING
    if (kind := _kind_of_refusal(result)) is not None:
        return f"refused: {kind}"
    time = result.benchmark.time if result.benchmark else None
    if result.status is Status.PASSED:
        return "passed" if time is None else seconds_text(time.median_s)
    return f"{result.status.value}{f' {result.reason.value}' if result.reason else ''}"


def _kind_of_refusal(result: CaseResult) -> str | None:
    """Return the kind of the message of a call that was refused as expected, else None."""
    if result.verdict.evidence is not Evidence.RAISED_AS_EXPECTED:
        return None
    return refusal_kind(result.verdict.message)


def _consistency(results: Sequence[CaseResult | None]) -> str:
    ran = [result for result in results if result is not None and result.status is not Status.SKIPPED]
    if len(ran) < 2:
        return ALONE
    if len({(result.status, result.reason) for result in ran}) > 1:
        return DIFFERENT
    return ALIKE if len(set(map(_kind_of_refusal, ran))) == 1 else OTHER_KIND


def comparison_text(table: SideBySide, *, verbose: bool) -> str:
    """Return the rows of calls with different results, all rows with ``verbose``, and a line with counts."""
    shown = [row for row in table.rows if verbose or row[-1] in (DIFFERENT, OTHER_KIND)]
    shown.sort(key=lambda row: row[-1] != DIFFERENT)
    kept = shown if verbose else shown[:_MAX_ROWS]
    head = ["call", *table.targets, "consistent"]
    lines = columns([head, *([clip(row[0], 70), *row[1:]] for row in kept)], left=frozenset(range(len(head))))
    counts = Counter(row[-1] for row in table.rows)
    more = [f"and {plural(len(shown) - len(kept), 'call')} more; -v shows all"] if len(shown) > len(kept) else []
    sums = (
        f"{plural(len(table.rows), 'call')}: {counts[ALIKE]} consistent, {counts[OTHER_KIND]} refused with different "
        f"kinds of messages, {counts[DIFFERENT]} inconsistent, {counts[ALONE]} run by fewer than two targets"
    )
    return "\n".join([*(lines if kept else []), *more, sums]) + "\n"


def rows_as_csv(table: SideBySide) -> str:
    """Return the table as CSV text."""
    out = io.StringIO()
    lines = [("call", *table.targets, "consistent"), *table.rows]
    csv.writer(out, lineterminator="\n").writerows([csv_cell(cell) for cell in line] for line in lines)
    return out.getvalue()


def refusal_kind(message: str) -> str:
    """Return the kind of an error ``TypeError: text``: a key of :data:`KINDS`, or ``other``."""
    text = _LOCATIONS.sub("", message)
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), "other")

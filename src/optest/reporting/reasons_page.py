"""The page docs/reasons.md, made from the words that the reports themselves use.

``python -m optest.reporting.reasons_page`` prints it.
"""

from __future__ import annotations

import re
import sys

from optest.reporting.meanings import MEANINGS, STATUS_MEANINGS, Meaning
from optest.spec import BAD_STATUSES, Reason, Status

__all__ = ["REPORTED_BY_BACKENDS", "prose", "reasons_page"]

REPORTED_BY_BACKENDS: frozenset[Reason] = frozenset()
"""Reasons that optest itself does not look for yet: a backend that finds out raises them as a ``Fault``."""

_HEAD = """\
# Reasons

<!-- Made by `optest.reporting.reasons_page`; edit src/optest/reporting/meanings.py, not this file. -->

Every case that is not well has a *status*, by which reports are grouped, and a *reason*, on which people act. A report
shows the reason beside the case and, under a failure, what to try.

A status is the usual one for its reason. A command that exits with another status than 0 is an `error`, for
example, while a worker that ends in the middle of a case has `crashed`, both with the reason EXIT_CODE.
"""

_STATUSES = """\
## Statuses

| status | meaning | exit status of the run |
|---|---|---|
"""

_STATUS_WORDS = {
    Status.PASSED: "shown to be right, with what the pass rests on",
    Status.FAILED: "shown to be wrong",
    Status.ERROR: "no answer that could be judged",
    Status.CRASHED: "a process or a device went down",
    Status.TIMEOUT: "no answer came in time",
    Status.SKIPPED: "not run, and why",
    Status.XFAILED: "went wrong in the way that the plan says it does",
    Status.XPASSED: "passed, though the plan says that it goes wrong",
    Status.SUSPECT: "passed after a retry, or in a way that proves little",
    Status.UNCHECKED: "ran, but there is nothing to compare it with",
}


def reasons_page() -> str:
    """The whole page, with a newline at its end."""
    parts = [_HEAD, _STATUSES + "\n".join(map(_status_row, Status)) + "\n"]
    parts += [_section(reason.value, _status_of(reason), MEANINGS[reason]) + _more(reason) for reason in Reason]
    parts += [_section(status.value, "", STATUS_MEANINGS[status]) for status in STATUS_MEANINGS]
    return "\n".join(parts)


def _status_row(status: Status) -> str:
    ends = {True: "1", False: "0"}[status in BAD_STATUSES]
    if status is Status.SKIPPED:
        ends = "0; 5 if every case is skipped"
    return f"| `{status.value}` | {_STATUS_WORDS[status]} | {ends} |"


def _status_of(reason: Reason) -> str:
    found_by = "; reported by backends that look for it" if reason in REPORTED_BY_BACKENDS else ""
    return f"Status `{reason.status.value}`{found_by}.\n\n"


def _section(title: str, status: str, meaning: Meaning) -> str:
    return (
        f"## {title}\n\n{status}"
        f"- **What happened:** {prose(meaning.sentence)}.\n"
        f"- **Why it matters:** {prose(meaning.matters)}.\n"
        f"- **What to try:** {prose(meaning.remedy)}.\n"
    )


def _more(reason: Reason) -> str:
    return f"\n[More about {reason.value}](reasons/{reason.value}.md): an example, and what to try in which order.\n"


def prose(words: str) -> str:
    """A sentence of the reports as one of the page: a capital at the start, flags in code."""
    text = re.sub(r"(?<!\S)(--[a-z-]+(?: none)?)", r"`\1`", words)
    return text if text.startswith(("optest", "`")) else text[0].upper() + text[1:]


if __name__ == "__main__":
    sys.stdout.write(reasons_page())

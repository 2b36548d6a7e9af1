"""Print the page docs/reasons.md, built from the sentences of the reports: ``make docs``."""

from __future__ import annotations

import re
import sys

from optest.reporting.meanings import MEANINGS, STATUS_MEANINGS, Meaning
from optest.spec import BAD_STATUSES, Reason, Status

_HEAD = """\
# Reasons

<!-- Made by tools/reasons_page.py; edit src/optest/reporting/meanings.py, not this file. -->

Every case that did not pass has a *status*, by which reports group it, and a *reason*. A report shows the reason beside
the case and, under a failure, what to try. Each reason has a page: what happened, why it matters, what to try, mostly
with an example.

| reason | usual status | what happened |
|---|---|---|
"""

_STATUSES = """
A status may differ from the usual one of its reason. A command that exits with another status than 0 is an `error`; a
worker that ends in the middle of a case has `crashed`. Both have the reason EXIT_CODE.

## Statuses

| status | meaning | exit status of the run |
|---|---|---|
"""

_WITHOUT_REASON = """
These statuses need no reason:

| status | what happened | what to try |
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
    """Return the whole page, with a newline at its end."""
    reasons = [_reason_row(reason, MEANINGS[reason]) for reason in Reason]
    statuses = [_status_row(status) for status in Status]
    without_reason = [_meaning_row(status, meaning) for status, meaning in STATUS_MEANINGS.items()]
    return "".join([_HEAD, *reasons, _STATUSES, *statuses, _WITHOUT_REASON, *without_reason])


def _reason_row(reason: Reason, meaning: Meaning) -> str:
    link = f"[{reason.value}](reasons/{reason.value}.md)"
    return f"| {link} | `{reason.status.value}` | {prose(meaning.sentence)} |\n"


def _meaning_row(status: Status, meaning: Meaning) -> str:
    return f"| `{status.value}` | {prose(meaning.sentence)} | {prose(meaning.remedy)} |\n"


def _status_row(status: Status) -> str:
    ends = {True: "1", False: "0"}[status in BAD_STATUSES]
    if status is Status.SKIPPED:
        ends = "0; 5 if every case is skipped"
    return f"| `{status.value}` | {_STATUS_WORDS[status]} | {ends} |\n"


def prose(words: str) -> str:
    """A sentence of the reports as one of the page: a capital at the start, flags in code."""
    text = re.sub(r"(?<!\S)(--[a-z-]+(?: none)?)", r"`\1`", words)
    return text if text.startswith(("optest", "`")) else text[0].upper() + text[1:]


if __name__ == "__main__":
    sys.stdout.write(reasons_page())

"""``optest report --trend``: several runs held against each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import UnknownName, UsageError
from optest.reporting.trend import trend_data, trend_lines, trend_of
from optest.settings import resolve
from optest.store import Journal, RunDirectory, check_writable, read_journal, write_atomically

__all__ = ["trend"]

_MOST_RUNS = 20
_FORMATS = ("terminal", "json")


def trend(runs: Sequence[str], form: str, output: str | None, given: Mapping[str, Any]) -> tuple[str, int]:
    """What changed between these runs; without any, between the latest one and those of the same plan and target.

    The number is 1 if something got worse, else 0.

    Raises:
        UnknownName: if there is no such run, or no such form of a trend.
        UsageError: for fewer than two runs, or if ``output`` cannot be written.
    """
    if form not in _FORMATS:
        raise UnknownName("format of a trend", form, _FORMATS)
    root = Path(resolve(given)["runs_dir"])
    if output is not None:
        check_writable(Path(output))
    journals = [read_journal(RunDirectory.open(root, run).journal_path) for run in runs] if runs else _like_latest(root)
    for run, journal in zip(runs, journals, strict=False):
        if journal.info is None:
            raise UsageError(f"run {run} does not say what it was asked, so it cannot be compared")
    different = {journal.info.run_id for journal in journals if journal.info is not None}
    if len(different) < 2:
        found = "there is one" if different else "there is none"
        raise UsageError(
            f"a trend needs two runs at least, but {found}\n"
            "  name them: optest report --trend RUN RUN (ids, their beginnings, folders or journals)"
        )
    found_trend = trend_of(journals)
    if form == "json":
        text = json.dumps(trend_data(found_trend), indent=1) + "\n"
    else:
        text = "\n".join(trend_lines(found_trend)) + "\n"
    if output is not None:
        write_atomically(Path(output), text.encode())
    return text, int(found_trend.got_worse)


def _like_latest(root: Path) -> list[Journal]:
    """The latest run and those before it that asked the same of the same target."""
    found: list[Journal] = []
    for directory in reversed(RunDirectory.all(root)):
        if not directory.journal_path.is_file():
            continue
        journal = read_journal(directory.journal_path)
        if journal.info is None:
            continue
        if found and _asked(journal) != _asked(found[0]):
            continue
        found.append(journal)
        if len(found) == _MOST_RUNS:
            break
    return found


def _asked(journal: Journal) -> tuple[object, ...]:
    assert journal.info is not None
    options = journal.info.options
    return (journal.info.plan, journal.info.target, *(_plain(options.get(name)) for name in _WHAT_IS_ASKED))


_WHAT_IS_ASKED = ("command", "source", "compile_backend", "backward", "reference_dtype")


def _plain(option: object) -> object:
    """What was not stated is what is stated to be off."""
    return None if option in ("", "eager", False) else option

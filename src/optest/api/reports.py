"""``optest report`` and ``optest schema``: what can be made afterwards, from a journal or from the models."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optest.reporting.from_journal import report_from_journal
from optest.reporting.page import wants_color
from optest.settings import environment, resolve
from optest.store import RunDirectory, check_writable, read_journal, write_atomically

__all__ = ["report", "schema"]


def report(run: str, form: str, output: str | None, given: Mapping[str, Any]) -> str:
    """Return the report of a run as text, and write it to ``output`` if that is given.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if ``output`` cannot be written.
    """
    settings = resolve(given)
    if output is not None:
        check_writable(Path(output))
    journal = read_journal(RunDirectory.open(Path(settings["runs_dir"]), run).journal_path)
    color = wants_color(sys.stdout, no_color=settings["no_color"] or output is not None, variables=environment())
    text = report_from_journal(journal, form, verbosity=settings["verbose"] - settings["quiet"], color=color)
    if output is not None:
        write_atomically(Path(output), text.encode())
    return text


def schema(what: str) -> str:
    """The JSON Schema of ``plan``, ``report`` or ``journal`` as text."""
    return json.dumps(_schema(what), indent=2)


def _schema(what: str) -> Mapping[str, Any]:
    if what == "plan":
        from optest.plan import plan_schema

        return plan_schema()
    if what == "report":
        from optest.reporting.schema import REPORT_SCHEMA

        return REPORT_SCHEMA
    from optest.store import journal_schema

    return journal_schema()

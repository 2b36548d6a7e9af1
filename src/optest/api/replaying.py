"""``optest replay``: one case of a journal, run again exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optest.api import bootstrap
from optest.api.asking import Asked, configure
from optest.api.listing import unknown_among
from optest.api.running import RunOutcome, run_cases
from optest.backends import backend_manager
from optest.core.wire import case_from_wire
from optest.errors import UsageError
from optest.operators import operators
from optest.settings import resolve
from optest.spec import CaseResult
from optest.store import Journal, RunDirectory, read_journal

__all__ = ["find_result", "replay"]

_HINT = "; a replay is a run too, an earlier one is named with --run"


def replay(result: str, run: str, given: Mapping[str, Any]) -> RunOutcome:
    """Run the case of one result again: same inputs, same backend unless ``given`` names another.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if there is no such result, or it fits several different cases.
    """
    bootstrap()
    settings = resolve(given)
    directory = RunDirectory.open(Path(settings["runs_dir"]), run)
    journal = read_journal(directory.journal_path)
    found = find_result(journal, result, f"run {directory.id}{_HINT if run == 'latest' else ''}")
    case = case_from_wire(found.case, operators.get)
    driver = backend_manager.select(settings["backend"] or found.backend, settings["chip"] or found.chip)
    if not settings["torch_device"] and found.device and driver.name == "torch":
        settings = resolve({**given, "torch_device": found.device})
    configure(driver, settings)
    target = backend_manager.target(driver, settings["chip"] or found.chip)
    timeout_s = settings["timeout"] if settings.stated("timeout") else case.timeout_s
    case = dataclasses.replace(case, backend=target, timeout_s=timeout_s)
    return run_cases(Asked(settings=settings, document=None, driver=driver, target=target, cases=[case]))


def find_result(journal: Journal, wanted: str, where: str = "") -> CaseResult:
    """Return the result with this id, number (counted from 1) or beginning of its case key; the last of several rounds.

    Raises:
        UsageError: if there is none, or the beginning of a key fits different cases.
    """
    if wanted.isdigit() and 1 <= int(wanted) <= len(journal.results):
        return journal.results[int(wanted) - 1]
    by_id = [each for each in journal.results if each.id == wanted]
    if by_id:
        return by_id[-1]
    by_key = [each for each in journal.results if len(wanted) >= 4 and each.key.startswith(wanted)]
    if len({each.key for each in by_key}) > 1:
        raise UsageError(f"result {wanted!r} fits {len(by_key)} cases: {', '.join(each.id for each in by_key)}")
    if by_key:
        return by_key[-1]
    error = unknown_among("result", wanted, [each.id for each in journal.results], "`optest report -v`")
    raise UsageError(f"{error}\n  at {where}" if where else str(error))

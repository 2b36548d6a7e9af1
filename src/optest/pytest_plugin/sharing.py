"""Shared executions under ``pytest -n``: workers run one item of each execution and send the reports of all.

xdist distributes items freely, and its workers do not know of each other. So duplicates of an item are hidden from
xdist; their reports are attached to the item's report, and the controller reports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from optest.api import collecting
from optest.pytest_plugin.nodes import WRONG_REQUEST, CaseItem, Results

DIRECTORIES = pytest.StashKey[list[Path]]()
EXPECTED = pytest.StashKey[Mapping[str, bool]]()
"""Labels of the expectations for all cases of the session, each with whether it covers a case."""
_EXPECTED = "optest_expected"
_SHARED = "optest_shared"
_OUTPUT = "optest_runs"
_WRONG = "optest_wrong_request"
_OF_ONE_ITEM = ("skip", "skipif", "xfail")


def hide_duplicates(session: pytest.Session, results: Results) -> None:
    """Keep one item of each execution in a worker's list, and items with marks of skips or expected failures."""
    hidden: set[int] = set()
    for items in results.sharing():
        # A conftest.py may have set these marks for this very item; marks of a file are part of the result.
        alike = [item for item in items if not any(mark.name in _OF_ONE_ITEM for mark in item.iter_markers())]
        if len(alike) > 1:
            alike[0].duplicates = alike[1:]
            hidden.update(map(id, alike[1:]))
    session.items[:] = [item for item in session.items if id(item) not in hidden]


def attach(item: CaseItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach the reports of an item's duplicates to its report."""
    if not item.duplicates or not (call.when == "call" or (call.when == "setup" and not report.passed)):
        return
    hook, config = item.ihook, item.config
    shared = []
    for duplicate in item.duplicates:
        calls = [call]
        if call.when == "call":
            calls = [
                pytest.CallInfo.from_call(_do_nothing, "setup"),
                pytest.CallInfo.from_call(duplicate.runtest, "call"),  # compares the shared outputs for this case
                pytest.CallInfo.from_call(_do_nothing, "teardown"),
            ]
        for phase in calls:
            phase_report = hook.pytest_runtest_makereport(item=duplicate, call=phase)
            shared.append(hook.pytest_report_to_serializable(config=config, report=phase_report))
    setattr(report, _SHARED, shared)


def _do_nothing() -> None:
    """Do nothing: a case has no fixtures."""


class Controller:
    """The plug-in of xdist's controller that reports duplicates after the item that ran for them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        hook = config.hook
        for data in getattr(report, _SHARED, ()):
            shared = hook.pytest_report_from_serializable(config=config, data=data)
            shared.node = getattr(report, "node", None)
            if shared.when == "setup":
                self._session.testscollected += 1  # xdist did not count it
            hook.pytest_runtest_logreport(report=shared)


def hand_over(config: pytest.Config, directories: Sequence[Path], expected: Mapping[str, bool]) -> None:
    """Store folders of runs, expectations and a usage error for the controller, or for the summary of this process."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[_OUTPUT] = [str(path.absolute()) for path in directories]
        config.workeroutput[_EXPECTED] = dict(expected)
        config.workeroutput[_WRONG] = config.stash.get(WRONG_REQUEST, "")
    else:
        config.stash.setdefault(DIRECTORIES, []).extend(directories)
        config.stash.setdefault(EXPECTED, expected)


def take_over(node: Any) -> None:
    """Store the output of :func:`hand_over` of a worker for the summary."""
    output = getattr(node, "workeroutput", {})  # a crashed worker has none
    node.config.stash.setdefault(DIRECTORIES, []).extend(map(Path, output.get(_OUTPUT, ())))
    if _EXPECTED in output:
        node.config.stash[EXPECTED] = output[_EXPECTED]
    node.config.stash.setdefault(WRONG_REQUEST, output.get(_WRONG, ""))


def join_runs(config: pytest.Config) -> None:
    """Join the runs of the workers to one, so that reports and trends have the session as a whole."""
    parts = config.stash.get(DIRECTORIES, [])
    parts[:] = collecting.joined_runs(parts)

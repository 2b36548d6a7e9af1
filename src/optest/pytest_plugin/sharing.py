"""Shared executions under ``pytest -n``: workers are asked for one item of each, and what it tells is told for all.

xdist gives items to its workers as it likes, and these know nothing of each other. So the items that share an execution
with an earlier one are not offered to it; their reports travel with that one's, and the controller tells them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optest.api import collecting
from optest.pytest_plugin.nodes import WRONG_REQUEST

if TYPE_CHECKING:
    from optest.pytest_plugin.nodes import CaseItem
    from optest.pytest_plugin.results import Results

DIRECTORIES = pytest.StashKey[list[Path]]()
EXPECTED = pytest.StashKey[Mapping[str, bool]]()
"""Lines of expectations that are about all of the session's cases."""
_EXPECTED = "optest_expected"
_SHARED = "optest_shared"
_OUTPUT = "optest_runs"
_WRONG = "optest_wrong_request"
_OF_ONE_ITEM = ("skip", "skipif", "xfail")


def hide_duplicates(session: pytest.Session, results: Results) -> None:
    """Leave one item of each execution in a worker's list, and those that pytest has to look at, each by itself."""
    hidden: set[int] = set()
    for items in results.sharing():
        # a conftest.py may skip this very item, or say that it may fail; the words of a file are told by the result
        alike = [item for item in items if not any(mark.name in _OF_ONE_ITEM for mark in item.iter_markers())]
        if len(alike) > 1:
            alike[0].duplicates = alike[1:]
            hidden.update(map(id, alike[1:]))
    session.items[:] = [item for item in session.items if id(item) not in hidden]


def attach(item: CaseItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Let the report of an item carry those of the items that it stands for."""
    others = item.duplicates
    if not others or not (call.when == "call" or (call.when == "setup" and not report.passed)):
        return
    hook, config = item.ihook, item.config
    shared = []
    for other in others:
        calls = [call]
        if call.when == "call":
            calls = [
                pytest.CallInfo.from_call(_nothing, "setup"),
                pytest.CallInfo.from_call(other.runtest, "call"),  # its own verdict on what was executed
                pytest.CallInfo.from_call(_nothing, "teardown"),
            ]
        for each in calls:
            made = hook.pytest_runtest_makereport(item=other, call=each)
            shared.append(hook.pytest_report_to_serializable(config=config, report=made))
    setattr(report, _SHARED, shared)


def _nothing() -> None:
    """No fixture belongs to a case."""


class Controller:
    """The side of xdist that prints: a duplicate is reported when the item that stands for it has reported."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        hook = config.hook
        for data in getattr(report, _SHARED, ()):
            told = hook.pytest_report_from_serializable(config=config, data=data)
            told.node = getattr(report, "node", None)
            if told.when == "setup":
                self._session.testscollected += 1  # it was not among those that xdist knew
            hook.pytest_runtest_logreport(report=told)


def hand_over(config: pytest.Config, directories: Sequence[Path], expected: Mapping[str, bool]) -> None:
    """Say where the runs lie, and what kept them from being: to the controller, or to who sums up in this process."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[_OUTPUT] = [str(path.absolute()) for path in directories]
        config.workeroutput[_EXPECTED] = dict(expected)
        config.workeroutput[_WRONG] = config.stash.get(WRONG_REQUEST, "")
    else:
        config.stash.setdefault(DIRECTORIES, []).extend(directories)
        config.stash.setdefault(EXPECTED, expected)


def take_over(node: Any) -> None:
    """Take what a worker has handed over; one that died has not."""
    output = getattr(node, "workeroutput", {})
    node.config.stash.setdefault(DIRECTORIES, []).extend(map(Path, output.get(_OUTPUT, ())))
    if _EXPECTED in output:
        node.config.stash[EXPECTED] = output[_EXPECTED]
    node.config.stash.setdefault(WRONG_REQUEST, output.get(_WRONG, ""))


def join_runs(config: pytest.Config) -> None:
    """Make one run of what the workers ran, so that reports and trends have the session as a whole."""
    parts = config.stash.get(DIRECTORIES, [])
    parts[:] = collecting.joined_runs(parts)

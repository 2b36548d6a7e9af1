"""The runs of the selected cases; a run starts with the first request for a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optest.api import collecting

if TYPE_CHECKING:
    from optest.pytest_plugin.nodes import CaseItem

_MOST_FOLLOWING = 32


class Results:
    """The results of items, from one run of optest for each backend."""

    def __init__(self, items: Sequence[CaseItem]) -> None:
        self._items = {id(item.case): item for item in items}
        # Worker gwK of pytest-xdist uses the K-th part of the devices.
        worker = getattr(items[0].config, "workerinput", None) if items else None
        share = None if worker is None else (int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]))
        self._streams = collecting.streams([(item.request, item.case) for item in items], share)
        self._stream_of: dict[int, Any] = {id(case): stream for stream, cases in self._streams for case in cases}
        self._in_order = items
        self._index_of = {id(item): index for index, item in enumerate(items)}

    def require_devices(self) -> None:
        """Raise ``OptestError`` if a scene cannot have its devices."""
        for stream, _ in self._streams:
            stream.require_devices()

    def of(self, item: CaseItem) -> Any:
        """Return the result of an item; execute its case unless a result of the same execution is known."""
        stream = self._stream_of[id(item.case)]
        return stream.result(item.case, lambda: [x.case for x in self.following(item)])

    def following(self, item: CaseItem) -> list[CaseItem]:
        """Return the items that certainly run next in the same run, at most 32."""
        ends_at_failure = item.config.getoption("maxfail") or item.config.getoption("stepwise", False)
        if item.following is None or ends_at_failure:
            return []
        start = self._index_of[id(item)] + 1
        following = self._in_order[start : start + _MOST_FOLLOWING]
        # A worker of xdist runs a part of the list, and plug-ins may change the order: then only the next is known.
        is_part = hasattr(item.config, "workerinput")
        if is_part or not following or following[0] is not item.following:
            following = [item.following]
        stream = self._stream_of[id(item.case)]
        of_run = [x for x in following if self._stream_of.get(id(x.case)) is stream]
        may_be_skipped = [any(mark.name in ("skip", "skipif") for mark in x.own_markers) for x in of_run]
        return of_run[: [*may_be_skipped, True].index(True)]

    def sharing(self) -> Iterator[list[CaseItem]]:
        """Yield the items of each execution."""
        for stream, _ in self._streams:
            for cases in stream.groups():
                yield [self._items[id(case)] for case in cases]

    def directories(self) -> list[Path]:
        """Return the folders of the runs that have started."""
        return [Path(stream.info.directory) for stream, _ in self._streams if stream.info is not None]

    def expected(self) -> dict[str, bool]:
        """Return the labels of the expectations for these items, each with whether it covers one of them."""
        return collecting.lines_expected([(item.request, item.case) for item in self._in_order])

    def close(self, *, at_once: bool) -> None:
        """End every run; with ``at_once`` interrupt the execution in progress."""
        for stream, _ in self._streams:
            stream.close(at_once=at_once)


RESULTS = pytest.StashKey[Results]()

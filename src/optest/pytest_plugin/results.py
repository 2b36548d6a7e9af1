"""The runs of the cases that were selected: each is begun when one of its cases is asked for, and executes that one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optest.api import collecting

if TYPE_CHECKING:
    from optest.pytest_plugin.nodes import CaseItem

_LOOKED_AHEAD = 32


class Results:
    """What is known of the items, one run of optest for each backend that they are for."""

    def __init__(self, items: Sequence[CaseItem]) -> None:
        self._items = {id(item.case): item for item in items}
        # Worker gwK of pytest-xdist uses the K-th part of the devices.
        worker = getattr(items[0].config, "workerinput", None) if items else None
        share = None if worker is None else (int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]))
        self._streams = collecting.streams([(item.request, item.case) for item in items], share)
        self._stream_of: dict[int, Any] = {id(case): stream for stream, cases in self._streams for case in cases}
        self._in_order = items
        self._place_of = {id(item): place for place, item in enumerate(items)}

    def require_devices(self) -> None:
        """
        Raises:
            OptestError: if a scene cannot have its devices.
        """
        for stream, _ in self._streams:
            stream.require_devices()

    def of(self, item: CaseItem) -> Any:
        """The result of one item, which is run now unless it shares what was run before."""
        stream = self._stream_of[id(item.case)]
        return stream.result(item.case, lambda: [each.case for each in self.following(item)])

    def following(self, item: CaseItem) -> list[CaseItem]:
        """The items that certainly come next and are in the same run.

        Where pytest goes by another order than that of its list, or by a part of it alone as a worker of xdist does,
        only the very next is known; where a failure ends the session, none is; those with marks that may keep pytest
        from asking are not certain.
        """
        ends_at_a_failure = item.config.getoption("maxfail") or item.config.getoption("stepwise", False)
        if item.following is None or ends_at_a_failure:
            return []
        place = self._place_of[id(item)] + 1
        following = self._in_order[place : place + _LOOKED_AHEAD]
        is_part = hasattr(item.config, "workerinput")
        if is_part or not following or following[0] is not item.following:
            following = [item.following]
        stream = self._stream_of[id(item.case)]
        mine = [each for each in following if self._stream_of.get(id(each.case)) is stream]
        is_skipped = [any(mark.name in ("skip", "skipif") for mark in each.own_markers) for each in mine]
        return mine[: [*is_skipped, True].index(True)]

    def sharing(self) -> Iterator[list[CaseItem]]:
        """The items of each execution, the first stands for the others."""
        for stream, _ in self._streams:
            for cases in stream.groups():
                yield [self._items[id(case)] for case in cases]

    def directories(self) -> list[Path]:
        """Where the runs that were begun keep their journals."""
        return [Path(stream.info.directory) for stream, _ in self._streams if stream.info is not None]

    def expected(self) -> dict[str, bool]:
        """Lines of expectations that are about these items, with whether they cover any of them."""
        return collecting.lines_expected([(item.request, item.case) for item in self._in_order])

    def close(self, *, at_once: bool) -> None:
        """End every run; ``at_once`` without waiting for what is being executed."""
        for stream, _ in self._streams:
            stream.close(at_once=at_once)


RESULTS = pytest.StashKey[Results]()

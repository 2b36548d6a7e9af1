"""The runs of the cases that were selected: each is begun when one of its cases is asked for, and executes that one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optest.api import collecting

if TYPE_CHECKING:
    from optest.pytest_plugin.nodes import CaseItem

__all__ = ["RESULTS", "Results"]


class Results:
    """What is known of the items, one run of optest for each backend that they are for."""

    def __init__(self, items: Sequence[CaseItem]) -> None:
        self._items = {id(item.case): item for item in items}
        self._streams = collecting.streams([(item.request, item.case) for item in items])
        self._stream_of: dict[int, Any] = {id(case): stream for stream, cases in self._streams for case in cases}

    def of(self, item: CaseItem) -> Any:
        """The result of one item, which is run now unless it shares what was run before."""
        stream, following = self._stream_of[id(item.case)], item.following
        is_same = following is not None and self._stream_of.get(id(following.case)) is stream
        return stream.result(item.case, following.case if is_same and following is not None else None)

    def sharing(self) -> Iterator[list[CaseItem]]:
        """The items of each execution, the first stands for the others."""
        for stream, _ in self._streams:
            for cases in stream.groups():
                yield [self._items[id(case)] for case in cases]

    def directories(self) -> list[Path]:
        """Where the runs that were begun keep their journals."""
        return [Path(stream.info.directory) for stream, _ in self._streams if stream.info is not None]

    def close(self, *, at_once: bool) -> None:
        """End every run; ``at_once`` without waiting for what is being executed."""
        for stream, _ in self._streams:
            stream.close(at_once=at_once)


RESULTS = pytest.StashKey[Results]()

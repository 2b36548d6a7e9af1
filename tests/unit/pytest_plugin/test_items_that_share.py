"""Which items a worker of xdist is offered: one of each execution, and all that pytest has to look at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optest.pytest_plugin.sharing import hide_duplicates


def item(name: str, *marks: Any) -> Any:
    return SimpleNamespace(name=name, duplicates=(), iter_markers=lambda: iter(each.mark for each in marks))


def offered(*groups: list[Any]) -> list[str]:
    session: Any = SimpleNamespace(items=[each for group in groups for each in group])
    results: Any = SimpleNamespace(sharing=lambda: iter(groups))
    hide_duplicates(session, results)
    return [each.name for each in session.items]


def test_one_item_of_each_execution_is_offered() -> None:
    first = item("a")
    assert offered([first, item("b"), item("c")], [item("d")]) == ["a", "d"]
    assert [each.name for each in first.duplicates] == ["b", "c"]


@pytest.mark.parametrize(
    "mark", [pytest.mark.skip, pytest.mark.xfail(strict=True), pytest.mark.skipif(True, reason="")]
)
def test_marked_items_are_not_shared(mark: Any) -> None:
    """What a conftest.py says of it is said of no other, and what becomes of others is not what it says."""
    second = item("b", pytest.mark.slow)
    assert offered([item("a", mark), second, item("c"), item("d", mark)]) == ["a", "b", "d"]
    assert [each.name for each in second.duplicates] == ["c"]
    assert offered([item("a", mark), item("b", mark)]) == ["a", "b"]

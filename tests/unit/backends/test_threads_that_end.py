"""Threads that end by themselves are no leak, however long a busy machine takes for the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from optest.clib.probing import side_effects
from optest.spec import Fault, Reason


def counts(monkeypatch: pytest.MonkeyPatch, threads: Iterator[int]) -> list[float]:
    """Let these numbers of threads be seen one after the other; returns how long was slept."""
    slept: list[float] = []
    monkeypatch.setattr(side_effects, "count_resources", lambda: {"threads": next(threads)})
    monkeypatch.setattr(side_effects, "sleep", slept.append)
    return slept


def test_threads_that_get_fewer_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = counts(monkeypatch, iter([52, 52, 47, 47, 47, 42, 37, 36, 35]))
    side_effects._require_none_left({"threads": 1}, "calls")
    assert len(slept) == 7


def test_threads_that_stay_are_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = counts(monkeypatch, iter([52, 42, 42, 42, 42, 1]))
    with pytest.raises(Fault) as left:
        side_effects._require_none_left({"threads": 1}, "calls")
    assert (left.value.reason, left.value.details) == (Reason.LEAK, {"threads": 41})
    assert len(slept) == 4


def test_nobody_waits_where_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = counts(monkeypatch, iter([36]))
    side_effects._require_none_left({"threads": 1}, "calls")
    assert slept == []

"""Runs in a file that CI keeps: what comes out is what went in, and nothing twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from texts import refusal

from optest.errors import UsageError
from optest.spec import RunInfo, Status
from optest.store import KeptResult, KeptRun, kept_runs


def run(number: int, *results: KeptResult) -> KeptRun:
    by_case: dict[str, list[KeptResult]] = {}
    for each in results:
        by_case.setdefault(each.id, []).append(each)
    info = RunInfo(
        run_id=f"r{number}", started_at=f"2026-01-0{number}", target="t", total=1, seed=0, options={"op": ["a"]}
    )
    return KeptRun(info=info, results=by_case)


PASSED = KeptResult(id="a", key="k1:1", operator="relu", status=Status.PASSED, used=0.25, seconds=1.5, is_timed=True)
FAILED = KeptResult(
    id="a", key="k1:2", operator="relu", status=Status.FAILED, attempts=2, used=float("inf"), gist="VALUE"
)


def test_what_comes_out_is_what_went_in(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    later, earlier = run(2, FAILED, PASSED), run(1, PASSED)
    assert kept_runs(path, [later]) == [later]
    assert kept_runs(path, [later, earlier]) == [earlier, later]
    assert kept_runs(path) == [earlier, later]


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes, longer than the head of a database" * 10)
    with pytest.raises(UsageError, match="cannot be read and written"):
        kept_runs(path, [run(1, PASSED)])
    assert path.read_text().startswith("my notes")
    with pytest.raises(UsageError, match="cannot be read and written"):
        kept_runs(tmp_path / "nowhere" / "history.sqlite")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("PRAGMA user_version = 7")
    other.close()
    with refusal(UsageError, "store.another_version_of_optest"):
        kept_runs(tmp_path / "other.sqlite")

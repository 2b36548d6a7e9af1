"""Results of many runs in one SQLite file, as far as a history needs them: a file that CI keeps between its jobs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from optest.errors import UsageError
from optest.spec import BAD_STATUSES, Status

__all__ = ["KeptResult", "KeptRun", "kept_runs"]

_VERSION = 1
_SCHEMA = f"""
CREATE TABLE runs (run TEXT PRIMARY KEY, started_at TEXT, target TEXT, fingerprint TEXT);
CREATE TABLE cases (number INTEGER PRIMARY KEY, id TEXT, key TEXT, operator TEXT, UNIQUE (id, key));
CREATE TABLE results (
    run TEXT, number INTEGER, status TEXT, attempts INTEGER, used REAL, seconds REAL, is_timed INTEGER, gist TEXT
);
CREATE INDEX results_of_run ON results (run);
PRAGMA user_version = {_VERSION};
"""
_NOTHING_SHOWN = frozenset({Status.SKIPPED, Status.UNCHECKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResult:
    """A result without its measures: ``used`` is the largest error / allowance of an element, ``seconds`` what the call
    took (the median of many if it ``is_timed``), ``gist`` its failure in one line."""

    id: str
    key: str
    operator: str
    status: Status
    attempts: int = 1
    used: float | None = None
    seconds: float | None = None
    is_timed: bool = False
    gist: str = ""

    @property
    def is_bad(self) -> bool:
        return self.status in BAD_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run with its results by the ids of cases, one for each round."""

    run_id: str
    started_at: str
    target: str
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, Sequence[KeptResult]]

    def worst(self, case: str) -> KeptResult | None:
        """The first bad one of its rounds, else the first; None for a case that this run does not have."""
        each = self.results.get(case, ())
        return next((result for result in each if result.is_bad), each[0] if each else None)

    def word(self, case: str) -> str:
        """How a case ended here, "-" for one that this run does not have."""
        worst = self.worst(case)
        return "-" if worst is None else worst.status.value

    def is_bad(self, case: str) -> bool | None:
        """None where nothing was shown of the case."""
        ways = self._ways(case)
        return True in ways if ways else None

    def wavers(self, case: str) -> bool:
        """Whether its rounds, or the tries of one of them, ended differently."""
        retried = any(each.attempts > 1 and each.status is Status.SUSPECT for each in self.results.get(case, ()))
        return retried or len(self._ways(case)) > 1

    def _ways(self, case: str) -> set[bool]:
        return {each.is_bad for each in self.results.get(case, ()) if each.status not in _NOTHING_SHOWN}


def kept_runs(path: Path, more: Sequence[KeptRun] = ()) -> list[KeptRun]:
    """The runs of the file, the oldest first, with those of ``more`` that it does not have yet, which are added; it is
    made if it is not there.

    Raises:
        UsageError: if it cannot be written, or is no such file.
    """
    with _opened(path) as database:
        known = {run for (run,) in database.execute("SELECT run FROM runs")}
        with database:
            for run in more:
                if run.run_id not in known:
                    _add(database, run)
        heads = database.execute("SELECT * FROM runs ORDER BY started_at").fetchall()
        return [
            KeptRun(
                run_id=run,
                started_at=started_at,
                target=target,
                fingerprint=json.loads(prints),
                results=_results_of(database, run),
            )
            for run, started_at, target, prints in heads
        ]


def _add(database: sqlite3.Connection, run: KeptRun) -> None:
    head = (run.run_id, run.started_at, run.target, json.dumps(dict(run.fingerprint)))
    database.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", head)
    rows = [(run.run_id, *_row(result)) for each in run.results.values() for result in each]
    cases = dict.fromkeys(row[1:4] for row in rows)
    database.executemany("INSERT OR IGNORE INTO cases (id, key, operator) VALUES (?, ?, ?)", cases)
    database.executemany(
        "INSERT INTO results SELECT ?1, number, ?5, ?6, ?7, ?8, ?9, ?10 FROM cases WHERE id = ?2 AND key = ?3", rows
    )


def _row(result: KeptResult) -> tuple[Any, ...]:
    return tuple([getattr(result, each.name) for each in fields(result)])


def _results_of(database: sqlite3.Connection, run: str) -> dict[str, list[KeptResult]]:
    names = [each.name for each in fields(KeptResult)]
    query = f"SELECT {', '.join(names)} FROM results JOIN cases USING (number) WHERE run = ? ORDER BY results.rowid"
    results: dict[str, list[KeptResult]] = {}
    for row in database.execute(query, (run,)):
        stated = dict(zip(names, row, strict=True))
        stated |= {"status": Status(stated["status"]), "is_timed": bool(stated["is_timed"])}
        results.setdefault(stated["id"], []).append(KeptResult(**stated))
    return results


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(path)) as database:
            ((version,),) = database.execute("PRAGMA user_version")
            if not version:
                database.executescript(_SCHEMA)
            elif version > _VERSION:
                raise UsageError(f"{path} was written by a newer optest; update optest to read it")
            yield database
    except sqlite3.Error as error:
        raise UsageError(f"{path} is no history that can be read and written: {error}") from None

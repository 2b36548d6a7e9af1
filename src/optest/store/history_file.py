"""Results of many runs in one SQLite file, as far as a history needs them: a file that CI keeps between its jobs."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from msgspec import DecodeError, msgpack

from optest.errors import UsageError
from optest.spec import BAD_STATUSES, RunInfo, Status

_VERSION = 2
_SCHEMA = f"""
CREATE TABLE runs (run TEXT PRIMARY KEY, started_at TEXT, target TEXT, results BLOB);
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

    info: RunInfo
    results: Mapping[str, Sequence[KeptResult]]

    @property
    def target(self) -> str:
        """Functions of one operator are not one another, nor are cases of two plans that have one name."""
        plan, functions = self.info.plan, self.info.options.get("function") or ()
        what = ", ".join([*functions, *([Path(plan).name] if plan else [])])
        return f"{self.info.target} ({what})" if what else self.info.target

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
    rows = ((run.info.run_id, run.info.started_at, run.target, zlib.compress(msgpack.encode(run))) for run in more)
    try:
        with closing(sqlite3.connect(path)) as database:
            ((version,),) = database.execute("PRAGMA user_version")
            if not version:
                database.executescript(_SCHEMA)
            elif version != _VERSION:
                raise UsageError(f"{path} was written by another version of optest; name a new file")
            with database:
                database.executemany("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?)", rows)
            kept = database.execute("SELECT run, CAST(results AS BLOB) FROM runs ORDER BY started_at")
            return [_decoded(path, *row) for row in kept]
    except sqlite3.Error as error:
        raise UsageError(f"{path} is no history that can be read and written: {error}") from None


def _decoded(path: Path, run: object, results: bytes | None) -> KeptRun:
    try:
        kept = msgpack.decode(zlib.decompress(results or b""), type=KeptRun)
        if not all(kept.results.values()):
            raise DecodeError("a case has no result")
        return kept
    except (zlib.error, DecodeError) as error:
        hint = "restore the file from a copy, or name a new one"
        raise UsageError(f"{path} is damaged: the results of run {run} cannot be read: {error}\n  {hint}") from None

"""History file: condensed results of many runs in one SQLite file, which CI keeps between its jobs."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from msgspec import DecodeError, msgpack

from optest.errors import UsageError
from optest.spec import BAD_STATUSES, Reason, RunInfo, Status

_VERSION = 2
_SCHEMA = f"""
CREATE TABLE runs (run TEXT PRIMARY KEY, started_at TEXT, target TEXT, results BLOB);
PRAGMA user_version = {_VERSION};
"""
# Statuses without a verdict on the backend.
_WITHOUT_VERDICT = frozenset({Status.SKIPPED, Status.UNCHECKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResult:
    """A result without its measures.

    ``used`` is the largest error / bound of an element, ``seconds`` the duration of the call (the median of many if it
    ``is_timed``), ``gist`` the failure in one line.
    """

    id: str
    key: str
    operator: str
    status: Status
    attempts: int = 1
    used: float | None = None
    seconds: float | None = None
    is_timed: bool = False
    gist: str = ""
    reason: Reason | None = None

    @property
    def is_bad(self) -> bool:
        return self.status in BAD_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run with its results by case id, one result per repetition."""

    info: RunInfo
    results: Mapping[str, Sequence[KeptResult]]

    @property
    def target(self) -> str:
        """Target of the run with its functions and plan, by which runs are compared over time."""
        # Different functions of one operator, and equally named cases of two plans, are different targets.
        plan, functions = self.info.plan, self.info.options.get("function") or ()
        origin = ", ".join([*functions, *([Path(plan).name] if plan else [])])
        return f"{self.info.target} ({origin})" if origin else self.info.target

    def worst(self, case: str) -> KeptResult | None:
        """Return the first bad result of a case, else its first result, or None if the run does not have the case."""
        results = self.results.get(case, ())
        return next((result for result in results if result.is_bad), results[0] if results else None)

    def word(self, case: str) -> str:
        """Return the status of the worst result of a case, "-" if the run does not have the case."""
        worst = self.worst(case)
        return "-" if worst is None else worst.status.value

    def is_bad(self, case: str) -> bool | None:
        """Return whether a repetition of the case is bad; None if all were skipped or unchecked."""
        outcomes = self._outcomes(case)
        return True in outcomes if outcomes else None

    def is_flaky(self, case: str) -> bool:
        """Return whether repetitions of the case ended differently, or one passed only after a retry."""
        retried = any(x.attempts > 1 and x.status is Status.SUSPECT for x in self.results.get(case, ()))
        return retried or len(self._outcomes(case)) > 1

    def _outcomes(self, case: str) -> set[bool]:
        """Return the values of ``is_bad`` among the repetitions with a verdict."""
        return {x.is_bad for x in self.results.get(case, ()) if x.status not in _WITHOUT_VERDICT}


def kept_runs(path: Path, more: Sequence[KeptRun] = ()) -> list[KeptRun]:
    """Add the runs of ``more`` that the file does not have yet, and return all its runs, oldest first.

    The file is created if it does not exist.

    Raises:
        UsageError: if it cannot be read and written, is damaged, or has the format of another version of optest.
    """
    rows = ((run.info.run_id, run.info.started_at, run.target, zlib.compress(msgpack.encode(run))) for run in more)
    try:
        with closing(sqlite3.connect(path)) as database:
            ((version,),) = database.execute("PRAGMA user_version")
            if not version:
                database.executescript(_SCHEMA)
            elif version != _VERSION:
                raise UsageError(f"{path} was written by another version of optest; choose a new file")
            with database:
                database.executemany("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?)", rows)
            kept = database.execute("SELECT run, CAST(results AS BLOB) FROM runs ORDER BY started_at")
            return [_decode_run(path, *row) for row in kept]
    except sqlite3.Error as error:
        raise UsageError(f"history file {path} cannot be read and written: {error}") from None


def _decode_run(path: Path, run: object, results: bytes | None) -> KeptRun:
    """Return the stored run; raise UsageError, with ``path`` and the id ``run``, if its data are damaged."""
    try:
        kept = msgpack.decode(zlib.decompress(results or b""), type=KeptRun)
        if not all(kept.results.values()):
            raise DecodeError("a case has no result")
        return kept
    except (zlib.error, DecodeError) as error:
        hint = "restore the file from a copy, or choose a new one"
        raise UsageError(f"{path} is damaged: the results of run {run} cannot be read: {error}\n  {hint}") from None

"""Executors, which run executions. The one here runs them in this process, ``worker_process`` and ``forked`` do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from optest.backends import BackendDriver
from optest.core.benchmarking import BenchOptions
from optest.core.deadlines import Deadlines
from optest.core.runner import ExecutionResult, execute
from optest.core.side_effects import SideEffects, runs_foreign_code
from optest.errors import InternalError
from optest.process import directory_kept, exits_refused
from optest.spec import Reason, TestCase


class Closed(InternalError):
    """Error of an executor that another thread has closed in order to end the run."""


class Executor(Protocol):
    """Runs one execution at a time and never raises for errors of foreign code."""

    @property
    def looks_ahead(self) -> bool:
        """Return whether `execute` uses ``following``: the cases of the next calls, in order, as far as certain."""
        ...

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult: ...

    def close(self) -> None: ...


@runtime_checkable
class HasExecutor(Protocol):
    """A driver whose cases another program runs."""

    def executor(self, folder: Path) -> Executor:
        """Return the executor of the driver's cases; it writes the files of the run to ``folder``."""
        ...


@dataclass(slots=True)
class InProcess:
    """Executor in this process: fast, without protection from crashes of the backend.

    ``keep`` is the folder for the tensors of every execution. ``bench`` has every passed case timed.
    """

    looks_ahead: ClassVar[bool] = False

    driver: BackendDriver
    every_measure: bool = False
    interrupted: Callable[[], bool] | None = None
    keep: Path | None = None
    bench: BenchOptions | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    _side_effects: SideEffects | None = field(default=None, init=False)

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases here, record their duration and return the result.

        Watch foreign code for side effects. ``following`` is not run; without it the watch after this case is thorough.
        """
        # before `record`, which may shorten the deadline further
        explanation, side_effects = self.deadlines.explanation(cases[0]), self.watch(cases[0])
        if side_effects is not None:
            side_effects.is_last = not following
        with exits_refused(), directory_kept():
            execution = execute(
                [self.deadlines.with_limit(case) for case in cases],
                self.driver,
                every_measure=self.every_measure,
                interrupted=self.interrupted,
                bench=self.bench,
                side_effects=side_effects,
                keep=self.keep,
            )
        first = execution.verdicts[0]
        self.deadlines.record(cases[0], first, execution.timings.run_s)
        if explanation and first.reason is Reason.DEADLINE:
            explained = [replace(verdict, message=verdict.message + explanation) for verdict in execution.verdicts]
            return replace(execution, verdicts=tuple(explained))
        return execution

    def watch(self, case: TestCase) -> SideEffects | None:
        """Return the watch over side effects of the case's code on this process; None if all of it is optest's."""
        if not runs_foreign_code(self.driver, case):
            return None
        if self._side_effects is None:
            self._side_effects = SideEffects.here()
        return self._side_effects

    def close(self) -> None:
        """Do nothing: no process or device is held."""


def print_note(note: str, notes: list[str] | None = None) -> None:
    """Print a note to standard error; with ``notes`` print it only once and append it, for the report."""
    if notes is not None and note in notes:
        return
    if notes is not None:
        notes.append(note)
    print(f"optest: {note}", file=sys.stderr, flush=True)  # noqa: T201

"""Who runs an execution; the one here does it in this process, ``worker_process`` and ``forked`` in another."""

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
    """An executor that another thread has closed, which is how a run is ended from there."""


class Executor(Protocol):
    """Runs one execution at a time and never raises for what foreign code does."""

    @property
    def looks_ahead(self) -> bool:
        """Whether it makes use of ``following``: the cases that it is certainly asked for next, in this order."""
        ...

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult: ...

    def close(self) -> None: ...


@runtime_checkable
class BringsExecutor(Protocol):
    """A driver whose cases another program runs."""

    def executor(self, folder: Path) -> Executor:
        """Who runs them; files of the run go to ``folder``."""
        ...


@dataclass(slots=True)
class InProcess:
    """Runs in this process: fast, and only as safe as the backend."""

    looks_ahead: ClassVar[bool] = False

    driver: BackendDriver
    every_measure: bool = False
    interrupted: Callable[[], bool] | None = None
    keep: Path | None = None
    """Where the tensors of every execution are kept, if anywhere."""
    bench: BenchOptions | None = None
    """How every case that passes is timed, if at all."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    _side_effects: SideEffects | None = field(default=None, init=False)

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        why, side_effects = self.deadlines.why(cases[0]), self.watch(cases[0])
        if side_effects is not None:
            side_effects.is_last = not following
        with exits_refused(), directory_kept():
            execution = execute(
                [self.deadlines.applied(case) for case in cases],
                self.driver,
                every_measure=self.every_measure,
                interrupted=self.interrupted,
                bench=self.bench,
                side_effects=side_effects,
                keep=self.keep,
            )
        first = execution.verdicts[0]
        self.deadlines.record(cases[0], first, execution.timings.run_s)
        if why and first.reason is Reason.DEADLINE:
            explained = [replace(each, message=each.message + why) for each in execution.verdicts]
            return replace(execution, verdicts=tuple(explained))
        return execution

    def watch(self, case: TestCase) -> SideEffects | None:
        """The watch over what the case's code does to this process; None for optest's own."""
        if not runs_foreign_code(self.driver, case):
            return None
        if self._side_effects is None:
            self._side_effects = SideEffects.here()
        return self._side_effects

    def close(self) -> None:
        return None


def say(note: str, notes: list[str] | None = None) -> None:
    """Tell the user now; with ``notes``, which the report has, in the end once more, and once alone."""
    if notes is not None and note in notes:
        return
    if notes is not None:
        notes.append(note)
    print(f"optest: {note}", file=sys.stderr, flush=True)  # noqa: T201

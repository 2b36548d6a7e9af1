"""The names that a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from optest.api import bootstrap
from optest.backends import backend_manager
from optest.errors import OptestError
from optest.generators.fills import FILLS
from optest.operators import operators
from optest.reporting import report_names
from optest.settings import resolve
from optest.spec import dtype_names
from optest.store import RunDirectory

__all__ = ["names_for"]


_MOST_RUNS = 20


def names_for(option: str) -> tuple[str, ...]:
    """Every value that ``option`` may have, () where a plug-in that cannot be loaded stands in the way.

    An error message in the middle of a half-typed line would help nobody; the command itself says it.
    """
    try:
        bootstrap()
        return _NAMES[option]()
    except OptestError:
        return ()


_NAMES: dict[str, Callable[[], tuple[str, ...]]] = {
    "op": operators.names,
    "backend": backend_manager.names,
    "bench_against": backend_manager.names,
    "dtype": dtype_names,
    "generator": lambda: tuple(FILLS),
    "report": report_names,
    "case_set": lambda: _words(name for each in operators for name in each.case_sets),
    **dict.fromkeys(("run", "resume", "rerun_failed", "failed_first"), lambda: _runs()),
}


def _runs() -> tuple[str, ...]:
    """``latest`` and the ids of the latest runs, the last one first."""
    runs = RunDirectory.all(Path(resolve()["runs_dir"]))
    return ("latest", *(run.id for run in reversed(runs[-_MOST_RUNS:]))) if runs else ()


def _words(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once; a shell would take one with a space for several words."""
    return tuple(dict.fromkeys(name for name in names if " " not in name))

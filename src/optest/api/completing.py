"""The names that a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from optest.api import bootstrap
from optest.backends import backend_manager
from optest.errors import OptestError
from optest.generators.fills import FILLS
from optest.operators import operators
from optest.reporting import report_names
from optest.spec import dtype_names

__all__ = ["names_for"]


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
    "dtype": dtype_names,
    "generator": lambda: tuple(FILLS),
    "report": report_names,
    "case_set": lambda: _words(name for each in operators for name in each.case_sets),
}


def _words(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once; a shell would take one with a space for several words."""
    return tuple(dict.fromkeys(name for name in names if " " not in name))

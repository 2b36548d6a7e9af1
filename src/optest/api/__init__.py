"""The public API: the one place that wires plans, backends, engine and reports together.

:func:`cases` and :func:`run` take the options of the command line by name (:data:`optest.settings.OPTIONS`)::

    from optest.api import cases, run
    from optest.core.runner import TestRunner

    results = TestRunner().run(cases(plan="plan.yaml", keyword="matmul"))  # in this process, one after the other
    outcome = run(plan="plan.yaml", backend="torch", jobs=2)  # with workers, a journal and reports

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optest.api.running import RunOutcome
    from optest.spec import TestCase

__all__ = ["bootstrap", "cases", "check", "run"]


def bootstrap(plugins: Iterable[str] | None = None) -> None:
    """Load built-ins, the modules of ``OPTEST_PLUGINS`` (or ``plugins``) and installed entry points; harmless twice.

    Raises:
        UsageError: if a plug-in cannot be imported.
    """
    from optest.core.extensions import load_extensions

    load_extensions(plugins)


def cases(**options: Any) -> list[TestCase]:
    """Return the cases that ``optest run`` would run with these options.

    Raises:
        UsageError, PlanError, UnknownName: for whatever cannot be carried out as written.
        Unavailable: if the backend needs what this machine lacks.
    """
    from optest.api.asking import asked

    return asked(_known(options)).cases


def run(**options: Any) -> RunOutcome:
    """Run as ``optest run`` does and return summary, results, folder and exit status.

    Raises:
        OptestError: for anything that keeps the run from starting.
    """
    from optest.api.running import run as run_given

    return run_given(_known(options))


def check(**options: Any) -> RunOutcome:
    """Ask a backend the samples of all operators as ``optest check`` does.

    Raises:
        OptestError: for anything that keeps the check from starting.
    """
    from optest.api.checking import check as check_given

    return check_given(_known(options))


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """The options, one value of a repeatable one put into a tuple.

    Raises:
        UnknownName: for an option that does not exist.
    """
    from optest.errors import UnknownName
    from optest.settings import OPTIONS

    by_name = {option.name: option for option in OPTIONS}
    for name in options:
        if name not in by_name:
            raise UnknownName("option", name, by_name)
    repeated = {name: (value,) for name, value in options.items() if by_name[name].repeat and isinstance(value, str)}
    return {**options, **repeated}

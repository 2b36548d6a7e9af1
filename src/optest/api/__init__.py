"""The public API: the one place that wires plans, backends, engine and reports together.

:func:`cases` and :func:`run` take the options of the command line by name (:data:`optest.settings.OPTIONS`), or as
:class:`RunOptions` that were put together before, ``run(**RunOptions(plan="plan.yaml"))``::

    from optest.api import cases, run
    from optest.core.runner import TestRunner

    results = TestRunner().run(cases(plan="plan.yaml", keyword="matmul"))  # in this process, one after the other
    outcome = run(plan="plan.yaml", backend="torch", jobs=2)  # with workers, a journal and reports

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from optest.settings import RunOptions

if TYPE_CHECKING:
    from optest.api.running import RunOutcome
    from optest.spec import TestCase

__all__ = ["RunOptions", "bootstrap", "cases", "check", "run"]


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
    from optest.api.run_request import run_request

    return run_request(RunOptions(**options)).cases


def run(**options: Any) -> RunOutcome:
    """Run as ``optest run`` does and return summary, results, folder and exit status.

    Raises:
        OptestError: for anything that keeps the run from starting.
    """
    from optest.api.running import run as run_given

    return run_given(RunOptions(**options))


def check(**options: Any) -> RunOutcome:
    """Ask a backend the samples of all operators as ``optest check`` does.

    Raises:
        OptestError: for anything that keeps the check from starting.
    """
    from optest.api.checking import check as check_given

    return check_given(RunOptions(**options))

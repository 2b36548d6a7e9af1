"""The public API, which connects plans, backends, engine and reports.

    import optest

    report = optest.run("plan.yaml", backend="torch", jobs=2)
    report = optest.check(my_softmax, op="softmax", dtype="float32")
    print(report)

Options have the names of the command line (:data:`optest.settings.OPTIONS`); :class:`RunOptions` holds a set of them.
Heavy modules are imported when they are needed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TextIO

from optest.api.startup import bootstrap
from optest.errors import UsageError
from optest.settings import RunOptions

if TYPE_CHECKING:
    from optest.api.report import Report
    from optest.spec import Numerics, TestCase

__all__ = ["RunOptions", "bootstrap", "cases", "check", "run"]


def cases(plan: str | PathLike[str] | None = None, **options: Any) -> list[TestCase]:
    """Return the cases that :func:`run` would run with these options.

    ``optest.core.runner.TestRunner().run(cases(...))`` runs them in this process, one after the other.

    Raises:
        UsageError, PlanError, UnknownName: for wrong options or a wrong plan.
        Unavailable: if the backend needs a package or device that this machine lacks.
    """
    from optest.api.run_request import run_request

    return run_request(RunOptions(plan=plan, **options)).cases


def run(
    plan: str | PathLike[str] | None = None,
    *,
    backend: str | None = None,
    op: str | Sequence[str] | None = None,
    dtype: str | Sequence[str] | None = None,
    shape: Mapping[str, Sequence[int]] | Sequence[str] | None = None,
    attr: Mapping[str, Any] | Sequence[str] | None = None,
    generator: str | None = None,
    reference: str | None = None,
    tolerance: Mapping[str, float] | str | None = None,
    seed: int | None = None,
    keyword: str | None = None,
    case: str | Sequence[str] | None = None,
    jobs: int | None = None,
    isolate: str | None = None,
    timeout: float | None = None,
    runs_dir: str | PathLike[str] | None = None,
    stream: TextIO | None = None,
    **options: Any,
) -> Report:
    """Run the cases of a plan, or one case of ``op``, ``dtype``, ``shape`` and ``attr``, as ``optest run`` does.

    ``options`` are further options of ``optest run``, by name. ``stream`` receives the terminal's output; without it
    nothing is printed.

    Raises:
        OptestError: if the run cannot start.
        KeyboardInterrupt: after Ctrl-C, SIGTERM or SIGHUP.
    """
    run_options = _options(locals(), "stream")
    from optest.api.running import run as run_with

    return _unless_interrupted(run_with(run_options, stream=stream or io.StringIO()))


def check(
    function: Callable[..., Any] | Mapping[str, Callable[..., Any]] | str | None = None,
    *,
    op: str | Sequence[str] | None = None,
    backend: str | None = None,
    dtype: str | Sequence[str] | None = None,
    tier: str | None = None,
    case_set: str | Sequence[str] | None = None,
    keyword: str | None = None,
    case: str | Sequence[str] | None = None,
    seed: int | None = None,
    numerics: Numerics | None = None,
    expectations: str | Sequence[str] | None = None,
    jobs: int | None = None,
    isolate: str | None = None,
    timeout: float | None = None,
    runs_dir: str | PathLike[str] | None = None,
    stream: TextIO | None = None,
    **options: Any,
) -> Report:
    """Run the built-in cases of operators against a function or a backend, as ``optest check`` does.

    ``function`` is a function of this process (a notebook's or a nested one, too) for ``op`` or the operator of its
    name; or a mapping from operators to functions. It gets tensors as :func:`kernel` says. Each case runs in a fork of
    this process, so that a crash or a hang ends only that case; if a device or JAX is in use already, or with
    ``isolate="none"``, cases run in this process. Text such as ``"my_kernels:softmax"`` names a function that workers
    import. ``numerics`` is for functions of this process; ``tier`` is ``smoke``, ``parity`` or ``full``.

    ``options`` are further options of ``optest check``, by name; ``stream`` is that of :func:`run`.

    Raises:
        OptestError: if the check cannot start.
        KeyboardInterrupt: after Ctrl-C, SIGTERM or SIGHUP.
    """
    if isinstance(function, str):
        options["function"] = function
    if callable(options.get("reference")):
        raise UsageError(
            "reference is a function, expected text; name both functions as text\n"
            "  for example: optest.check('my_kernels:fast', reference='my_kernels:slow')"
        )
    check_options = _options(locals(), "stream", "function", "numerics")
    from optest.api.checking import check as check_with

    driver = None
    if callable(function) or isinstance(function, Mapping):
        from optest.api.functions import backend_of

        driver = backend_of(function, check_options, numerics)
        check_options = RunOptions(**{**check_options, "op": driver.operator_names, "isolate": "none"})
    elif not isinstance(function, (str, type(None))):
        raise UsageError(f"function is {function!r}, expected a callable or text such as 'my_kernels:softmax'")
    elif numerics is not None:
        raise UsageError("numerics is for functions of this process; a backend, or @optest.kernel, declares its own")
    return _unless_interrupted(check_with(check_options, stream=stream or io.StringIO(), driver=driver))


def _unless_interrupted(report: Report) -> Report:
    """Return the report; raise ``KeyboardInterrupt`` if a signal ended the run."""
    # An incomplete report would look like one without failures, and the signal is for the whole program.
    if report.summary.interrupted:
        raise KeyboardInterrupt(f"the results until the interruption are in {report.directory.journal_path}")
    return report


def _options(arguments: dict[str, Any], *excluded: str) -> RunOptions:
    """Return the arguments of a call as options: merge its ``options`` and drop the ``excluded`` names."""
    further = arguments.pop("options")
    return RunOptions(**{name: value for name, value in arguments.items() if name not in excluded}, **further)

"""The public API: the one place that wires plans, backends, engine and reports together.

    import optest

    report = optest.run("plan.yaml", backend="torch", jobs=2)
    report = optest.check(my_softmax, op="softmax", dtype="float32")
    print(report)

Options are those of the command line by name (:data:`optest.settings.OPTIONS`); :class:`RunOptions` holds some that
were put together before. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, TextIO

from optest.errors import UsageError
from optest.settings import RunOptions

if TYPE_CHECKING:
    from optest.api.report import Report
    from optest.spec import Numerics, TestCase

__all__ = ["RunOptions", "bootstrap", "cases", "check", "run"]


def bootstrap(plugins: Iterable[str] | None = None, *, accept_config: bool = False) -> None:
    """Load built-ins, the modules of ``OPTEST_PLUGINS`` (or ``plugins``) and installed entry points; harmless twice.

    Raises:
        UsageError: if a plug-in cannot be imported; or, without ``accept_config``, if foreign code changed one in an
            earlier run, or the configuration.
    """
    from optest.core.extensions import load_extensions
    from optest.core.trusted_files import refuse_changed_configuration

    refuse_changed_configuration(accept=accept_config)
    load_extensions(plugins)


def configuration_watched() -> AbstractContextManager[None]:
    """Record the configuration while foreign code runs, and print what it changed; :func:`bootstrap` refuses that."""
    from optest.core.trusted_files import configuration_watched as watched

    return watched()


def cases(plan: str | PathLike[str] | None = None, **options: Any) -> list[TestCase]:
    """Return the cases that :func:`run` would run with these options.

    ``optest.core.runner.TestRunner().run(cases(...))`` runs them in this process, one after the other.

    Raises:
        UsageError, PlanError, UnknownName: for whatever cannot be carried out as written.
        Unavailable: if the backend needs what this machine lacks.
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

    ``options`` are further ones of ``optest run``, by name. ``stream`` takes what the terminal would show meanwhile;
    without it nothing is printed.

    Raises:
        OptestError: for anything that keeps the run from starting.
        KeyboardInterrupt: after Ctrl-C, SIGTERM or SIGHUP.
    """
    given = _options(locals(), "stream")
    from optest.api.running import run as run_given

    return _unless_interrupted(run_given(given, stream=stream or io.StringIO()))


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
    """Ask a function, or a backend, the case sets of its operators, as ``optest check`` does.

    ``function`` is one of this process, also of a notebook or of another function, for ``op`` or the operator of its
    name; a mapping has one for each operator. It gets tensors as :func:`kernel` says. Each case is a fork of this
    process, so that a crash or a hang ends that case alone; where a device or JAX is in use already, and with
    ``isolate="none"``, cases run in this process. Text such as ``"my_kernels:softmax"`` names a function that workers
    import. ``numerics`` is for functions of this process; ``tier`` is ``smoke``, ``parity`` or ``full``.

    ``options`` are further ones of ``optest check``, by name; ``stream`` is that of :func:`run`.

    Raises:
        OptestError: for anything that keeps the check from starting.
        KeyboardInterrupt: after Ctrl-C, SIGTERM or SIGHUP.
    """
    if isinstance(function, str):
        options["function"] = function
    if callable(options.get("reference")):
        raise UsageError("reference needs text for both: optest.check('my_kernels:fast', reference='my_kernels:slow')")
    given = _options(locals(), "stream", "function", "numerics")
    from optest.api.checking import check as check_given

    driver = None
    if callable(function) or isinstance(function, Mapping):
        from optest.api.functions import backend_of

        driver = backend_of(function, given, numerics)
        given = RunOptions(**{**given, "op": driver.asked, "isolate": "none"})
    elif not isinstance(function, (str, type(None))):
        raise UsageError(f"function is {function!r}, but should be callable, or text such as 'my_kernels:softmax'")
    elif numerics is not None:
        raise UsageError("numerics is for functions of this process; a backend, or @optest.kernel, declares its own")
    return _unless_interrupted(check_given(given, stream=stream or io.StringIO(), driver=driver))


def _unless_interrupted(report: Report) -> Report:
    """The signal that ended a run is for the whole program: half a report would look like one without failures."""
    if report.summary.interrupted:
        raise KeyboardInterrupt(f"what ran until then is in {report.directory.journal_path}")
    return report


def _options(arguments: dict[str, Any], *others: str) -> RunOptions:
    """The arguments of a function as options, its further ones among them, without ``others``."""
    further = arguments.pop("options")
    return RunOptions(**{name: value for name, value in arguments.items() if name not in others}, **further)

"""Integrations of frameworks (``optest.torch``, ``optest.clib``): the options, commands and run hooks that they add.

An integration (``Guest``) declares itself in its module ``guest``. Every command line imports that module, so it
imports no framework: code that needs one is named by its import path and loaded at its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from optest.errors import UsageError
from optest.registry import load_object

if TYPE_CHECKING:
    from optest.spec import CaseResult, TestCase

_GUESTS = (
    "optest.torch.guest:GUEST",
    "optest.clib.guest:GUEST",
    "optest.onnx.guest:GUEST",
    "optest.scenes.guest:GUEST",
    "optest.cluster.guest:GUEST",
    "optest.guests:FUNCTIONS",
    "optest.models.guest:GUEST",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the command line, of plans and of the environment."""

    name: str
    # `--name` if none are given.
    flags: tuple[str, ...] = ()
    # str, int, float, bool, count, `choice`, or `ints`: one or more, as `1 4`, `1,4` or repeated.
    type: str = "str"
    default: Any = None
    choices: tuple[str, ...] = ()
    # The option may occur several times; its value is a tuple.
    repeat: bool = False
    # One use may have several values, separated by commas; only for values that contain no commas.
    splits: bool = False
    # Value of the flag without an argument.
    bare: str = ""
    minimum: int | None = None
    # Top-level key of plans that sets it.
    plan: str = ""
    # An option of a driver, which the reproduction command of a case repeats.
    repro: bool = False
    # Commands that accept it.
    commands: tuple[str, ...] = ("run",)
    # Runs are only compared over time if they have the same value of it.
    in_trends: bool = False
    group: str = "Selection"
    metavar: str = ""
    help: str = ""
    required: bool = False
    # Shell completion: `file` or `folder`.
    completes: str = ""
    # Short form that only a scene file run as a program accepts (`python test_x.py`).
    short: str = ""
    # `--help` shows it without `--help-all`.
    common: bool = False
    # Left out of `--help`: a removed option whose command names its replacement.
    hidden: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "flags", self.flags or (f"--{self.name.replace('_', '-')}",))

    @property
    def env(self) -> str:
        return f"OPTEST_{self.name.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One positional argument of a command; with ``repeat`` it takes one or more values."""

    name: str
    metavar: str
    repeat: bool = False
    completes: str = "file"


class CommandContext(Protocol):
    """Interface of the command line for commands of integrations."""

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print a line to standard output, or with ``err`` to standard error."""

    def cases(self, **options: Any) -> tuple[Sequence[TestCase], Any]:
        """Return the cases that ``optest run`` would run with these options, and their driver.

        Raises:
            OptestError: if the options or the plan are wrong, or something that they need is unavailable.
        """

    def run(self, cases: Sequence[TestCase], driver: Any, facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
        """Run one or more cases with journal and reports, as ``optest run`` does, and return the exit status.

        ``facts`` are added to the description of the run in journal and reports.

        Raises:
            OptestError: if the run cannot start.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of an integration, such as ``capture``, or one in a group, such as ``ffi inspect``.

    ``function`` is the import path of ``(context, **values) -> exit status``. ``text`` is the help; ``short`` is its
    line in the list of commands (default: the first line of ``text``), ``group`` the line of the group, and ``after``
    the command that precedes it in the list. In addition to ``options`` it accepts the options of the table whose
    ``commands`` contain its name, or the name ``table``.
    """

    name: str
    function: str
    text: str
    short: str = ""
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    group: str = ""
    after: str = ""
    table: str = ""

    def call(self, context: CommandContext, arguments: Mapping[str, Any]) -> int:
        """Call ``function`` with ``arguments``, defaults in place of None, and return its exit status.

        A :class:`Fault` is printed as one line; the exit status is then 5 for UNSUPPORTED and UNAVAILABLE, else 1.

        Raises:
            UsageError: for a number below the option's minimum. Other exceptions of the function are not caught.
        """
        from optest.spec import Fault, Reason

        values = dict(arguments)
        for option in self.options:
            value = values[option.name]
            if value is None:
                values[option.name] = option.default
            elif option.minimum is not None and value < option.minimum:
                raise UsageError(f"{option.flags[-1]} is {value}, expected {option.minimum} or more")
        function: Callable[..., int] = load_object(self.function)
        device = values.get("torch_device")
        try:
            # A run would hold the device, but not every command starts one.
            with load_object("optest.api.worker_slots:torch_device_held")(device) if device else nullcontext():
                return function(context, **values)
        except Fault as fault:
            context.echo(f"optest: {fault.reason.value}: {fault.message}", err=True)
            return 5 if fault.reason in (Reason.UNSUPPORTED, Reason.UNAVAILABLE) else 1


class Values(Protocol):
    """Settings of a run by option name."""

    def __getitem__(self, name: str) -> Any: ...


class RunHooks:
    """Hooks of an integration into a run; the methods of this base class change nothing."""

    def apply_options(self, cases: Sequence[TestCase], settings: Values) -> list[TestCase]:  # noqa: ARG002
        """Return the cases with the integration's options applied; here unchanged.

        Raises:
            UsageError: if an option applies to none of the cases.
        """
        return list(cases)

    def describe_reference(self, case: TestCase) -> str:  # noqa: ARG002
        """Describe how the integration computes the expected outputs of ``case``; "" if it does not."""
        return ""

    def environment(self, settings: Values, folder: Path, stated: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Return the user's environment ``stated``, extended by the variables that a run in ``folder`` needs."""
        return dict(stated)

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:  # noqa: ARG002
        """Yield notes about the run, printed below its report."""
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """Declaration of an integration.

    ``hooks`` is the import path of its :class:`RunHooks`, "" if it has none. ``backend`` is the backend that its
    ``repro`` options belong to. ``references`` is a module with one reference function per operator in its
    ``REFERENCES``; ``check --reference`` selects them by the name ``backend``. ``machines`` is the import path of the
    function that connects a run to other machines; it is used if the first of ``options`` is set.
    """

    options: tuple[Option, ...] = ()
    backend: str = ""
    commands: tuple[Command, ...] = ()
    hooks: str = ""
    references: str = ""
    machines: str = ""


# Declared here because the module of the backend imports more than `--help` should wait for.
FUNCTIONS = Guest(
    options=(
        Option(
            name="function",
            common=True,
            repeat=True,
            repro=True,
            in_trends=True,
            group="Backend",
            metavar="[OP=]MODULE:NAME",
            commands=("run", "list", "check"),
            help="Function under test, of a module or a file.py, for the operator of its name or for OP. Repeatable.",
        ),
    ),
    backend="function",
)


@cache
def guests() -> tuple[Guest, ...]:
    return tuple(load_object(path) for path in _GUESTS)


def backends_of(is_stated: Callable[[str], bool]) -> dict[str, set[str]]:
    """Return the integrations' backends with at least one ``repro`` option set, each with the names of these options.

    ``is_stated`` returns whether the option of a name is set.
    """
    names = {
        guest.backend: {option.name for option in guest.options if option.repro and is_stated(option.name)}
        for guest in guests()
        if guest.backend
    }
    return {backend: options for backend, options in names.items() if options}


def run_hooks() -> Iterator[RunHooks]:
    """Import and yield the run hooks of every integration that has some."""
    for guest in guests():
        if guest.hooks:
            factory: Callable[[], RunHooks] = load_object(guest.hooks)
            yield factory()

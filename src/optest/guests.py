"""What a guest brings to the faces and to a run: options, commands, and a part in every run.

A guest is a package that stands beside the core: ``optest.torch``, ``optest.clib``. It declares itself in its module
``guest``, which imports nothing heavy, as every command line reads it; what needs its framework is named by its import
path and loaded when it is used.
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
    "optest.backends.function:GUEST",
    "optest.models.guest:GUEST",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the command line, of plans and of the environment."""

    name: str
    flags: tuple[str, ...] = ()
    """``--name`` where none are stated."""
    type: str = "str"
    """str, int, float, bool, count, ``choice``, or ``ints``: one or more, as ``1 4``, ``1,4`` or repeated."""
    default: Any = None
    choices: tuple[str, ...] = ()
    repeat: bool = False
    """Every use is collected."""
    splits: bool = False
    """One use may have several values, separated by commas; only for values that contain no commas."""
    bare: str = ""
    """The value of a flag that stands without one."""
    minimum: int | None = None
    plan: str = ""
    """Its key at the top of a plan."""
    repro: bool = False
    """It is the driver's, and belongs in the line that runs one case again."""
    commands: tuple[str, ...] = ("run",)
    """The commands that take it."""
    in_trends: bool = False
    """A trend compares runs that have the same value of it."""
    group: str = "Selection"
    metavar: str = ""
    help: str = ""
    required: bool = False
    completes: str = ""
    """``file`` or ``folder``, for what the name does not tell."""
    short: str = ""
    """Its short form where scenes are a program of their own (``python test_x.py``), and nowhere else."""
    common: bool = False
    """``--help`` shows it without ``--help-all``."""
    hidden: bool = False
    """``--help`` does not show it: an option that is gone, whose command says what to use in its place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "flags", self.flags or (f"--{self.name.replace('_', '-')}",))

    @property
    def env(self) -> str:
        return f"OPTEST_{self.name.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A positional argument of a command: ``repeat`` takes one or more."""

    name: str
    metavar: str
    repeat: bool = False
    completes: str = "file"


class CommandContext(Protocol):
    """What the command line lends to a guest's command."""

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print a line, ``err`` beside the output proper."""

    def cases(self, **options: Any) -> tuple[Sequence[TestCase], Any]:
        """The cases that ``optest run`` would run with these options, and the driver that they are for.

        Raises:
            OptestError: for whatever cannot be carried out as written.
        """

    def run(self, cases: Sequence[TestCase], driver: Any, facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
        """Run these cases, one at least, with journal and reports as ``optest run`` does; returns the exit status.

        ``facts`` go into what the run says of itself.

        Raises:
            OptestError: for anything that keeps the run from starting.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a guest, ``capture``, or one in a group, ``ffi inspect``.

    ``function`` is the import path of ``(context, **values) -> exit status``; ``text`` is the help, ``short`` its line
    in the list of commands, if that is not the first one of the text, ``group`` that of the group; ``after`` names the
    command that it stands behind there. Beside its own ``options`` it has those of the table that name it, or
    ``table``, among their commands.
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

    def call(self, context: CommandContext, given: Mapping[str, Any]) -> int:
        """Run it with what was given; an option that was not has its default. A fault is one line and the exit status,
        5 for what is not possible here, else 1.

        Raises:
            UsageError: for a number below the least that an option takes; else whatever the function raises.
        """
        from optest.spec import Fault, Reason

        values = {**given, **{each.name: each.default for each in self.options if given[each.name] is None}}
        for option in self.options:
            if given[option.name] is not None and option.minimum is not None and given[option.name] < option.minimum:
                least = f"{option.minimum} or more"
                raise UsageError(f"{option.flags[-1]} is {given[option.name]}, but should be {least}")
        function: Callable[..., int] = load_object(self.function)
        device = values.get("torch_device")
        try:
            # not every command has a run, which would hold the device
            with load_object("optest.api.lanes:torch_device_held")(device) if device else nullcontext():
                return function(context, **values)
        except Fault as fault:
            context.echo(f"optest: {fault.reason.value}: {fault.message}", err=True)
            return 5 if fault.reason in (Reason.UNSUPPORTED, Reason.UNAVAILABLE) else 1


class Values(Protocol):
    """The settings of a run, by the names of options."""

    def __getitem__(self, name: str) -> Any: ...


class RunHooks:
    """A guest's part in a run: what its options mean for all cases, and what it has to say at the end."""

    def changed_cases(self, cases: Sequence[TestCase], settings: Values) -> list[TestCase]:  # noqa: ARG002
        """The cases as the guest's options want them.

        Raises:
            UsageError: if an option is about none of them.
        """
        return list(cases)

    def describe_reference(self, case: TestCase) -> str:  # noqa: ARG002
        """How the guest makes the expected outputs of ``case``, "" if it does not."""
        return ""

    def environment(self, settings: Values, folder: Path, stated: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """The user's environment ``stated`` with what a run in ``folder`` needs beside it."""
        return dict(stated)

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:  # noqa: ARG002
        """Lines about the run as a whole, told below its report."""
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """What a guest declares; ``hooks`` is the import path of its :class:`RunHooks`, "" if it takes no part in runs.

    ``backend`` is the one whose options are those that belong in the line that runs one case again (``repro``).
    ``references`` is the module with a reference for each operator that its ``REFERENCES`` names, by the operator's
    name: what ``check --reference`` takes under the name of ``backend``.
    ``machines`` is the import path of who connects a run to other machines, where the first option is stated.
    """

    options: tuple[Option, ...] = ()
    backend: str = ""
    commands: tuple[Command, ...] = ()
    hooks: str = ""
    references: str = ""
    machines: str = ""


@cache
def guests() -> tuple[Guest, ...]:
    return tuple(load_object(path) for path in _GUESTS)


def backends_of(is_stated: Callable[[str], bool]) -> dict[str, set[str]]:
    """The guests' backends of which an option is stated, with these options; ``is_stated`` says so of an option's
    name."""
    stated = {
        guest.backend: {option.name for option in guest.options if option.repro and is_stated(option.name)}
        for guest in guests()
        if guest.backend
    }
    return {backend: names for backend, names in stated.items() if names}


def run_hooks() -> Iterator[RunHooks]:
    """The guests' parts in a run, imported now."""
    for guest in guests():
        if guest.hooks:
            make: Callable[[], RunHooks] = load_object(guest.hooks)
            yield make()

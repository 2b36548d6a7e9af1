"""Options of click, generated from the table of options, and classes of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optest.guests import guests
from optest.settings import OPTIONS, Option, split_values

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

_TYPES: dict[str, Any] = {"str": click.STRING, "int": click.INT, "float": click.FLOAT}
_LISTED = ("op", "backend", "dtype", "generator", "report", "case_set", "bench_against")
_split: Callable[..., tuple[str, ...]] = lambda _context, _parameter, values: split_values(values)  # noqa: E731
_PATHS = {"file": "file", "folder": "dir"}
_RUNS = ("run", "resume", "rerun_failed", "failed_first")


def _integers(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[int]:
    """Parse integers above 0, separated by commas."""
    words = [word.strip() for value in values for word in value.split(",")]
    for word in words:
        if not word.isdecimal() or int(word) < 1:
            raise click.BadParameter(f"{word!r} is no integer above 0; write several as 1,4")
    return [int(word) for word in words]


class Command(click.Command):
    """A command that refuses an option as the value of another one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # click can read `--threads 1,4`, but not `--threads 1 4`.
        flags = {flag for x in self.get_params(ctx) if x.callback is _integers for flag in x.opts}
        joined: list[str] = []
        for word in args:
            if len(joined) > 1 and joined[-2] in flags and joined[-1][:1].isdecimal() and word.isdecimal():
                joined[-1] += f",{word}"
            else:
                joined.append(word)
        words = tuple(joined)  # click takes words off `joined`
        try:
            rest = super().parse_args(ctx, joined)
        except click.UsageError:
            self._require_values(ctx, words)
            raise
        self._require_values(ctx, words)
        return rest

    def _require_values(self, ctx: click.Context, words: Sequence[str]) -> None:
        """Raise ``UsageError`` if the value of an option is another option; ``--save --script`` would create a folder
        of that name."""
        if ctx.resilient_parsing:  # an incomplete line that the shell completes
            return
        options = [x for x in self.get_params(ctx) if isinstance(x, click.Option)]
        flags = {flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag[:2] == "--"}
        for option in options:
            values = ctx.params.get(option.name or "")
            for value in values if isinstance(values, tuple) else (values,):
                if isinstance(value, str) and value.partition("=")[0] in flags:
                    flag = next((word for word, following in pairwise(words) if following == value), option.opts[-1])
                    raise click.UsageError(f"{flag} needs a value, but is followed by the option {value}", ctx)


# The words of the command line decide which options --help shows.
_WORDS, _ALL = "optest.words", "--help-all"


def _show_help(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class GroupedCommand(Command):
    """A command whose help groups its options as the table does, with other options and ``--help`` at the end.

    Options that are not ``common`` are shown by ``--help-all`` or ``--help -v``, and by a program with only this
    command; options of a backend also if the command line names that backend.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        flag: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_help}
        self.params.append(click.Option([_ALL], help="Show all options and exit; so does --help -v.", **flag))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        words = ctx.meta.get(_WORDS, ())
        shows_all = ctx.parent is None or not {_ALL, "-v", "--verbose"}.isdisjoint(words)
        backends = {word.removeprefix("--backend=") for word in words}
        of_backend = {option.name for guest in guests() if guest.backend in backends for option in guest.options}
        table = {option.name: option for option in OPTIONS}
        groups: dict[str, list[tuple[str, str]]] = {}
        left_out = 0
        for parameter in self.get_params(ctx):
            option = table.get(parameter.name or "")
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is None:
                continue
            if option is None or option.common or shows_all or option.name in of_backend:
                groups.setdefault(option.group if option is not None else "Other", []).append(record)
            else:
                left_out += 1
        groups["Other"] = groups.pop("Other")
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} {_ALL}")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; suggest the option for a plan, function or operator that was given without one."""
        ctx.meta[_WORDS] = tuple(args)
        plans = [x for x in args if x.endswith((".yaml", ".yml"))]
        ctx.allow_extra_args = True  # they are reported below, with a suggestion
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            suggestion = self._suggestion(extra[0], plans)
            raise click.UsageError(
                f"Got unexpected extra argument{'s' if len(extra) > 1 else ''} ({' '.join(extra)}){suggestion}", ctx
            )
        return extra

    def _suggestion(self, word: str, plans: Sequence[str]) -> str:
        """Return a question that names the option for an extra argument, "" if the command has no such option."""
        names = {x.name for x in self.params}
        if plans:
            meant = f"--plan {plans[0]}" if "plan" in names else f"optest run {plans[0]}"
        elif "function" not in names:
            return ""
        elif ":" in word or word.endswith(".py"):
            meant = f"--function {word}{'' if ':' in word else ':NAME'}"
        else:
            meant = f"--op {word}"
        return f". Did you mean {meant}?"


def options_of(
    command: str,
    *,
    texts: Mapping[str, str] | None = None,
    without: str = "",
    table: str = "",
) -> Callable[[Function], Function]:
    """Return a decorator that adds the options of a command in the order of the table; ``texts`` replace help texts."""
    names = {command, table}

    def add(function: Function) -> Function:
        for option in reversed(OPTIONS):
            if not names.isdisjoint(option.commands) and option.name != without:
                flags = (option.short, *option.flags) if command == "scene" and option.short else option.flags
                function = click_option(option, (texts or {}).get(option.name, option.help), flags)(function)
        return function

    return add


def click_option(option: Option, text: str, flags: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Return the click decorator of an option; its value is None or () if it is absent."""
    # Defaults belong to the settings, which have to know whether a value is explicit.
    metavar = f"{option.metavar},..." if option.splits else option.metavar
    keywords: dict[str, Any] = {"help": text, "metavar": metavar or None, "required": option.required}
    keywords["hidden"], flags = option.hidden, flags or option.flags
    completer = completer_of(option.completes or option.name)
    if completer is not None:
        keywords["shell_complete"] = completer
    match option.type:
        case "bool":
            keywords |= {"is_flag": True, "default": None, "metavar": None}
        case "count":
            keywords |= {"count": True, "metavar": None}
        case "choice":
            keywords |= {"type": click.Choice(option.choices), "multiple": option.repeat}
        case _ if option.bare:
            keywords |= {"type": click.STRING, "is_flag": False, "flag_value": option.bare}
        case "ints":
            keywords |= {"type": click.STRING, "multiple": True, "callback": _integers}
        case kind:
            callback = _split if option.splits else None if option.repeat else _once
            keywords |= {"type": _TYPES[kind], "multiple": True, "callback": callback}
    return click.option(option.name, *flags, **keywords)


def _once(_: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
    """Return the only value of an option, None if it is absent; raise ``UsageError`` for several values."""
    if len(values) > 1:
        name = next((flag for flag in parameter.opts if flag.startswith("--")), parameter.opts[-1])
        several = "; to run several: optest run a.yaml b.yaml" if parameter.name == "plan" else ""
        several = f"; for several values: {name} {parameter.metavar}" if "," in (parameter.metavar or "") else several
        raise click.UsageError(f"{name} is given {len(values)} times, expected once{several}")
    return values[0] if values else None


def completer_of(option: str) -> Completer | None:
    """Return the completer of an option's values, or of ``file``, ``folder`` or ``run``; None for other options."""

    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if option in _PATHS:
            return [CompletionItem(incomplete, type=_PATHS[option])]
        from optest.api.listing import names_for

        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in names_for(option) if name.startswith(last)]

    return complete if option in (*_PATHS, *_LISTED, *_RUNS) else None


def echo_all(lines: Iterable[str]) -> None:
    """Print each line as soon as it is available."""
    for line in lines:
        click.echo(line)

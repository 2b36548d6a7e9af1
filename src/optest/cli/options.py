"""Click options made from the one table of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from optest.cli.command import Command
from optest.cli.completing import completer_of
from optest.settings import OPTIONS, Option

__all__ = ["GroupedCommand", "options"]

Function = TypeVar("Function", bound=Callable[..., Any])
_TYPES: dict[str, Any] = {"str": click.STRING, "int": click.INT, "float": click.FLOAT}


def options(names: Iterable[str], *, help: Mapping[str, str] | None = None) -> Callable[[Function], Function]:  # noqa: A002
    """Add the options of these names, in the order of the table; ``help`` says what some mean to this command."""
    texts = help or {}
    wanted = set(names)
    chosen = [option for option in OPTIONS if option.name in wanted]

    def add(function: Function) -> Function:
        for option in reversed(chosen):
            function = _click_option(option, texts.get(option.name, option.help))(function)
        return function

    return add


def _click_option(option: Option, text: str) -> Callable[[Function], Function]:
    """An option whose value is None or () if it was not given: defaults belong to the settings."""
    keywords: dict[str, Any] = {"help": text, "metavar": option.metavar or None}
    completer = completer_of(option.name)
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
        case kind:
            keywords |= {"type": _TYPES[kind], "multiple": True, "callback": None if option.repeat else _once}
    return click.option(option.name, *option.flags, **keywords)


def _once(_: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
    """The one value of an option that is not repeatable, None if it was not given."""
    if len(values) > 1:
        name = next((each for each in parameter.opts if each.startswith("--")), parameter.opts[-1])
        several = "; a plan includes several files: include: [a.yaml, b.yaml]" if parameter.name == "plan" else ""
        raise click.UsageError(f"{name} is given {len(values)} times, but should be given once{several}")
    return values[0] if values else None


class GroupedCommand(Command):
    """A command whose help shows its options under the groups of the table, its own and ``--help`` at the end.

    Arguments stand in the usage line and are explained in the text above it.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        group_of = {option.name: option.group for option in OPTIONS}
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(group_of.get(parameter.name or "", "Other"), []).append(record)
        groups["Other"] = groups.pop("Other")
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but a plan that was given without its flag is told so."""
        plans = [each for each in args if each.endswith((".yaml", ".yml"))]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if plans and "extra argument" in error.message:
                raise click.UsageError(f"{error.message}. Did you mean --plan {plans[0]}?", ctx) from None
            raise

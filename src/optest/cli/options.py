"""Click options made from the one table of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from optest.settings import OPTIONS, Option

__all__ = ["GroupedCommand", "options"]

Function = TypeVar("Function", bound=Callable[..., Any])
_TYPES: dict[str, Any] = {"str": click.STRING, "int": click.INT, "float": click.FLOAT}


def options(names: Iterable[str]) -> Callable[[Function], Function]:
    """Add the options of these names, in the order of the table."""
    wanted = set(names)
    chosen = [option for option in OPTIONS if option.name in wanted]

    def add(function: Function) -> Function:
        for option in reversed(chosen):
            function = _click_option(option)(function)
        return function

    return add


def _click_option(option: Option) -> Callable[[Function], Function]:
    """An option whose value is None or () if it was not given: defaults belong to the settings."""
    keywords: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None}
    match option.type:
        case "bool":
            keywords |= {"is_flag": True, "default": None, "metavar": None}
        case "count":
            keywords |= {"count": True, "metavar": None}
        case "choice":
            keywords |= {"type": click.Choice(option.choices), "multiple": option.repeat}
        case kind:
            keywords |= {"type": _TYPES[kind], "multiple": option.repeat}
    return click.option(option.name, *option.flags, **keywords)


class GroupedCommand(click.Command):
    """A command whose help shows its options under the groups of the table."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        group_of = {option.name: option.group for option in OPTIONS}
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(group_of.get(parameter.name or "", "Other"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

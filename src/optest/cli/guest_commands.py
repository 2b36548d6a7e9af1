"""Commands that guests declare (:class:`optest.guests.Command`), made into commands of click."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from optest.cli.options import Command, click_option, completer_of, echo_all, options_of
from optest.guests import Argument, guests
from optest.guests import Command as Declared

__all__ = ["add_guest_commands"]


class _Context:
    """What the command line lends to a guest's command."""

    def echo(self, line: str, *, err: bool = False) -> None:
        click.echo(line, err=err)

    def cases(self, **options: Any) -> tuple[Sequence[Any], Any]:
        from optest.api.run_request import run_request

        request = run_request(options, imports_hooks=False)
        return request.cases, request.driver

    def run(self, cases: Sequence[Any], driver: Any, facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
        from optest.api.run_request import RunRequest, selected
        from optest.api.running import closing_lines, run_cases
        from optest.settings import resolve

        settings = resolve(options)
        which: dict[str, Any] = {"driver": driver, "target": cases[0].backend, "facts": facts}
        outcome = run_cases(RunRequest(settings=settings, document=None, cases=selected(cases, settings), **which))
        echo_all(closing_lines(options, outcome))
        return outcome.exit_status


def add_guest_commands(root: click.Group) -> None:
    """Add every guest's commands; a name of two words is a command in a group."""
    for guest in guests():
        for declared in guest.commands:
            group, _, name = declared.name.rpartition(" ")
            _group_of(root, group, declared.group).add_command(_click_command(declared, name))
            _place(root, group or name, declared.after)


def _place(root: click.Group, name: str, after: str) -> None:
    """Let a command stand behind another one in the list of commands."""
    names = [each for each in root.commands if each != name]
    names.insert(names.index(after) + 1 if after in names else len(names), name)
    root.commands = {each: root.commands[each] for each in names}


def _group_of(root: click.Group, name: str, text: str) -> click.Group:
    if not name:
        return root
    group = root.commands.get(name)
    if not isinstance(group, click.Group):
        group = _Group(name, help=text, short_help=text)
        root.add_command(group)
    return group


class _Group(click.Group):
    """A command may be written as an option, too: ``optest model --suite FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args[0].removeprefix("--") if args else ""
        return super().parse_args(ctx, [named, *args[1:]] if named in self.commands else args)


def _click_command(declared: Declared, name: str) -> click.Command:
    def call(**given: Any) -> int:
        from optest.api import bootstrap

        bootstrap()
        return declared.call(_Context(), given)

    function: Callable[..., int] = options_of(declared.name, table=declared.table)(call)
    for option in reversed(declared.options):
        function = click_option(option, option.help)(function)
    for argument in reversed(declared.arguments):
        function = _click_argument(argument)(function)
    command = click.command(name, cls=Command, short_help=declared.short, help=declared.text)
    return command(function)


def _click_argument(argument: Argument) -> Callable[[Callable[..., int]], Callable[..., int]]:
    return click.argument(
        argument.name,
        metavar=argument.metavar,
        nargs=-1 if argument.repeat else 1,
        required=True,
        shell_complete=completer_of(argument.completes),
    )

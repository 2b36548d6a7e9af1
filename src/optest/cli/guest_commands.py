"""Commands of integrations (:class:`optest.guests.Command`) as commands of click."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from optest.cli.options import Command, click_option, completer_of, echo_all, options_of
from optest.guests import Command as Declared
from optest.guests import guests


class _Context:
    """Functions of the command line for the commands of integrations."""

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
        request = RunRequest(
            settings=settings,
            document=None,
            driver=driver,
            target=cases[0].backend,
            cases=selected(cases, settings),
            facts=facts,
        )
        outcome = run_cases(request)
        echo_all(closing_lines(options, outcome))
        return outcome.exit_status


def add_guest_commands(root: click.Group) -> None:
    """Add the commands of integrations to ``root``; a name of two words is a command in a group."""
    for guest in guests():
        for declared in guest.commands:
            group, _, name = declared.name.rpartition(" ")
            if group and group not in root.commands:
                root.add_command(_Group(group, help=declared.group, short_help=declared.group))
            parent: Any = root.commands[group] if group else root
            parent.add_command(_click_command(declared, name))
            added = group or name
            names = [x for x in root.commands if x != added]
            names.insert(names.index(declared.after) + 1 if declared.after in names else len(names), added)
            root.commands = {x: root.commands[x] for x in names}


class _Group(click.Group):
    """A group whose commands may be written as options, too: ``optest model --suite FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args[0].removeprefix("--") if args else ""
        return super().parse_args(ctx, [named, *args[1:]] if named in self.commands else args)


def _click_command(declared: Declared, name: str) -> click.Command:
    """Return the command of click for a declared command."""

    def call(**options: Any) -> int:
        from optest.api.startup import bootstrap, configuration_watched

        bootstrap(accept_config=bool(options.get("accept_config")))
        with configuration_watched():
            return declared.call(_Context(), options)

    function: Callable[..., int] = options_of(declared.name, table=declared.table)(call)
    for option in reversed(declared.options):
        function = click_option(option, option.help)(function)
    for argument in reversed(declared.arguments):
        function = click.argument(
            argument.name,
            metavar=argument.metavar,
            nargs=-1 if argument.repeat else 1,
            required=True,
            shell_complete=completer_of(argument.completes),
        )(function)
    short = declared.short or declared.text.partition("\n")[0]
    return click.command(name, cls=Command, short_help=short, help=declared.text)(function)

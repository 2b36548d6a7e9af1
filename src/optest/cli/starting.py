"""``optest init``."""

from __future__ import annotations

from pathlib import Path

import click

from optest.cli.command import Command

__all__ = ["init_command"]


@click.command("init", cls=Command, short_help="Set a project up, so far for pytest.")
@click.argument("what", type=click.Choice(["pytest"]))
@click.argument("models", metavar="[FOLDER]...", nargs=-1)
def init_command(what: str, models: tuple[str, ...]) -> int:  # noqa: ARG001 - there is one so far
    """Show how to switch optest's plug-in for pytest on in this folder's project.

    FOLDER is where the model cases lie (or a file of them); without any, they are looked for below this folder. The
    lines to add are printed with the file that pytest reads; where there is none yet, pytest.ini is written.
    """
    from optest.api.pytest_setup import init_pytest

    for line in init_pytest(Path(), models):
        click.echo(line)
    return 0

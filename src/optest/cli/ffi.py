"""``optest ffi``: C libraries by themselves."""

from __future__ import annotations

import click

from optest.cli.command import Command
from optest.cli.completing import completer_of

__all__ = ["ffi_command"]


@click.group("ffi", short_help="Look at a C library.")
def ffi_command() -> None:
    """Look at a C library, before its operators are run."""


@ffi_command.command("inspect", cls=Command, short_help="Hold a library against its headers and a mapping.")
@click.argument("library", nargs=-1, required=True, metavar="LIB...", shell_complete=completer_of("library"))
@click.option(
    "--headers",
    multiple=True,
    required=True,
    metavar="DIR|FILE",
    shell_complete=completer_of("headers"),
    help="C headers. Repeatable.",
)
@click.option(
    "--mapping",
    default="",
    metavar="NAME|FILE",
    shell_complete=completer_of("mapping"),
    help="Mapping to hold against both: infiniop, cblas, FILE.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--signatures", is_flag=True, help="Print the signature of every function.")
@click.option("--write", default="", metavar="FILE", help="Write a mapping to start from, with its guesses marked.")
@click.option("--force", is_flag=True, help="With --write: write over a file that is there.")
def inspect_command(
    library: tuple[str, ...],
    headers: tuple[str, ...],
    mapping: str,
    as_json: bool,
    signatures: bool,
    write: str,
    force: bool,
) -> int:
    """Hold the shared objects LIB, or the folder LIB of the mapping's, against headers and mapping.

    \b
    optest ffi inspect libmine.so --headers include/
    optest ffi inspect ~/.infini --headers ~/.infini/include --mapping infiniop
    optest ffi inspect libmine.so --headers include/ --write mine.yaml

    No code of the library runs, but that of one which only the system's loader finds. Exit status 1 if a function is
    missing or not what the mapping says; without a mapping, if any declared function is missing or cannot be called,
    unless a mapping was written.
    """
    from optest.api import inspecting, sketching
    from optest.errors import UsageError

    if force and not write:
        raise UsageError("--force goes with --write")
    if write:
        sketching.require_writable(write, mapping=mapping, force=force)
    report = inspecting.inspect(library, headers, mapping)
    if as_json:
        click.echo(inspecting.as_json(report))
    else:
        for line in inspecting.as_text(report, signatures=signatures):
            click.echo(line)
    if not write:
        return report.exit_status
    written = sketching.write_mapping(report, write, libraries=library, headers=headers, force=force)
    for line in written.lines():
        click.echo(line, err=as_json)
    return 0

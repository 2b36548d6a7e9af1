"""The ``optest`` command: parse the command line, call the API, and print errors with their exit status."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from optest import __version__
from optest.cli.guest_commands import add_guest_commands
from optest.cli.list_commands import (
    completion_command,
    diff_command,
    doctor_command,
    explain_command,
    history_command,
    list_command,
    report_command,
    runs_command,
    schema_command,
)
from optest.cli.run_commands import check_command, minimise_command, replay_command, run_command
from optest.errors import OptestError, PlanError, plural
from optest.settings import find_modules_here

__all__ = ["cli", "main"]

_EXIT_STATUS = """\
Exit status: 0 all cases passed · 1 a case failed · 2 wrong usage or plan ·
3 fault of optest · 5 nothing selected or everything skipped · 130 interrupted"""


class _InOrder(click.Group):
    """A group that lists its commands in the order of their registration, not alphabetically."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_STATUS)
@click.version_option(__version__, "--version", prog_name="optest", message="%(prog)s %(version)s")
def cli() -> None:
    """Test whether an operator implementation is right, and explain what is wrong."""


cli.add_command(run_command)
cli.add_command(check_command)
cli.add_command(list_command)
cli.add_command(explain_command)
cli.add_command(replay_command)
cli.add_command(minimise_command)
cli.add_command(report_command)
cli.add_command(diff_command)
cli.add_command(history_command)
cli.add_command(runs_command)
cli.add_command(schema_command)
cli.add_command(doctor_command)
cli.add_command(completion_command)
add_guest_commands(cli)


def main(arguments: Sequence[str] | None = None, *, command: click.Command = cli) -> int:
    """Run a command line, such as ``main(["run", "--op", "relu"])``, and return its exit status.

    Without ``arguments``, as the console script, read ``sys.argv`` and end the process with the status.
    """
    if arguments is not None:
        return _run_command(command, [str(argument) for argument in arguments])
    _open_closed_streams()
    statuses = _replace_exit()
    statuses.append(_run_command(command))
    sys.exit(statuses[0])


def _open_closed_streams() -> None:
    """Open standard streams that the caller has closed on the null device."""
    # Else the next file that is opened would take their number.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            setattr(sys, name, open(number, "r+" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115
            if opened != number:
                os.close(opened)


def _replace_exit() -> list[int]:
    """Replace ``os._exit`` by a function that exits with the first status of the returned list, if it has one."""
    # Runtimes and plug-ins register os._exit(0) for the shutdown of Python, and a failed run would look like success.
    original, statuses = os._exit, list[int]()

    def end(status: int) -> NoReturn:
        if statuses:
            sys.stdout.flush()
            sys.stderr.flush()
        original(statuses[0] if statuses else status)

    os._exit = end
    return statuses


def _run_command(command: click.Command, arguments: list[str] | None = None) -> int:
    """Run a command, print its error if it fails, and return the exit status."""
    try:
        find_modules_here()
        returned = command.main(arguments, None if arguments is None else "optest", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OptestError as error:
        _print_error(error)
        return error.exit_status
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("optest: interrupted", err=True)
        return 130
    except SystemExit as error:  # of user code, such as a plug-in's register(): perhaps nothing has run
        frame = traceback.extract_tb(error.__traceback__)[-1]
        if frame.filename == click.core.__file__:  # click ends the process after completing a word for the shell
            raise
        call = f"{frame.filename}:{frame.lineno} called sys.exit({error.code!r})"
        click.echo(f"optest: {call} before the run ended; remove the call", err=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # silences the flush of the interpreter
        return 141
    except Exception as error:  # noqa: BLE001 - any other exception is a fault of optest: exit status 3
        if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            click.echo(f"optest: standard output cannot be written: {error.strerror}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 3
        if isinstance(error, OSError) and error.filename and error.errno in (errno.ENAMETOOLONG, errno.EACCES):
            click.echo(f"optest: {str(error.filename)[:200]!r} cannot be used: {error.strerror}", err=True)
            return 2
        traceback.print_exc()
        click.echo("optest: this is a fault of optest; please report it with the lines above", err=True)
        return 3
    return returned if isinstance(returned, int) else 0


def _print_error(error: OptestError) -> None:
    """Print an error, or every problem of a plan and their number, to stderr."""
    if not isinstance(error, PlanError):
        click.echo(f"optest: {error}", err=True)
        return
    for problem in error.problems:
        click.echo(str(problem), err=True)
    count = sum(problem.count for problem in error.problems)
    click.echo(f"optest: {plural(count, 'problem')}; nothing was run", err=True)

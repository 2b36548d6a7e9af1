"""The ``optest`` command: parses, calls the API, and turns errors into one sentence and an exit status."""

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
from optest.errors import OptestError, PlanError
from optest.settings import find_modules_here

__all__ = ["cli", "main"]

_EXIT_STATUS = """\
Exit status: 0 all well · 1 something is wrong with a case · 2 usage or plan ·
3 optest itself · 5 nothing selected or everything skipped · 130 interrupted"""


class _InOrder(click.Group):
    """Commands in the order in which a user meets them, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_STATUS)
@click.version_option(__version__, "--version", prog_name="optest", message="%(prog)s %(version)s")
def cli() -> None:
    """Is this operator implementation right, and if not, what is wrong with it?"""


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
    """Run a command line, ``main(["run", "--op", "relu"])``, print what it prints, and return its exit status.

    Without ``arguments`` it is the entry point of the console script: it reads ``sys.argv`` and ends the process with
    that status.
    """
    if arguments is not None:
        return _status_of_call(command, [str(each) for each in arguments])
    _open_closed_streams()
    decided = _decide_exits()
    decided.append(_status_of_call(command))
    sys.exit(decided[0])


def _open_closed_streams() -> None:
    """Replace the standard streams that the caller has closed: the next file that is opened would take their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            setattr(sys, name, open(number, "r+" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115
            if opened != number:
                os.close(opened)


def _decide_exits() -> list[int]:
    """Put an ``os._exit`` in place that ends with the status in the returned list once there is one.

    Runtimes and plug-ins register ``os._exit(0)`` for the shutdown of Python, and a failed run would look like success.
    """
    leave, decided = os._exit, list[int]()

    def end(status: int) -> NoReturn:
        if decided:
            sys.stdout.flush()
            sys.stderr.flush()
        leave(decided[0] if decided else status)

    os._exit = end
    return decided


def _status_of_call(command: click.Command, arguments: list[str] | None = None) -> int:
    try:
        find_modules_here()
        returned = command.main(arguments, None if arguments is None else "optest", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OptestError as error:
        _say(error)
        return error.exit_status
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("optest: interrupted", err=True)
        return 130
    except SystemExit as error:  # of a user's code, such as a plug-in's register(): perhaps nothing has run
        at = traceback.extract_tb(error.__traceback__)[-1]
        if at.filename == click.core.__file__:  # where the shell completes a word, click ends the process
            raise
        click.echo(f"optest: {at.filename}:{at.lineno} called sys.exit({error.code!r}) before the run ended", err=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # keeps the interpreter's own flush quiet
        return 141
    except Exception as error:  # noqa: BLE001 - the last line of defence: exit status 3 belongs to optest itself
        if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            click.echo(f"optest: standard output cannot be written: {error.strerror}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 3
        if isinstance(error, OSError) and error.filename and error.errno in (errno.ENAMETOOLONG, errno.EACCES):
            click.echo(f"optest: {str(error.filename)[:200]!r} cannot be used: {error.strerror}", err=True)
            return 2
        traceback.print_exc()
        click.echo("optest: this is a fault of optest itself; please report it with the lines above", err=True)
        return 3
    return returned if isinstance(returned, int) else 0


def _say(error: OptestError) -> None:
    if isinstance(error, PlanError):
        count = sum(problem.stands_for for problem in error.problems)
        for problem in error.problems:
            click.echo(str(problem), err=True)
        click.echo(f"optest: {count} problem{'s' if count != 1 else ''} found; nothing was run", err=True)
        return
    click.echo(f"optest: {error}", err=True)

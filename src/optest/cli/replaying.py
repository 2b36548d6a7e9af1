"""``optest replay``."""

from __future__ import annotations

from typing import Any

import click

from optest.cli.completing import completer_of
from optest.cli.options import GroupedCommand, options

__all__ = ["replay_command"]

_OPTIONS = (
    *("backend", "chip", "torch_device", "compile_backend", "isolate", "timeout"),
    *("report", "report_path", "runs_dir", "no_color", "verbose", "quiet"),
)


@click.command("replay", cls=GroupedCommand, short_help="Run cases of a journal again; save tensors, write scripts.")
@click.argument("results", metavar="[RESULT]...", nargs=-1)
@click.option(
    "--run",
    "run_id",
    default="latest",
    metavar="RUN",
    shell_complete=completer_of("run"),
    help="Run, its folder or its journal. [latest]",
)
@click.option("--last", is_flag=True, help="Every failure of the run; as RESULT `latest`, or none.")
@click.option(
    "--save",
    "save_to",
    metavar="DIR",
    shell_complete=completer_of("folder"),
    help="Write inputs, expected, actual and errors as .npz.",
)
@click.option(
    "--script",
    is_flag=False,
    flag_value="",
    metavar="[FILE.py|DIR]",
    shell_complete=completer_of("file"),
    help="Write a script of at most 30 lines that shows the failure, without optest where that is possible.",
)
@options(_OPTIONS)
def replay_command(
    results: tuple[str, ...], run_id: str, last: bool, save_to: str | None, script: str | None, **given: Any
) -> int:
    """Run exactly one case of a journal again, or several.

    RESULT is the id of a case or a glob, the beginning of its key, or its number in the journal. Without one, every
    failure of the run is replayed, in the order of the plan.

    \b
    optest replay 'matmul*'
    optest replay latest --save saved
    optest replay 'matmul half' --script
    """
    from optest.api.replaying import replay

    if last and results:
        raise click.UsageError("--last means every failure; give it or RESULT, not both")
    return replay(results, run_id, given, save_to=save_to, script=script).exit_status

"""The commands that run cases: ``optest run``, ``check``, ``replay`` and ``minimise``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from optest.cli.options import GroupedCommand, completer_of, echo_all, options_of

collect_only_option = click.option(
    "--co", "--collect-only", "collect_only", is_flag=True, help="List the cases and run none of them."
)
_watch_option = click.option(
    "--watch", is_flag=True, help="Repeat the run when the plan, plug-ins, kernels or data change, until Ctrl-C."
)


@click.command("run", cls=GroupedCommand, short_help="Run cases and compare their outputs.")
@click.argument("plans", metavar="[PLAN]...", nargs=-1, shell_complete=completer_of("file"))
@options_of("run")
@collect_only_option
@_watch_option
def run_command(plans: tuple[str, ...], collect_only: bool, watch: bool, **options: Any) -> int:
    """Run the cases of plans, or one case described by flags, and compare its outputs with the expected ones.

    \b
    optest run plan.yaml
    optest run plan.yaml --backend torch -k "matmul and float16"
    optest run --op matmul --dtype float16 --shape input0=64x128 --shape input1=128x32 --backend torch
    """
    if plans:
        from optest.api.run_request import one_plan

        options["plan"] = one_plan([*([options["plan"]] if options["plan"] else []), *plans], options)
    if watch and not collect_only:
        from optest.api.startup import worker_server

        with worker_server(options) as forks:  # before NumPy is imported
            from optest.api.running import run
            from optest.api.watching import watch as watched

            watched(partial(run, forks=forks), options)
    return run_and_close(options, collect_only=collect_only)


def run_and_close(options: Mapping[str, Any], *, collect_only: bool = False) -> int:
    """Run the cases, print the lines below the report and return the exit status; or only list the cases."""
    if collect_only:
        from optest.api.listing import listing

        echo_all(listing("cases", options))
        return 0
    from optest.api.startup import worker_server

    with worker_server(options) as forks:  # before NumPy is imported
        from optest.api.running import closing_lines, run

        outcome = run(options, forks=forks)
    echo_all(closing_lines(options, outcome))
    return outcome.exit_status


_TEXTS_OF_CHECK = {
    "op": "Only this operator, by name or alias. Repeatable.",
    "dtype": "Only cases with an input of one of these dtypes.",
    "backend": "Backend to check, by name or kind.",
    "jobs": "Number of workers. [the number of processors, at most 8, for a backend on the CPU, else 1]",
    "resume": "Continue a check.",
    "rerun_failed": "Re-run the failures of the last check, or of RUN, with its options unless a backend is named.",
}


@click.command("check", cls=GroupedCommand, short_help="Run the built-in cases of operators against a backend.")
@options_of("check", texts=_TEXTS_OF_CHECK)
@_watch_option
@click.option("--list", "only_list", is_flag=True, help="List the cases and run none of them.")
@click.option(
    "--write",
    "write_to",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Write the cases to a plan and run none of them.",
)
@click.option(
    "--write-expectations",
    "baseline",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Write each failing case, with its reason and error, to a file for --expectations.",
)
def check_command(only_list: bool, write_to: str | None, watch: bool, baseline: str | None, **options: Any) -> int:
    """Run the built-in cases of all operators against a backend or a function, and report wrong outputs.

    \b
    optest check --backend torch
    optest check --backend torch --op softmax --op sum --tier full
    optest check --backend torch --op sum --set layouts --write plan.yaml
    """
    from optest.api.startup import worker_server

    if only_list and write_to is not None:
        raise click.UsageError("--list and --write exclude each other")
    if ":" in (reference := options.get("reference") or ""):  # the search may take long with a slow reference
        how = "" if options.get("shape") else "; to specify them: --shape NAME=8x16 for each tensor, --dtype float32"
        click.echo(f"searching for inputs that {reference} takes, by some thousand calls{how}", err=True)
    with worker_server(options, default_jobs=os.cpu_count() or 1) as forks:  # before NumPy is imported
        from optest.api import checking
        from optest.api.baseline import require_new, write_expectations
        from optest.api.running import closing_lines

        if only_list:
            echo_all(checking.listed(options))
            return 0
        if write_to is not None:
            click.echo(checking.write(options, write_to))
            return 0
        if watch:
            from optest.api.watching import watch as watched

            watched(partial(checking.check, forks=forks), options)
        if baseline is not None:
            require_new(baseline)
        outcome = checking.check(options, forks=forks)
    echo_all(closing_lines(options, outcome))
    if baseline is None or outcome.exit_status not in (0, 1):
        return outcome.exit_status
    text, others = write_expectations(baseline, outcome.results, group=options["group"])
    click.echo(text)
    return int(others > 0)


_run_option = click.option(
    "--run",
    "run_id",
    default="latest",
    metavar="RUN",
    shell_complete=completer_of("run"),
    help="Run, its folder or its journal. [latest]",
)


@click.command("replay", cls=GroupedCommand, short_help="Re-run cases of a run; save tensors, write scripts.")
@click.argument("results", metavar="[RESULT]...", nargs=-1)
@_run_option
@click.option("--last", is_flag=True, help="Replay every failure of the run, which is the default.")
@click.option(
    "--save",
    "save_to",
    metavar="DIR",
    shell_complete=completer_of("folder"),
    help="Write inputs, expected and actual outputs and errors as .npz.",
)
@click.option(
    "--script",
    is_flag=False,
    flag_value="",
    metavar="[FILE.py|DIR]",
    shell_complete=completer_of("file"),
    help="Write a short script that shows the failure, if possible without optest.",
)
@options_of("replay")
def replay_command(
    results: tuple[str, ...], run_id: str, last: bool, save_to: str | None, script: str | None, **options: Any
) -> int:
    """Re-run cases of a run with the same inputs.

    RESULT is the id of a case or a glob, the beginning of its key, or its number in the journal. Without RESULT, every
    failure of the run is replayed, in the order of the plan.

    \b
    optest replay 'matmul*'
    optest replay latest --save saved
    optest replay 'matmul half' --script
    """
    from optest.api.replaying import replay

    if last and results:
        raise click.UsageError("--last and RESULT exclude each other, as --last replays every failure")
    return replay(results, run_id, options, save_to=save_to, script=script).exit_status


@click.command("minimise", cls=GroupedCommand, short_help="Minimise a failing case.")
@click.argument("results", metavar="[RESULT]...", nargs=-1)
@_run_option
@click.option("--write", metavar="FILE", shell_complete=completer_of("file"), help="Write the smallest case as a plan.")
@click.option("--limit", "most_s", type=float, default=60.0, metavar="SECONDS", help="Time limit of the search. [60]")
@options_of("replay")
def minimise_command(results: tuple[str, ...], run_id: str, write: str | None, most_s: float, **options: Any) -> int:
    """Reduce a failing case while it fails with the same reason, and run the smallest one.

    RESULT is as for `replay`; the first failure is reduced. Steps set sizes to small ones or halve them, drop
    dimensions or set them to 1, drop optional inputs, make layouts dense, set attributes to their defaults and dtypes
    to float32 or int32, and fill inputs with ones. Each step draws new inputs; a step that loses the failure is
    reverted.

    \b
    optest minimise 'matmul*'
    optest minimise --run latest --write smallest.yaml
    """
    from optest.api.replaying import minimise

    return minimise(results, run_id, options, most_s=most_s, write=write).exit_status

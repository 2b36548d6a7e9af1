"""The commands that run cases: ``optest run``, ``optest check`` and ``optest replay``."""

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
    "--watch", is_flag=True, help="Run again when the plan, plug-ins, kernels or data change; Ctrl-C ends it."
)


@click.command("run", cls=GroupedCommand, short_help="Run cases and judge every result.")
@click.argument("plans", metavar="[PLAN]...", nargs=-1, shell_complete=completer_of("file"))
@options_of("run")
@collect_only_option
@_watch_option
def run_command(plans: tuple[str, ...], collect_only: bool, watch: bool, **given: Any) -> int:
    """Run the cases of plans, or one case made from flags, and judge every result.

    \b
    optest run plan.yaml
    optest run plan.yaml --backend torch -k "matmul and float16"
    optest run --op matmul --dtype float16 --shape input0=64x128 --shape input1=128x32 --backend torch
    """
    if plans:
        from optest.api.run_request import one_plan

        given["plan"] = one_plan([*([given["plan"]] if given["plan"] else []), *plans], given)
    if watch and not collect_only:
        from optest.api.worker_server import worker_server

        with worker_server(given) as forks:  # before NumPy is imported
            from optest.api.running import run
            from optest.api.watching import watch as watched

            watched(partial(run, forks=forks), given)
    return run_and_close(given, collect_only=collect_only)


def run_and_close(given: Mapping[str, Any], *, collect_only: bool = False) -> int:
    """Run, print what is told below the report, and return the exit status; or list the cases alone."""
    if collect_only:
        from optest.api.listing import listing

        echo_all(listing("cases", given))
        return 0
    from optest.api.worker_server import worker_server

    with worker_server(given) as forks:  # before NumPy is imported
        from optest.api.running import closing_lines, run

        outcome = run(given, forks=forks)
    echo_all(closing_lines(given, outcome))
    return outcome.exit_status


_TEXTS_OF_CHECK = {
    "op": "Only this operator, by name or alias. Repeatable.",
    "dtype": "Only cases with an input of one of these dtypes.",
    "backend": "Backend to check, by name or kind.",
    "jobs": "Workers. [as many as processors for a backend that runs on them, else 1]",
    "resume": "Go on with a check.",
    "rerun_failed": "Only what went wrong in the latest or the named check; alone, with that check's options.",
}


@click.command("check", cls=GroupedCommand, short_help="Ask a backend everything that the operators have cases for.")
@options_of("check", texts=_TEXTS_OF_CHECK)
@_watch_option
@click.option("--list", "only_list", is_flag=True, help="Show the cases that would run, and run none.")
@click.option(
    "--write",
    "write_to",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Write the cases that would run to a plan, and run none.",
)
@click.option(
    "--write-expectations",
    "baseline",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Write what fails, each case with its reason and figure, to a file for --expectations.",
)
def check_command(only_list: bool, write_to: str | None, watch: bool, baseline: str | None, **given: Any) -> int:
    """Ask a backend the case sets of all operators, and say which answers are wrong.

    \b
    optest check --backend torch
    optest check --backend torch --op softmax --op sum --tier full
    optest check --backend torch --op sum --set layouts --write plan.yaml
    """
    from optest.api.worker_server import worker_server

    if only_list and write_to is not None:
        raise click.UsageError("--list and --write exclude each other")
    if ":" in (reference := given.get("reference") or ""):  # a slow one is silent for long
        how = "" if given.get("shape") else "; to specify them: --shape NAME=8x16 for each tensor, --dtype float32"
        click.echo(f"seeking inputs that {reference} takes, by some thousand calls{how}", err=True)
    with worker_server(given, usual_jobs=os.cpu_count() or 1) as forks:  # before NumPy is imported
        from optest.api import checking
        from optest.api.baseline import require_new, write_expectations
        from optest.api.running import closing_lines

        if only_list:
            echo_all(checking.listed(given))
            return 0
        if write_to is not None:
            click.echo(checking.write(given, write_to))
            return 0
        if watch:
            from optest.api.watching import watch as watched

            watched(partial(checking.check, forks=forks), given)
        if baseline is not None:
            require_new(baseline)
        outcome = checking.check(given, forks=forks)
    echo_all(closing_lines(given, outcome))
    if baseline is None or outcome.exit_status not in (0, 1):
        return outcome.exit_status
    text, others = write_expectations(baseline, outcome.results, group=given["group"])
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


@click.command("replay", cls=GroupedCommand, short_help="Run cases of a journal again; save tensors, write scripts.")
@click.argument("results", metavar="[RESULT]...", nargs=-1)
@_run_option
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
@options_of("replay")
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


@click.command("minimise", cls=GroupedCommand, short_help="Find the smallest case that fails as one of a run does.")
@click.argument("results", metavar="[RESULT]...", nargs=-1)
@_run_option
@click.option("--write", metavar="FILE", shell_complete=completer_of("file"), help="Write the smallest case as a plan.")
@click.option("--limit", "most_s", type=float, default=60.0, metavar="SECONDS", help="When to stop. [60]")
@options_of("replay")
def minimise_command(results: tuple[str, ...], run_id: str, write: str | None, most_s: float, **given: Any) -> int:
    """Make a failing case smaller and plainer for as long as it fails with the same reason, and run what is left.

    RESULT is as for `replay`; of several, and without one, the first failure is taken. Sizes become the usual small
    ones, or are halved; dimensions are dropped or made one, optional inputs dropped, layouts made dense, attributes set
    to their defaults, dtypes to float32 or int32, and inputs filled with ones. Inputs are drawn anew: a step that loses
    the fault is not taken.

    \b
    optest minimise 'matmul*'
    optest minimise --run latest --write smallest.yaml
    """
    from optest.api.minimising import minimise

    return minimise(results, run_id, given, most_s=most_s, write=write).exit_status

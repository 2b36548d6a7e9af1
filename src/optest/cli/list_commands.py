"""The commands that run no case: list, explain, report, diff, history, runs, schema, doctor and completion."""

from __future__ import annotations

from typing import Any

import click

from optest.cli.options import Command, GroupedCommand, completer_of, echo_all, options_of


@click.command("list", cls=GroupedCommand, short_help="List operators, backends, fills or cases.")
@click.argument("kind", type=click.Choice(["operators", "backends", "fills", "cases"]), required=False)
@options_of("list")
@click.option("--format", "form", type=click.Choice(["plain", "json"]), default="plain", help="[plain]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of columns.")
def list_command(kind: str | None, form: str, as_json: bool, **options: Any) -> int:
    """List operators, backends, fills, or the cases that `run` would run with the same flags.

    The default is cases if a plan or an operator is named, else operators.
    """
    from optest.api.listing import listing

    echo_all(listing(kind, options, as_json=as_json or form == "json"))
    return 0


@click.command("explain", cls=GroupedCommand, short_help="Describe an operator, a reason, or a case.")
@click.argument("case_id", metavar="[OPERATOR|VALUE|rule:NAME|CASE]", required=False)
@options_of("list", without="case")
def explain_command(case_id: str | None, **options: Any) -> int:
    """Describe an operator, a reason or a rule; or show the origin of each value of a case and the rule that applies.

    CASE is an id or a glob as `optest list cases` prints it; without a plan or operator, it names a case of the latest
    run.

    \b
    optest explain softmax
    optest explain VALUE
    optest explain rule:ulp
    optest explain --plan plan.yaml 'matmul half'
    """
    from optest.api.listing import explain

    echo_all(explain(case_id, options))
    return 0


_format_option = click.option(
    "--format",
    "form",
    metavar="NAME",
    default="terminal",
    shell_complete=completer_of("report"),
    help="As for `run --report`. [terminal]",
)
_output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Output file. [standard output]",
)


@click.command("report", cls=GroupedCommand, short_help="Write the report of a run.")
@click.argument("journals", metavar="[JOURNAL]...", nargs=-1, shell_complete=completer_of("run"))
@click.option("--trend", is_flag=True, help="Show changes between the named runs, else between runs like the latest.")
@click.option("--compare", is_flag=True, help="Show the calls of the named runs side by side, as of several backends.")
@_format_option
@_output_option
@click.option("--exit-code", is_flag=True, help="Exit as the run did; with 1 if --trend or --compare differ.")
@options_of("report")
def report_command(
    journals: tuple[str, ...],
    trend: bool,
    compare: bool,
    form: str,
    output: str | None,
    exit_code: bool,
    **options: object,
) -> int:
    """Write the report of a run, named by its id, `latest` (the default), its folder or its journal.

    --trend and --compare take two runs or more. The exit status is 0 if the report was written; with --exit-code it is
    that of the run.
    """
    from optest.api import report as reports

    if trend and compare:
        raise click.UsageError("--trend and --compare exclude each other")
    create = reports.compare if compare else reports.trend if trend else reports.report
    text, status = create(journals, form, output, options)
    click.echo(text if output is None else "", nl=False)
    return status if exit_code else 0


@click.command("diff", cls=GroupedCommand, short_help="Show what changed between two runs.")
@click.argument("runs", metavar="[RUN] [RUN]", nargs=-1, shell_complete=completer_of("run"))
@_format_option
@_output_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 if something got worse.")
@options_of("report")
def diff_command(runs: tuple[str, ...], form: str, output: str | None, exit_code: bool, **options: object) -> int:
    """Show what changed between two runs: new failures, fixed ones, other reasons, larger errors, longer times.

    By default the second RUN is the latest, and the first the one before it of the same plan and target.
    """
    from optest.api.report import diff

    if len(runs) > 2:
        raise click.UsageError(f"{len(runs)} runs are named, expected two; `optest report --trend` takes more")
    text, status = diff(runs, form, output, options)
    click.echo(text if output is None else "", nl=False)
    return status if exit_code else 0


@click.command("history", cls=GroupedCommand, short_help="Show when each case started to fail.")
@click.argument("cases", metavar="[CASE]...", nargs=-1)
@click.option(
    "--keep",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Add the runs here to this SQLite file, and show the history of all runs in it.",
)
@_format_option
@_output_option
@options_of("report")
def history_command(cases: tuple[str, ...], keep: str | None, form: str, output: str | None, **options: object) -> int:
    """Show when each case started to fail, when it passed last, whether it is flaky, and its time, over the runs here.

    CASE is an id or a glob. -v also shows cases that pass. A table below shows, for each operator, the largest error of
    passing cases as a share of the tolerance.
    """
    from optest.api.report import history

    text, status = history(cases, keep, form, output, options)
    click.echo(text if output is None else "", nl=False)
    return status


@click.command("runs", cls=GroupedCommand, short_help="List the runs here, and delete old ones.")
@click.option("--prune", "keep", type=click.IntRange(1), metavar="KEEP", help="Delete all runs but the newest KEEP.")
@options_of("runs")
def runs_command(keep: int | None, **options: Any) -> int:
    """List the runs with their start, command, size and results, the newest last.

    --prune deletes old runs, except one that is still being written.

    \b
    optest runs
    optest runs --prune 20
    """
    from optest.api.earlier_runs import runs

    echo_all(runs(options, keep))
    return 0


@click.command("schema", cls=Command, short_help="Print a JSON Schema, for editors.")
@click.argument("kind", type=click.Choice(["plan", "report", "journal", "model-cases"]))
def schema_command(kind: str) -> int:
    """Print the JSON Schema of plans or model cases (for editors), reports or journal lines."""
    from optest.api.report import schema

    click.echo(schema(kind))
    return 0


@click.command("doctor", cls=Command, short_help="Show versions, backends and missing packages.")
@click.option("--backend", metavar="NAME", shell_complete=completer_of("backend"), help="This backend only.")
def doctor_command(backend: str | None) -> int:
    """Show versions, backends, their devices, and why a backend is unavailable."""
    from optest.api.listing import doctor

    echo_all(doctor(backend))
    return 0


@click.command("completion", cls=Command, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, flags, operators, backends, dtypes and files.

    \b
    bash: optest completion bash > ~/.local/share/bash-completion/completions/optest
    zsh:  optest completion zsh > ~/.zfunc/_optest      (with fpath+=~/.zfunc before compinit)
    fish: optest completion fish > ~/.config/fish/completions/optest.fish
    """
    from click.shell_completion import get_completion_class

    root = ctx.find_root().command
    kind = get_completion_class(shell)
    assert kind is not None, f"click completes no {shell}"
    click.echo(kind(root, {}, "optest", "_OPTEST_COMPLETE").source())

"""The commands that run no case: list, explain, report, diff, history, schema, init, doctor and completion."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from optest.cli.options import Command, GroupedCommand, completer_of, echo_all, options_of


@click.command("list", cls=GroupedCommand, short_help="List operators, backends, fills or cases.")
@click.argument("what", type=click.Choice(["operators", "backends", "fills", "cases"]), required=False)
@options_of("list")
@click.option("--format", "form", type=click.Choice(["plain", "json"]), default="plain", help="[plain]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of columns.")
def list_command(what: str | None, form: str, as_json: bool, **given: Any) -> int:
    """List operators, backends, fills, or the cases that `run` would run with the same flags.

    Without WHAT: cases if a plan or an operator is given, else operators.
    """
    from optest.api.listing import listing

    echo_all(listing(what, given, as_json=as_json or form == "json"))
    return 0


@click.command("explain", cls=GroupedCommand, short_help="Describe an operator, a reason, or a case.")
@click.argument("case_id", metavar="[OPERATOR|VALUE|rule:NAME|CASE]", required=False)
@options_of("list", without="case")
def explain_command(case_id: str | None, **given: Any) -> int:
    """Describe an operator, a reason or a rule; or show where each value of a case came from and which rule applies.

    CASE is an id or a glob as `optest list cases` prints it; without a plan or operator, of a case of the latest run.

    \b
    optest explain softmax
    optest explain VALUE
    optest explain rule:ulp
    optest explain --plan plan.yaml 'matmul half'
    """
    from optest.api.listing import explain

    echo_all(explain(case_id, given))
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
    help="Where it is written. [standard output]",
)


@click.command("report", cls=GroupedCommand, short_help="Make a report from a journal.")
@click.argument("journals", metavar="[JOURNAL]...", nargs=-1, shell_complete=completer_of("run"))
@click.option("--trend", is_flag=True, help="What changed between runs: those named, else those like the latest.")
@click.option("--compare", is_flag=True, help="The calls of the named runs beside each other, as of several backends.")
@_format_option
@_output_option
@click.option("--exit-code", is_flag=True, help="End as the run did; with 1 if --trend or --compare tells bad news.")
@options_of("report")
def report_command(
    journals: tuple[str, ...],
    trend: bool,
    compare: bool,
    form: str,
    output: str | None,
    exit_code: bool,
    **given: object,
) -> int:
    """Make a report from a journal: a run's id, `latest` (if none is named), its folder or the journal itself.

    With --trend or --compare, two runs or more are compared. The exit status is 0 if the report was made, whatever it
    says, unless --exit-code asks for that of the run.
    """
    from optest.api import reports

    if trend and compare:
        raise click.UsageError("--trend and --compare exclude each other")
    make = reports.compare if compare else reports.trend if trend else reports.report
    text, status = make(journals, form, output, given)
    click.echo(text if output is None else "", nl=False)
    return status if exit_code else 0


@click.command("diff", cls=GroupedCommand, short_help="Show what changed between two runs.")
@click.argument("runs", metavar="[RUN] [RUN]", nargs=-1, shell_complete=completer_of("run"))
@_format_option
@_output_option
@click.option("--exit-code", is_flag=True, help="End with 1 if something got worse.")
@options_of("report")
def diff_command(runs: tuple[str, ...], form: str, output: str | None, exit_code: bool, **given: object) -> int:
    """Show what changed between two runs: new failures, fixed ones, other reasons, larger errors, longer times.

    The second RUN is the latest if it is not named; without any, the latest two of one plan and target are compared.
    """
    from optest.api.reports import diff

    if len(runs) > 2:
        raise click.UsageError("two runs are compared; `optest report --trend` takes more")
    text, status = diff(runs, form, output, given)
    click.echo(text if output is None else "", nl=False)
    return status if exit_code else 0


@click.command("history", cls=GroupedCommand, short_help="Show since when cases fail, over many runs.")
@click.argument("cases", metavar="[CASE]...", nargs=-1)
@click.option(
    "--keep",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Add the runs here to this SQLite file, and show the history of all that it has.",
)
@_format_option
@_output_option
@options_of("report")
def history_command(cases: tuple[str, ...], keep: str | None, form: str, output: str | None, **given: object) -> int:
    """Show since when each case fails, when it was well last, whether it is flaky, and its time, over the runs here.

    CASE is an id or a glob. Cases that are well are shown with -v. Below stands, for each operator, the largest error
    of what passed as a share of what is allowed.
    """
    from optest.api.reports import history

    text, status = history(cases, keep, form, output, given)
    click.echo(text if output is None else "", nl=False)
    return status


@click.command("runs", cls=GroupedCommand, short_help="List the runs here, and delete old ones.")
@click.option("--prune", "keep", type=click.IntRange(1), metavar="KEEP", help="Delete all runs but the newest KEEP.")
@options_of("runs")
def runs_command(keep: int | None, **given: Any) -> int:
    """List the runs with their start, command, size and results, the newest last.

    --prune deletes old runs, except one that is still being written.

    \b
    optest runs
    optest runs --prune 20
    """
    from optest.api.earlier_runs import runs

    echo_all(runs(given, keep))
    return 0


@click.command("schema", cls=Command, short_help="Print a JSON Schema, for editors.")
@click.argument("what", type=click.Choice(["plan", "report", "journal", "model-cases"]))
def schema_command(what: str) -> int:
    """Print the JSON Schema of plans or model cases (for editors), reports or journal lines."""
    from optest.api.reports import schema

    click.echo(schema(what))
    return 0


@click.command("doctor", cls=Command, short_help="Show versions, backends, and what is missing.")
@click.option("--backend", metavar="NAME", shell_complete=completer_of("backend"), help="This backend only.")
def doctor_command(backend: str | None) -> int:
    """Show versions, backends, their devices, and why one of them is unavailable."""
    from optest.api.doctor import doctor

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
    root = ctx.find_root().command
    kind = get_completion_class(shell)
    assert kind is not None, f"click completes no {shell}"
    click.echo(kind(root, {}, "optest", "_OPTEST_COMPLETE").source())

"""``optest report``, ``optest schema`` and ``optest doctor``."""

from __future__ import annotations

import click

from optest.cli.command import Command
from optest.cli.completing import completer_of
from optest.cli.options import GroupedCommand, options

__all__ = ["doctor_command", "report_command", "schema_command"]


@click.command("report", cls=GroupedCommand, short_help="Make a report from a journal.")
@click.argument("journals", metavar="[JOURNAL]...", nargs=-1, shell_complete=completer_of("run"))
@click.option("--trend", is_flag=True, help="What changed between runs: those named, else those like the latest.")
@click.option(
    "--format",
    "form",
    metavar="NAME",
    default="terminal",
    shell_complete=completer_of("report"),
    help="As for `run --report`. [terminal]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Where it is written. [standard output]",
)
@click.option("--exit-code", is_flag=True, help="End as the run did; with --trend with 1 if something got worse.")
@options(("runs_dir", "no_color", "verbose", "quiet"))
def report_command(
    journals: tuple[str, ...], trend: bool, form: str, output: str | None, exit_code: bool, **given: object
) -> int:
    """Make a report from a journal: a run's id, `latest` (if none is named), its folder or the journal itself.

    With --trend, two runs or more are compared. The exit status is 0 if the report was made, whatever it says, unless
    --exit-code asks for that of the run.
    """
    if trend:
        from optest.api.trending import trend as trend_of

        text, status = trend_of(journals, form, output, given)
    elif len(journals) > 1:
        raise click.UsageError(f"a report is of one run, but {len(journals)} are named; --trend compares them")
    else:
        from optest.api.reports import report

        text, status = report(journals[0] if journals else "latest", form, output, given)
    if output is None:
        click.echo(text, nl=False)
    return status if exit_code else 0


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

    for line in doctor(backend):
        click.echo(line)
    return 0

"""``optest check``."""

from __future__ import annotations

from typing import Any

import click

from optest.cli.completing import completer_of
from optest.cli.options import GroupedCommand, options
from optest.settings import resolve

__all__ = ["check_command"]

_OPTIONS = (
    *("op", "dtype", "seed", "tier", "case_set", "signed_zeros", "expectations"),
    *("backend", "chip", "torch_device", "keyword", "case", "tag", "skip_tag", "shard", "rerun_failed"),
    *("library", "headers", "mapping", "device", "guard", "probes", "threads", "sanitizer"),
    *("isolate", "jobs", "timeout", "retries", "exitfirst", "maxfail", "resume"),
    *("report", "report_path", "runs_dir", "durations", "no_color", "verbose", "quiet"),
)
_HELP = {
    "op": "Only this operator, by name or alias. Repeatable.",
    "dtype": "Only cases with an input of one of these dtypes.",
    "backend": "Backend that is asked, by name or kind.",
    "jobs": "Workers. [as many as processors for a backend that runs on them, else 1]",
    "resume": "Go on with a check.",
    "rerun_failed": "Only what went wrong in the latest or the named check; alone, as that check was asked.",
}


@click.command("check", cls=GroupedCommand, short_help="Ask a backend everything that the operators have cases for.")
@options(_OPTIONS, help=_HELP)
@click.option("--list", "only_list", is_flag=True, help="Show what would be asked, and ask nothing.")
@click.option(
    "--write",
    "write_to",
    metavar="FILE",
    shell_complete=completer_of("file"),
    help="Write what would be asked to a plan, and ask nothing.",
)
def check_command(only_list: bool, write_to: str | None, **given: Any) -> int:
    """Ask a backend the case sets of all operators, and say which answers are wrong.

    \b
    optest check --backend torch
    optest check --backend torch --op softmax --op sum --tier full
    optest check --backend torch --op sum --set layouts --write plan.yaml
    """
    from optest.api import checking
    from optest.api.durations import slowest

    if only_list and write_to is not None:
        raise click.UsageError("--list and --write exclude each other")
    if only_list:
        for line in checking.listed(given):
            click.echo(line)
        return 0
    if write_to is not None:
        click.echo(checking.write(given, write_to))
        return 0
    outcome = checking.check(given)
    for line in slowest(outcome.results, resolve(given)["durations"]):
        click.echo(line)
    return outcome.exit_status

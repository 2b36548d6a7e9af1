"""``optest run``."""

from __future__ import annotations

from typing import Any

import click

from optest.cli.options import GroupedCommand, options
from optest.settings import OPTIONS, resolve

__all__ = ["run_command"]


@click.command("run", cls=GroupedCommand, short_help="Run cases and judge every result.")
@options(option.name for option in OPTIONS if not option.only)
@click.option("--co", "--collect-only", "collect_only", is_flag=True, help="List the cases and run none of them.")
def run_command(collect_only: bool, **given: Any) -> int:
    """Run the cases of a plan, or one case made from flags, and judge every result.

    \b
    optest run --plan plan.yaml
    optest run --plan plan.yaml --backend torch -k "matmul and float16"
    optest run --op matmul --dtype float16 --shape input0=64x128 --shape input1=128x32 --backend torch
    """
    if collect_only:
        from optest.api.listing import listing

        for line in listing("cases", given):
            click.echo(line)
        return 0
    from optest.api.durations import slowest
    from optest.api.running import closing_notes, run

    outcome = run(given)
    settings = resolve(given)
    for line in slowest(outcome.results, settings["durations"]):
        click.echo(line)
    for line in closing_notes(settings, outcome):
        click.echo(line)
    return outcome.exit_status

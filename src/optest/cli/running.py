"""``optest run``."""

from __future__ import annotations

from typing import Any

import click

from optest.cli.options import GroupedCommand, options
from optest.settings import OPTIONS

__all__ = ["run_command"]


@click.command("run", cls=GroupedCommand, short_help="Run cases and judge every result.")
@options(option.name for option in OPTIONS if not option.only)
def run_command(**given: Any) -> int:
    """Run the cases of a plan, or one case made from flags, and judge every result.

    \b
    optest run --plan plan.yaml
    optest run --plan plan.yaml --backend torch -k "matmul and float16"
    optest run --op matmul --dtype float16 --shape input0=64x128 --shape input1=128x32 --backend torch
    """
    from optest.api.running import run

    return run(given).exit_status

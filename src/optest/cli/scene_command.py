"""``python test_x.py -p cpusim``: a command that runs the scenes of one file."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from optest.cli import main
from optest.cli.options import GroupedCommand, options_of
from optest.cli.run_commands import collect_only_option, run_and_close


@click.command(cls=GroupedCommand, context_settings={"help_option_names": ["-h", "--help"]})
@options_of("scene")
@collect_only_option
def scene_command(collect_only: bool, **options: Any) -> int:
    """Run the scenes of this file and compare their outputs, as `optest run --source scene:FILE` does."""
    source = (f"scene:{sys.modules['__main__'].__file__}",)
    return run_and_close({**options, "source": source}, collect_only=collect_only)


def run_module() -> NoReturn:
    """Run the scenes of the file that was started as the program, and exit with their status."""
    sys.exit(main(command=scene_command))

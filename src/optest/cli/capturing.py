"""``optest capture``."""

from __future__ import annotations

import click

from optest.cli.command import Command
from optest.cli.completing import completer_of

__all__ = ["capture_command"]


@click.command("capture", cls=Command, short_help="Write the operators that a model calls as cases.")
@click.argument("what", metavar="SCRIPT_OR_MODEL", shell_complete=completer_of("file"))
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.yaml",
    shell_complete=completer_of("file"),
    help="Where the cases are written.",
)
@click.option("--model", default="", metavar="NAME", help="Name of the model in the file. [that of the script]")
@click.option(
    "--level",
    type=click.Choice(["torch", "aten"]),
    default="torch",
    help="torch: as the model calls it; aten: what reaches torch's dispatcher. [torch]",
)
@click.option(
    "--ops", multiple=True, metavar="PATTERN", help="Operators by name or glob: linear,torch.nn.*. Repeatable."
)
@click.option(
    "--min-bytes", type=click.IntRange(min=0), default=0, help="Leave out calls with smaller tensors, in all."
)
@click.option(
    "--max-bytes", type=click.IntRange(min=0), default=None, help="Leave out calls with larger tensors, in all."
)
@click.option(
    "--shrink-to",
    type=click.IntRange(min=8),
    default=None,
    metavar="SIZE",
    help="Divide larger sizes, alike in all tensors of a call, until they fit.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, help="Of the model's random numbers and of the file. [0]"
)
@click.option("--config", multiple=True, metavar="KEY=VALUE|FILE", help="With hf:CLASS: its configuration. Repeatable.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def capture_command(
    what: str,
    output: str,
    model: str,
    level: str,
    ops: tuple[str, ...],
    min_bytes: int,
    max_bytes: int | None,
    shrink_to: int | None,
    seed: int,
    config: tuple[str, ...],
    force: bool,
) -> int:
    """Run a model once and write every call of torch that it makes as a case of FILE.yaml.

    \b
    optest capture model.py -o model.yaml            the whole script
    optest capture model.py:forward -o model.yaml    a function of it, without what loading it calls
    optest capture package.model:forward -o model.yaml
    optest capture hf:GPT2LMHeadModel --config n_layer=2 -o gpt2.yaml

    The function takes no arguments. The script runs here, with your rights, as `python model.py` does.
    """
    from optest.api.capturing import capture

    written = capture(
        what,
        output,
        model=model,
        level=level,
        ops=ops,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        shrink_to=shrink_to,
        seed=seed,
        config=config,
        force=force,
    )
    for line in written.lines():
        click.echo(line)
    return 0

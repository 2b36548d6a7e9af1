"""``optest completion`` and what a shell is told when a value is half typed."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem, get_completion_class

from optest.cli.command import Command

__all__ = ["completer_of", "completion_command"]

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_FILES = ("plan", "report_path", "expectations", "library", "headers", "mapping", "file")
_DIRS = ("runs_dir", "folder")
_LISTED = ("op", "backend", "dtype", "generator", "report", "case_set", "bench_against")
_RUNS = ("run", "resume", "rerun_failed", "failed_first")


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


def completer_of(option: str) -> Completer | None:
    """How values of an option are completed, of a ``file``, ``folder`` or ``run`` too; None if nothing is known."""
    if option in _FILES:
        return lambda _ctx, _parameter, incomplete: [CompletionItem(incomplete, type="file")]
    if option in _DIRS:
        return lambda _ctx, _parameter, incomplete: [CompletionItem(incomplete, type="dir")]

    def names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from optest.api.completing import names_for

        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in names_for(option) if name.startswith(last)]

    return names if option in (*_LISTED, *_RUNS) else None

"""``optest list`` and ``optest explain``."""

from __future__ import annotations

from typing import Any

import click

from optest.cli.options import GroupedCommand, options

__all__ = ["explain_command", "list_command"]

_CASES = (
    *("plan", "source", "op", "dtype", "shape", "attr", "generator", "reference", "tolerance", "signed_zeros", "seed"),
    *("backend", "chip", "torch_device", "keyword", "case", "tag", "skip_tag", "priority_max", "shard"),
    *("library", "headers", "mapping", "device", "guard", "probes", "threads", "sanitizer"),
    *("rerun_failed", "failed_first", "timeout", "retries", "untrusted", "runs_dir"),
)


@click.command("list", cls=GroupedCommand, short_help="List operators, backends, fills or cases.")
@click.argument("what", type=click.Choice(["operators", "backends", "fills", "cases"]), required=False)
@options(_CASES)
@click.option("--format", "form", type=click.Choice(["plain", "json"]), default="plain", help="[plain]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of columns.")
def list_command(what: str | None, form: str, as_json: bool, **given: Any) -> int:
    """List operators, backends, fills, or the cases that `run` would run with the same flags.

    Without WHAT: cases if a plan or an operator is given, else operators.
    """
    from optest.api.listing import listing

    for line in listing(what, given, as_json=as_json or form == "json"):
        click.echo(line)
    return 0


@click.command("explain", cls=GroupedCommand, short_help="Show where each value of a case came from.")
@click.argument("case_id", metavar="CASE", required=False)
@options(name for name in _CASES if name != "case")
def explain_command(case_id: str | None, **given: Any) -> int:
    """Show where each value of a case came from and which rule will judge it.

    CASE is an id or a glob as `optest list cases` prints it.
    """
    from optest.api.listing import explain

    for line in explain(case_id, given):
        click.echo(line)
    return 0

"""A command of ``optest`` that sees where an option's value was left out."""

from __future__ import annotations

import click

__all__ = ["Command"]


class Command(click.Command):
    """An option does not take the next one for its value: ``--save --script`` would make a folder of that name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError:
            self._require_own_values(ctx)
            raise
        self._require_own_values(ctx)
        return rest

    def _require_own_values(self, ctx: click.Context) -> None:
        if ctx.resilient_parsing:  # half a line, to be completed
            return
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        flags = {flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag[:2] == "--"}
        for option in options:
            stated = ctx.params.get(option.name or "")
            for value in stated if isinstance(stated, tuple) else (stated,):
                if isinstance(value, str) and value.partition("=")[0] in flags:
                    own = option.opts[-1] if option.opts[-1][:2] == "--" else option.opts[0]
                    raise click.UsageError(f"{own} needs a value, but {value} comes next, which is an option", ctx)

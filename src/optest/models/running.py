"""``optest model run`` and ``export-weights``: a model on one backend, compared with nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from optest.errors import UsageError, plural, shortened
from optest.guests import CommandContext
from optest.models.generation import MOST_TOKENS, fed_tokens, generated, prompt_of
from optest.models.hooks import Hooks
from optest.models.opened import is_file, named_model, runnable
from optest.numerics import dtype_of, widen
from optest.registry import load_object
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns, printable
from optest.spec import format_shape

_ROWS = 4


def run_command(context: CommandContext, **given: Any) -> int:
    """Run a model forward, or with ``prompt`` let it write."""
    about_text = [name for name in ("max_tokens", "temperature", "tokenizer", "kv_cache") if given[name]]
    if given["prompt"] is None and about_text:
        raise UsageError(f"--{about_text[0].replace('_', '-')} is about text: state --prompt, too")
    for line in _forward_lines(given) if given["prompt"] is None else _text_lines(given):
        context.echo(line)
    return 0


def _forward_lines(given: Mapping[str, Any]) -> Iterator[str]:
    hooks, model = Hooks(given), runnable(given)
    yield from (f"{given['what']} on {model.backend}: {model.program}", *model.notes)
    began = time.perf_counter()
    outputs = hooks.executed(model.program, model.feeds)
    took = time.perf_counter() - began
    rows = [("output", "dtype", "shape", "least", "largest")]
    for name, each in outputs.items():
        has_ends = each.size and each.dtype.kind != "c"
        ends = (f"{end:.4g}" for end in (widen(each).min(), widen(each).max())) if has_ends else ("", "")
        rows.append((name, dtype_of(each.dtype).name, format_shape(each.shape), *ends))
    yield from columns(rows, left=frozenset({0, 1, 2}))
    for name, each in outputs.items():
        if each.size and each.ndim > 1 and ("logit" in name or len(outputs) == 1):
            last = widen(each.reshape(each.shape[0], -1, each.shape[-1])[:, -1])  # one row for each of the batch
            tops = [f"{row.argmax()} ({row.max():.5g})" for row in last]
            yield f"  {name}, top-1 of the last axis: {shortened(tops, _ROWS)}"
    yield f"time: {seconds_text(took)} for the first run, loading included"
    yield from hooks.closing_lines(model.program, model.feeds)


def _text_lines(given: Mapping[str, Any]) -> Iterator[str]:
    hooks, prompt = Hooks(given), prompt_of(given["prompt"], given["tokenizer"])
    sizes = {} if is_file(given["what"]) else {"batch": 1, "tokens": len(prompt.ids)}
    model = runnable(given, **sizes, room=given["max_tokens"] or MOST_TOKENS)
    yield from (f"{given['what']} on {model.backend}: {model.program}", *model.notes, *prompt.notes)
    began = time.perf_counter()
    ids = list(generated(model, hooks, prompt.ids, given))
    took = time.perf_counter() - began
    yield f"ids: {' '.join(map(str, ids))}"
    yield f"text: {printable(prompt.text_of([*prompt.ids, *ids]))}"
    drawn = f"drawn at temperature {given['temperature']:g}, seed {given['seed']}"
    how = drawn if given["temperature"] else "each the likeliest"
    rate = f"{len(ids) / took:.3g} tokens/s, loading included"
    yield f"time: {seconds_text(took)} for {plural(len(ids), 'token')}, {how}; {rate}"
    yield from hooks.closing_lines(model.program, fed_tokens(model, prompt.ids))


def export_weights_command(context: CommandContext, **given: Any) -> int:
    """Write the weights of a model by its name."""
    if is_file(given["what"]):
        raise UsageError(f"{given['what']} is a file; weights are exported of a model by its name")
    model = named_model(given)
    load_object("optest.torch.models.weights:save_weights")(model, Path(given["out"]))
    count = sum(each.numel() for each in model.module.parameters())
    context.echo(f"{given['out']}: {count:,} parameters of {given['what']}")
    return 0

"""``optest model run`` and ``export-weights``: runs without a comparison, and files of weights."""

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


def run_command(context: CommandContext, **options: Any) -> int:
    """Run a model forward, or generate text if there is a ``prompt``; return 0."""
    about_text = [name for name in ("max_tokens", "temperature", "tokenizer", "kv_cache") if options[name]]
    if options["prompt"] is None and about_text:
        raise UsageError(f"--{about_text[0].replace('_', '-')} applies to text generation: add --prompt")
    for line in _forward_lines(options) if options["prompt"] is None else _text_lines(options):
        context.echo(line)
    return 0


def _forward_lines(options: Mapping[str, Any]) -> Iterator[str]:
    """Execute the model once; yield lines with dtype, shape and range of its outputs, and the time with loading."""
    hooks, model = Hooks(options), runnable(options)
    yield from (f"{options['what']} on {model.backend}: {model.program}", *model.notes)
    began = time.perf_counter()
    outputs = hooks.executed(model.program, model.feeds)
    took = time.perf_counter() - began
    rows = [("output", "dtype", "shape", "least", "largest")]
    for name, array in outputs.items():
        has_ends = array.size and array.dtype.kind != "c"
        ends = (f"{end:.4g}" for end in (widen(array).min(), widen(array).max())) if has_ends else ("", "")
        rows.append((name, dtype_of(array.dtype).name, format_shape(array.shape), *ends))
    yield from columns(rows, left=frozenset({0, 1, 2}))
    for name, array in outputs.items():
        if array.size and array.ndim > 1 and ("logit" in name or len(outputs) == 1):
            last = widen(array.reshape(array.shape[0], -1, array.shape[-1])[:, -1])  # one row per batch element
            tops = [f"{row.argmax()} ({row.max():.5g})" for row in last]
            yield f"  {name}, top-1 of the last axis: {shortened(tops, _ROWS)}"
    yield f"time: {seconds_text(took)} for the first run, including loading"
    yield from hooks.closing_lines(model.program, model.feeds)


def _text_lines(options: Mapping[str, Any]) -> Iterator[str]:
    hooks, prompt = Hooks(options), prompt_of(options["prompt"], options["tokenizer"])
    sizes = {} if is_file(options["what"]) else {"batch": 1, "tokens": len(prompt.ids)}
    model = runnable(options, **sizes, room=options["max_tokens"] or MOST_TOKENS)
    yield from (f"{options['what']} on {model.backend}: {model.program}", *model.notes, *prompt.notes)
    began = time.perf_counter()
    ids = list(generated(model, hooks, prompt.ids, options))
    took = time.perf_counter() - began
    yield f"ids: {' '.join(map(str, ids))}"
    yield f"text: {printable(prompt.text_of([*prompt.ids, *ids]))}"
    drawn = f"drawn at temperature {options['temperature']:g}, seed {options['seed']}"
    how = drawn if options["temperature"] else "each the likeliest"
    rate = f"{len(ids) / took:.3g} tokens/s, including loading"
    yield f"time: {seconds_text(took)} for {plural(len(ids), 'token')}, {how}; {rate}"
    yield from hooks.closing_lines(model.program, fed_tokens(model, prompt.ids))


def export_weights_command(context: CommandContext, **options: Any) -> int:
    """Write the weights of a named model to ``out``; return 0."""
    if is_file(options["what"]):
        raise UsageError(f"{options['what']} is a file, expected a named model: only its weights can be exported")
    model = named_model(options)
    load_object("optest.torch.models.weights:save_weights")(model, Path(options["out"]))
    count = sum(parameter.numel() for parameter in model.module.parameters())
    context.echo(f"{options['out']}: {count:,} parameters of {options['what']}")
    return 0

"""``optest model run`` and ``export-weights``: a model on one backend, compared with nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from optest.errors import UsageError
from optest.guests import CommandContext
from optest.models.generation import MOST_TOKENS, fed_tokens, generated, prompt_of
from optest.models.hooks import Hooks
from optest.models.opened import is_file
from optest.models.runnable import Runnable, model_by_name, runnable
from optest.numerics import Array, dtype_of, widen
from optest.registry import load_object
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns, plural, printable
from optest.spec import Fault, Reason, format_shape

__all__ = ["export_weights_command", "faults_told", "hook_lines", "run_command"]

_ROWS = 4
_EXIT_OF = {Reason.UNSUPPORTED: 5, Reason.UNAVAILABLE: 5}
_Command = Callable[..., int]


def faults_told(command: _Command) -> _Command:
    """A fault is one line and the exit status: 5 for what is not possible here, else 1."""

    @wraps(command)
    def told(context: CommandContext, **given: Any) -> int:
        try:
            return command(context, **given)
        except Fault as fault:
            context.echo(f"optest: {fault.reason.value}: {fault.message}", err=True)
            return _EXIT_OF.get(fault.reason, 1)

    return told


@faults_told
def run_command(context: CommandContext, **given: Any) -> int:
    """Run a model forward, or with ``prompt`` let it write."""
    about_text = [name for name in ("max_tokens", "temperature", "tokenizer", "kv_cache") if given[name]]
    if given["prompt"] is None and about_text:
        raise UsageError(f"--{about_text[0].replace('_', '-')} is about text: state --prompt, too")
    for line in _forward_lines(given) if given["prompt"] is None else _text_lines(given):
        context.echo(line)
    return 0


def _forward_lines(given: Mapping[str, Any]) -> Iterator[str]:
    hooks, model = _hooks(given), runnable(given)
    yield from (f"{given['what']} on {model.backend}: {model.program}", *model.notes)
    began = time.perf_counter()
    outputs = hooks.executed(model.program, model.feeds)
    took = time.perf_counter() - began
    rows = [
        (name, dtype_of(each.dtype).name, format_shape(each.shape), *_range(each)) for name, each in outputs.items()
    ]
    yield from columns([("output", "dtype", "shape", "least", "largest"), *rows], left=frozenset({0, 1, 2}))
    for name, each in outputs.items():
        if each.size and each.ndim > 1 and ("logit" in name or len(outputs) == 1):
            yield f"  {name}, top-1 of the last axis: {', '.join(_tops(each))}"
    yield f"time: {seconds_text(took)} for the first run, loading included"
    yield from hooks.closing_lines(model.program, model.feeds)


def _text_lines(given: Mapping[str, Any]) -> Iterator[str]:
    hooks, prompt = _hooks(given), prompt_of(given["prompt"], given["tokenizer"])
    sizes = {} if is_file(given["what"]) else {"batch": 1, "tokens": len(prompt.ids)}
    model = runnable(given, **sizes, room=given["max_tokens"] or MOST_TOKENS)
    yield from (f"{given['what']} on {model.backend}: {model.program}", *model.notes, *prompt.notes)
    temperature, seed = given["temperature"], given["seed"]
    sampling = {"temperature": temperature, "seed": seed, "keeps": given["kv_cache"]}
    began = time.perf_counter()
    ids = list(generated(model, hooks, prompt.ids, given["max_tokens"], **sampling))
    took = time.perf_counter() - began
    yield f"ids: {' '.join(map(str, ids))}"
    yield f"text: {printable(prompt.text_of([*prompt.ids, *ids]))}"
    how = f"drawn at temperature {temperature:g}, seed {seed}" if temperature else "each the likeliest"
    rate = f"{len(ids) / took:.3g} tokens/s, loading included"
    yield f"time: {seconds_text(took)} for {plural(len(ids), 'token')}, {how}; {rate}"
    yield from hooks.closing_lines(model.program, fed_tokens(model, prompt.ids))


def _range(value: Array) -> tuple[str, str]:
    wide = widen(value)
    if not wide.size or wide.dtype.kind == "c":
        return "", ""
    return f"{wide.min():.4g}", f"{wide.max():.4g}"


def _tops(logits: Array) -> Iterator[str]:
    """The largest element of the last rows, one for each element of the batch."""
    rows = widen(logits.reshape(logits.shape[0], -1, logits.shape[-1])[:, -1])
    for row in rows[:_ROWS]:
        yield f"{row.argmax()} ({row.max():.5g})"
    if len(rows) > _ROWS:
        yield f"and {len(rows) - _ROWS} more"


def hook_lines(given: Mapping[str, Any], model: Runnable | None = None) -> Iterator[str]:
    """What ``dump_dir``, ``dump_mode`` and ``profile`` of a command keep and show of one run of its model.

    The model is opened as the command says, unless it is here already.

    Raises:
        UsageError, Unavailable, Fault: as :func:`runnable`, and whatever the run raises.
    """
    hooks = _hooks(given)
    if given["dump_dir"] or given["profile"]:
        model = model or runnable(given)
        if given["dump_dir"]:
            hooks.executed(model.program, model.feeds)
        yield from hooks.closing_lines(model.program, model.feeds)


def _hooks(given: Mapping[str, Any]) -> Hooks:
    folder = Path(given["dump_dir"]) if given["dump_dir"] else None
    return Hooks(folder, given["dump_mode"], profiles=given["profile"], trace=given.get("trace", "profile.json"))


@faults_told
def export_weights_command(context: CommandContext, **given: Any) -> int:
    """Write the weights of a model by its name."""
    if is_file(given["what"]):
        raise UsageError(f"{given['what']} is a file; weights are exported of a model by its name")
    model = model_by_name(given)
    path = Path(given["out"])
    load_object("optest.torch.models.weights:save_weights")(model, path)
    count = sum(each.numel() for each in model.module.parameters())
    context.echo(f"{path}: {count:,} parameters of {given['what']}")
    return 0

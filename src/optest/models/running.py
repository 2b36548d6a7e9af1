"""``optest model run`` and ``export-weights``: runs without a comparison, generation of text, files of weights."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optest.core.border import Border
from optest.errors import Unavailable, UsageError, plural, shortened
from optest.generators.counter import Stream
from optest.guests import CommandContext
from optest.models.dumps import Hooks
from optest.models.opened import Runnable, is_file, named_model, runnable
from optest.numerics import Array, dtype_of, same_bits, widen
from optest.registry import is_installed, load_object
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns, printable
from optest.spec import Fault, Reason, format_shape

_ROWS = 4
_IDS = re.compile(r"\d+(?:[\s,]+\d+)*")
_MOST_TOKENS = 128


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
    model = runnable(options, **sizes, room=options["max_tokens"] or _MOST_TOKENS)
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


# Text generation by a causal language model, token by token from the logits of the last position.


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens of a prompt, and the function that converts tokens to text."""

    ids: Sequence[int]
    text_of: Callable[[Sequence[int]], str]
    notes: Sequence[str] = ()


def prompt_of(text: str, tokenizer: str | None) -> Prompt:
    """Tokenize a prompt: by the file ``tokenizer``, else as ids if ``text`` has only numbers, else as bytes.

    Raises:
        UsageError: for an empty prompt or a missing file.
        Unavailable: for a file without the package tokenizers.
        Fault: BAD_CASE for a file that is not a tokenizer.
    """
    if tokenizer:
        if not Path(tokenizer).is_file():
            raise UsageError(f"--tokenizer is {tokenizer}, which does not exist")
        if not is_installed("tokenizers"):
            raise Unavailable(f"reading {tokenizer}", "pip install tokenizers; or write ids: --prompt '464 2068'")
        with Border(f"tokenizers, reading {tokenizer},", Reason.BAD_CASE):
            codec = load_object("tokenizers:Tokenizer").from_file(tokenizer)
            prompt = Prompt(codec.encode(text).ids, codec.decode)
    elif _IDS.fullmatch(text.strip()):
        prompt = Prompt([int(word) for word in re.findall(r"\d+", text)], lambda ids: " ".join(map(str, ids)))
    else:

        def text_of(ids: Sequence[int]) -> str:
            return b"".join(bytes([x]) if x < 256 else f"<{x}>".encode() for x in ids).decode(errors="replace")

        prompt = Prompt(list(text.encode()), text_of, ("no --tokenizer: each byte of the text is a token",))
    if not prompt.ids:
        raise UsageError("the prompt has no tokens, expected at least one")
    return prompt


def generated(model: Runnable, hooks: Hooks, ids: Sequence[int], options: Mapping[str, Any]) -> Iterator[int]:
    """Yield ``max_tokens`` tokens that follow ``ids``: the likeliest at ``temperature`` 0, else sampled by the seed.

    Without ``max_tokens``, yield 128 or as many as fit. A program with a fixed number of tokens gets padding at the
    end. With ``kv_cache``, each step computes only its new token.

    Raises:
        UsageError: for a model that is not a language model, or has no such token, too little room or no cache.
        Fault: NAN for NaN in the logits, STATE if padding changes the logits.
    """
    if model.vocabulary and max(ids) >= model.vocabulary:
        hint = f"expected below {model.vocabulary}, the model's vocabulary; see --tokenizer"
        raise UsageError(f"a token of the prompt is {max(ids)}, {hint}")
    size, count = _input_of_tokens(model)[1], options["max_tokens"]
    room = min((x for x in (size, model.context) if isinstance(x, int) and x), default=0)
    if room and len(ids) + (count or 1) > room:
        needed = f"the prompt of {len(ids)} tokens and {count or 1} new ones"
        raise UsageError(f"{needed} do not fit into the model's {room} positions; see --config and --max-tokens")
    count = count or min(_MOST_TOKENS, room - len(ids) if room else _MOST_TOKENS)
    keeps = options["kv_cache"]
    if keeps and not getattr(model.program, "keep_cache", lambda: False)():
        raise UsageError(f"{model.backend} has no key-value cache for this model; omit --kv-cache")
    tokens, known = list(ids), 0
    for step in range(count):
        feeds = fed_tokens(model, tokens[known:])
        logits = _last_logits(hooks.executed(model.program, feeds), len(tokens) - known)
        if step == 0 and isinstance(size, int) and size > len(tokens):
            padded = model.program.outputs(fed_tokens(model, tokens, padding=1))
            if not same_bits([_last_logits(padded, len(tokens))], [logits]):
                raise Fault(Reason.STATE, "later tokens change the logits of earlier ones: the model is not causal")
        known = len(tokens) if keeps else 0
        stream = Stream(f"model run {options['seed']}", f"token {step}")
        tokens.append(_choose_token(logits, options["temperature"], stream))
        yield tokens[-1]


def _input_of_tokens(model: Runnable) -> tuple[str, int | str]:
    """Return the name of the token input, and its number of tokens, a text if that is open; else raise UsageError."""
    specs = {name: sizes for name, kind, sizes in model.program.specs() if kind.startswith("int") and len(sizes) == 2}
    names = [name for name in specs if not any(word in name for word in ("mask", "position", "type"))]
    if len(names) != 1 or any(name not in specs for name in model.feeds):
        inputs = ", ".join(model.feeds)
        raise UsageError(f"the model's inputs are {inputs}, expected one input of token ids for --prompt")
    return names[0], specs[names[0]][1]


def fed_tokens(model: Runnable, tokens: Sequence[int], padding: int = 0) -> dict[str, Array]:
    """Return all inputs for one sequence: padded tokens, ascending positions, masks of ones, token types of zeros."""
    name, size = _input_of_tokens(model)
    length = size if isinstance(size, int) else len(tokens)
    values: dict[str, Any] = {name: [*tokens, *[padding] * (length - len(tokens))]}
    for extra in model.feeds.keys() - {name}:
        values[extra] = range(length) if "position" in extra else [int("mask" in extra)] * length
    return {key: np.array([values[key]], array.dtype) for key, array in model.feeds.items()}


def _last_logits(outputs: Mapping[str, Array], position: int) -> Array:
    """Return the logits of a position from 1 of the first sequence; UsageError if the output has no such position."""
    name = "logits" if "logits" in outputs else next(iter(outputs))
    shape = outputs[name].shape
    if len(shape) != 3 or shape[1] < position:
        raise UsageError(f"output {name} has shape {list(shape)}, expected logits of [batch, tokens, vocabulary]")
    return np.asarray(outputs[name][0, position - 1])


def _choose_token(logits: Array, temperature: float, stream: Stream) -> int:
    """Choose a token: argmax at temperature 0, else by inverse sampling of softmax(logits / temperature) in float64."""
    wide = widen(logits)
    if np.isnan(wide).any():
        raise Fault(Reason.NAN, "the logits contain NaN, so no token can be chosen")
    if temperature == 0:
        return int(np.argmax(wide))
    sums = np.cumsum(np.exp((wide - wide.max()) / temperature))
    return int(np.searchsorted(sums, float(stream.head(1)[0]) / 2**64 * sums[-1], side="right"))

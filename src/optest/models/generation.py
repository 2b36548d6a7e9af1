"""Text of a causal language model: tokens chosen one by one by the logits of the last position."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optest.core.border import Border
from optest.errors import Unavailable, UsageError
from optest.generators.counter import Stream
from optest.models.hooks import Hooks
from optest.models.opened import Runnable
from optest.numerics import Array, same_bits, widen
from optest.registry import is_installed, load_object
from optest.spec import Fault, Reason

_IDS = re.compile(r"\d+(?:[\s,]+\d+)*")
MOST_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens, and how the tokens of an answer are shown."""

    ids: Sequence[int]
    text_of: Callable[[Sequence[int]], str]
    notes: Sequence[str] = ()


def prompt_of(text: str, tokenizer: str | None) -> Prompt:
    """The tokens of a prompt: by a file of the package tokenizers, else ids where it has numbers alone, else bytes.

    Raises:
        UsageError: for a prompt without a token, or a file that is not there.
        Unavailable: without the package, where a file is stated.
        Fault: BAD_CASE for a file that is no tokenizer.
    """
    if tokenizer:
        if not Path(tokenizer).is_file():
            raise UsageError(f"{tokenizer} is not there")
        if not is_installed("tokenizers"):
            raise Unavailable(f"reading {tokenizer}", "pip install tokenizers; or state ids: --prompt '464 2068'")
        with Border(f"tokenizers, as it read {tokenizer},", Reason.BAD_CASE):
            found = load_object("tokenizers:Tokenizer").from_file(tokenizer)
            made = Prompt(found.encode(text).ids, found.decode)
    elif _IDS.fullmatch(text.strip()):
        made = Prompt([int(word) for word in re.findall(r"\d+", text)], lambda ids: " ".join(map(str, ids)))
    else:
        made = Prompt(list(text.encode()), _text_of_bytes, ("no --tokenizer: bytes are tokens, and back",))
    if not made.ids:
        raise UsageError("the prompt has no token; state one at least")
    return made


def _text_of_bytes(ids: Sequence[int]) -> str:
    return b"".join(bytes([each]) if each < 256 else f"<{each}>".encode() for each in ids).decode(errors="replace")


def generated(model: Runnable, hooks: Hooks, ids: Sequence[int], given: Mapping[str, Any]) -> Iterator[int]:
    """``max_tokens`` tokens after ``ids``: the likeliest at ``temperature`` 0, else drawn, the same for the same seed.

    Without a number there are 128, or as many as there is room for. A program that takes a fixed number of tokens gets
    padding behind, which may not change what is before. With ``kv_cache`` a step computes its own token alone.

    Raises:
        UsageError: for a model whose inputs are not those of a language model, that does not know a token, has too
            little room, or no cache.
        Fault: NAN for logits that are no numbers, STATE if padding changes them.
    """
    if model.vocabulary and max(ids) >= model.vocabulary:
        vocabulary = f"the model knows {model.vocabulary}: see --tokenizer"
        raise UsageError(f"the prompt has the token {max(ids)}, but {vocabulary}")
    size, count = _input_of_tokens(model)[1], given["max_tokens"]
    room = min((each for each in (size, model.context) if isinstance(each, int) and each), default=0)
    if room and len(ids) + (count or 1) > room:
        needed = f"{len(ids)} tokens and {count or 1} more"
        raise UsageError(f"{needed} do not fit: the model has room for {room}; see --config")
    count = count or min(MOST_TOKENS, room - len(ids) if room else MOST_TOKENS)
    keeps = given["kv_cache"]
    if keeps and not getattr(model.program, "keep_cache", lambda: False)():
        raise UsageError(f"{model.backend} has no cache of keys and values for this model: leave --kv-cache out")
    tokens, known = list(ids), 0
    for step in range(count):
        feeds = fed_tokens(model, tokens[known:])
        logits = _last_logits(hooks.executed(model.program, feeds), len(tokens) - known)
        if step == 0 and isinstance(size, int) and size > len(tokens):
            again = model.program.outputs(fed_tokens(model, tokens, padding=1))
            if not same_bits([_last_logits(again, len(tokens))], [logits]):
                raise Fault(Reason.STATE, "what comes behind a position changes its logits: the model is not causal")
        known = len(tokens) if keeps else 0
        stream = Stream(f"model run {given['seed']}", f"token {step}")
        tokens.append(_chosen(logits, given["temperature"], stream))
        yield tokens[-1]


def _input_of_tokens(model: Runnable) -> tuple[str, int | str]:
    """Name of the input, and how many tokens it takes."""
    specs = {name: sizes for name, kind, sizes in model.program.specs() if kind.startswith("int") and len(sizes) == 2}
    names = [name for name in specs if not any(word in name for word in ("mask", "position", "type"))]
    if len(names) != 1 or any(name not in specs for name in model.feeds):
        inputs = ", ".join(model.feeds)
        raise UsageError(f"the model's inputs are {inputs}, but --prompt needs those of a language model")
    return names[0], specs[names[0]][1]


def fed_tokens(model: Runnable, tokens: Sequence[int], padding: int = 0) -> dict[str, Array]:
    """All inputs for one sequence: tokens, positions in their order, masks of ones, types of zeros."""
    name, size = _input_of_tokens(model)
    length = size if isinstance(size, int) else len(tokens)
    values: dict[str, Any] = {name: [*tokens, *[padding] * (length - len(tokens))]}
    for other in model.feeds.keys() - {name}:
        values[other] = range(length) if "position" in other else [int("mask" in other)] * length
    return {other: np.array([values[other]], each.dtype) for other, each in model.feeds.items()}


def _last_logits(outputs: Mapping[str, Array], position: int) -> Array:
    name = "logits" if "logits" in outputs else next(iter(outputs))
    shape = outputs[name].shape
    if len(shape) != 3 or shape[1] < position:
        raise UsageError(f"output {name} has the shape {list(shape)}, but logits are [batch, tokens, vocabulary]")
    return np.asarray(outputs[name][0, position - 1])


def _chosen(logits: Array, temperature: float, stream: Stream) -> int:
    """By the inverse of the distribution softmax(logits / temperature), in float64."""
    wide = widen(logits)
    if np.isnan(wide).any():
        raise Fault(Reason.NAN, "the logits have NaN; no token can be chosen")
    if temperature == 0:
        return int(np.argmax(wide))
    sums = np.cumsum(np.exp((wide - wide.max()) / temperature))
    return int(np.searchsorted(sums, float(stream.head(1)[0]) / 2**64 * sums[-1], side="right"))

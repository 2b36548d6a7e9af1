"""Tokens of a language model, chosen by its logits; programs here are NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.errors import UsageError
from optest.models.dumps import Hooks
from optest.models.opened import Runnable
from optest.models.running import generated, prompt_of
from optest.spec import Fault, Reason

VOCABULARY = 5


class Program:
    """Says that the token after ``t`` is ``t + 1``, with the logit of 2 and others of 0."""

    def __init__(
        self, size: int | str = "tokens", change: Callable[[np.ndarray, np.ndarray], None] | None = None
    ) -> None:
        self.size, self.change = size, change
        self.seen: list[list[int]] = []

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        return [("input_ids", "int64", [1, self.size]), ("attention_mask", "int64", [1, self.size])]

    def outputs(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        ids = feeds["input_ids"]
        assert (feeds["attention_mask"] == 1).all()
        self.seen.append(ids[0].tolist())
        logits = 2.0 * np.eye(VOCABULARY, dtype=np.float32)[(ids + 1) % VOCABULARY]
        if self.change:
            self.change(ids, logits)
        return {"logits": logits}


def tokens(program: Program, ids: list[int], count: int | None, **options: Any) -> list[int]:
    feeds = dict.fromkeys(("input_ids", "attention_mask"), np.zeros((1, 1), np.int64))
    known: dict[str, Any] = {"max_tokens": count, "temperature": 0.0, "seed": 0, "kv_cache": False, **options}
    model = Runnable(backend="numpy", program=program, feeds=feeds, vocabulary=VOCABULARY, context=20)  # type: ignore[arg-type]
    return list(generated(model, Hooks({"dump_dir": None, "dump_mode": "all", "profile": False}), ids, known))


def test_without_temperature_the_likeliest_token_is_next() -> None:
    program = Program()
    assert tokens(program, [1, 2], 4) == [3, 4, 0, 1]
    assert program.seen[-1] == [1, 2, 3, 4, 0]


def test_tokens_fill_available_room() -> None:
    assert len(tokens(Program(), [1, 2], None)) == 18
    assert len(tokens(Program(8), [1, 2], None)) == 6
    with pytest.raises(UsageError, match="model's 8 positions"):
        tokens(Program(8), [1, 2], 7)


def test_token_frequencies_follow_temperature() -> None:
    drawn = np.array([tokens(Program(), [1], 1, temperature=0.5, seed=seed)[0] for seed in range(400)])
    likely = np.exp(2 / 0.5) / (np.exp(2 / 0.5) + VOCABULARY - 1)
    assert abs((drawn == 2).mean() - likely) < 0.05
    assert len({*drawn}) == VOCABULARY


def test_seed_determines_independent_token_draws() -> None:
    drawn = [tokens(Program(), [1], 12, temperature=100.0, seed=seed) for seed in (0, 0, 1)]
    steps = np.diff([1, *drawn[0]]) % VOCABULARY
    assert len({*steps}) > 2
    assert drawn[0] == drawn[1] != drawn[2]


def test_padding_follows_tokens_and_changes_nothing() -> None:
    program = Program(6)
    assert tokens(program, [1], 3) == [2, 3, 4]
    assert all(len(each) == 6 for each in program.seen)

    def looks_ahead(ids: np.ndarray, logits: np.ndarray) -> None:
        logits[0, 0, 0] += ids[0, -1]

    with pytest.raises(Fault) as raised:
        tokens(Program(6, looks_ahead), [1], 3)
    assert raised.value.reason is Reason.STATE


def test_logits_that_are_no_numbers_choose_nothing() -> None:
    def spoiled(_: np.ndarray, logits: np.ndarray) -> None:
        logits[0, -1, 2] = np.nan

    with pytest.raises(Fault) as raised:
        tokens(Program(change=spoiled), [1], 1)
    assert raised.value.reason is Reason.NAN


def test_a_program_without_a_cache_says_so() -> None:
    with pytest.raises(UsageError, match="no key-value cache"):
        tokens(Program(), [1], 1, kv_cache=True)


@pytest.mark.parametrize(
    ("text", "ids"), [("464 2068", [464, 2068]), ("7,8", [7, 8]), ("Hi", [72, 105]), ("é", [195, 169])]
)
def test_prompt_without_tokenizer_is_ids_or_bytes(text: str, ids: list[int]) -> None:
    prompt = prompt_of(text, None)
    assert list(prompt.ids) == ids
    assert prompt.text_of(ids) == text.replace(",", " ")
    assert bool(prompt.notes) == (not text[0].isdecimal())


def test_a_tokenizers_file_is_asked(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.WordLevel({"hello": 0, "world": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "words.json"))
    prompt = prompt_of("hello world 12", str(tmp_path / "words.json"))
    assert list(prompt.ids) == [0, 1, 2]
    assert prompt.text_of([1, 0]) == "world hello"
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(Fault):
        prompt_of("hello", str(tmp_path / "broken.json"))
    with pytest.raises(UsageError):
        prompt_of("hello", str(tmp_path / "nothing.json"))

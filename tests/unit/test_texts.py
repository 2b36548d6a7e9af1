"""The expected texts: none is left over, and a text that differs fails the test that names it."""

from __future__ import annotations

from pathlib import Path

import pytest
import texts


def test_every_stored_text_is_used() -> None:
    assert texts.unused_texts(Path(__file__).parents[1]) == []


def test_a_text_that_is_not_printed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "updating", False)
    monkeypatch.setattr(texts, "family", {"toy": {"greeting": "hello {name}, how are you"}}.__getitem__)
    assert texts.says("he said: hello Ann, how are you", "toy.greeting", name="Ann")
    assert texts.says_exactly("hello Ann, how are you", "toy.greeting", name="Ann")
    with pytest.raises(AssertionError, match="closest"):
        texts.says("hello Bob, how are you", "toy.greeting", name="Ann")
    with pytest.raises(AssertionError):
        texts.says_exactly("hello Ann, how are you?", "toy.greeting", name="Ann")
    with pytest.raises(AssertionError), texts.refusal(ValueError, "toy.greeting", name="Ann"):
        raise ValueError("no greeting")


def test_an_update_records_the_closest_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text("greeting: hello {name}, how are you\n")
    monkeypatch.setattr(texts, "FOLDER", tmp_path)
    monkeypatch.setattr(texts, "CHANGES", tmp_path / "changes")
    monkeypatch.setattr(texts, "updating", True)
    texts.family.cache_clear()
    assert texts.says("12:30 a first line\n12:31 hello Ann, how are all of you", "toy.greeting", name="Ann")
    assert texts.apply_changes() == ["toy.greeting"]
    assert (tmp_path / "toy.yaml").read_text() == "greeting: hello {name}, how are all of you\n"
    texts.family.cache_clear()

"""An option whose value was left out does not take the next option for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from user_shell import Shell

FOLLOWED = "{} needs a value, but is followed by the option {}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("replay latest --save --script", FOLLOWED.format("--save", "--script")),
        ("run --op --dtype float32", FOLLOWED.format("--op", "--dtype")),
        ("run --op relu -k --backend=torch", FOLLOWED.format("-k", "--backend=torch")),
        ("run --plan --backend torch", FOLLOWED.format("--plan", "--backend")),
        ("run --config --backend torch", FOLLOWED.format("--config", "--backend")),
        ("check -o --backend torch", FOLLOWED.format("-o", "--backend")),
        ("check --set=--tier smoke", FOLLOWED.format("--set", "--tier")),
        ("capture model.py -o --level aten", FOLLOWED.format("", "--level")),
        ("check --backend numpy --op relu --set sizes,speical", "did you mean 'special'"),
        ("check --backend numpy --op relu --set ,", "--set (OPTEST_CASE_SET) is empty"),
        ("check --backend numpy --op relu --report json,jnuit", "did you mean 'junit'"),
    ],
)
def test_what_is_missing_is_told(optest: Shell, tmp_path: Path, words: str, told: str) -> None:
    optest(*words.split()).expect(2, err=told)
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("-")]


def test_option_like_words_are_values(optest: Shell) -> None:
    ended = optest("run", "--op", "relu", "--shape", "input=3", "-k", "not --strange")
    assert "needs a value" not in ended.err

"""An option whose value was left out does not take the next option for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from user_shell import Shell


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("replay", "latest", "--save", "--script"),
            "--save needs a value, but is followed by the option --script",
        ),
        (("run", "--op", "--dtype", "float32"), "--op needs a value, but is followed by the option --dtype"),
        (
            ("run", "--op", "relu", "-k", "--backend=torch"),
            "-k needs a value, but is followed by the option --backend=torch",
        ),
        (("run", "--plan", "--backend", "torch"), "--plan needs a value, but is followed by the option --backend"),
        (("run", "--config", "--backend", "torch"), "--config needs a value, but is followed by the option --backend"),
        (("check", "-o", "--backend", "torch"), "-o needs a value, but is followed by the option --backend"),
        (("check", "--set=--tier", "smoke"), "--set needs a value, but is followed by the option --tier"),
        (("check", "--backend", "numpy", "--op", "relu", "--set", "sizes,speical"), "did you mean 'special'"),
        (("check", "--backend", "numpy", "--op", "relu", "--set", ","), "--set (OPTEST_CASE_SET) is empty"),
        (("check", "--backend", "numpy", "--op", "relu", "--report", "json,jnuit"), "did you mean 'junit'"),
        (("capture", "model.py", "-o", "--level", "aten"), "needs a value, but is followed by the option --level"),
    ],
)
def test_what_is_missing_is_told(optest: Shell, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    ended = optest(*words)
    assert ended.status == 2
    assert told in ended.err
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("-")]


def test_option_like_words_are_values(optest: Shell) -> None:
    ended = optest("run", "--op", "relu", "--shape", "input=3", "-k", "not --strange")
    assert "needs a value" not in ended.err

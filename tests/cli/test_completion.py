"""What a shell gets when the user presses the tab key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from user_shell import Shell


def complete(*words: str, index: int) -> list[str]:
    """The words that bash would offer for the word at ``index``."""
    request = {"_OPTEST_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(index)}
    code = "import sys; sys.argv = ['optest']; from optest.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **request}, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("r", ["run", "replay", "report", "runs"]),
        ("replay --save --script --la", ["--last"]),
        ("run --dtype float32,bfl", ["float32,bfloat16"]),
        ("run --backend tor", ["torch"]),
        ("run --ba", {"--backend"}),
        ("check --set lay", {"layouts"}),
        ("report --format ju", {"junit"}),
        ("run --op sof", {"softmax"}),
    ],
)
def test_words_with_a_beginning_are_offered(line: str, offered: list[str] | set[str]) -> None:
    """A list is all of them; a set is a part of those with this beginning."""
    words = line.split()
    found = complete("optest", *words, index=len(words))
    assert found == offered if isinstance(offered, list) else offered <= set(found)
    assert all(each.startswith(words[-1]) for each in found)


@pytest.mark.heavy
def test_runs_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete("optest", "report", "", index=2) == []
    for name in ("20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"):
        folder = tmp_path / ".optest" / "runs" / name
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").touch()
    for words in (("report", "2026"), ("run", "--resume", "2026"), ("replay", "--run", "2026")):
        offered = complete("optest", *words, index=len(words))
        assert offered == ["20260102T000000Z-bbbbbb", "20260101T000000Z-aaaaaa"]
    assert complete("optest", "run", "--lf", "la", index=3) == ["latest"]
    assert complete("optest", "run", "--library", "/li", index=3) == ["/li"]


def test_a_plugin_that_cannot_be_loaded_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTEST_PLUGINS", "no_such_module")
    assert complete("optest", "run", "--op", "sof", index=3) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(optest: Shell, shell: str) -> None:
    optest("completion", shell).expect(0, out=f"_OPTEST_COMPLETE={shell}_complete")

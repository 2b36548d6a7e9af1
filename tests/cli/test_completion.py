"""What a shell gets when the user presses the tab key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def complete(*words: str, index: int) -> list[str]:
    """The words that bash would offer for the word at ``index``."""
    environment = {
        **os.environ,
        "_OPTEST_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(index),
    }
    code = "import sys; sys.argv = ['optest']; from optest.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands() -> None:
    assert "run" in complete("optest", "r", index=1)
    assert "list" not in complete("optest", "r", index=1)


def test_flags() -> None:
    assert "--backend" in complete("optest", "run", "--ba", index=2)


def test_flags_behind_an_option_without_its_value() -> None:
    assert complete("optest", "replay", "--save", "--script", "--la", index=4) == ["--last"]


def test_case_sets_and_reports() -> None:
    assert "layouts" in complete("optest", "check", "--set", "lay", index=3)
    assert "junit" in complete("optest", "report", "--format", "ju", index=3)


def test_operators_by_their_beginning() -> None:
    offered = complete("optest", "run", "--op", "sof", index=3)
    assert "softmax" in offered
    assert all(each.startswith("sof") for each in offered)


def test_the_next_dtype_of_a_list() -> None:
    assert complete("optest", "run", "--dtype", "float32,bfl", index=3) == ["float32,bfloat16"]


def test_backends_without_importing_them() -> None:
    assert complete("optest", "run", "--backend", "tor", index=3) == ["torch"]


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
def test_the_script_of_a_shell(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "optest", "completion", shell], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"_OPTEST_COMPLETE={shell}_complete" in done.stdout

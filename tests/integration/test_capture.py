"""Models are captured and their calls run back: the stored files are what capturing gives, and all of it passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from user_shell import user_environment

from optest.spec import CaseResult, Status
from optest.store import read_journal

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.torch]

MODELS = Path(__file__).parents[2] / "examples" / "models"
NAMES = ("gpt2", "llama", "mixture", "mobilenet", "resnet", "speech")


def optest(folder: Path, *words: str, status: int = 0) -> str:
    """What the command prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "optest", *words],
        cwd=folder,
        env=user_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    text = ended.stdout + ended.stderr
    assert ended.returncode == status, text
    assert "Traceback" not in text, text
    return text


def results_of(folder: Path) -> dict[str, CaseResult]:
    (journal,) = (folder / ".optest" / "runs").glob("*/journal.jsonl")
    return {result.id: result for result in read_journal(journal).results}


@pytest.mark.parametrize("name", NAMES)
def test_capturing_again_gives_the_stored_bytes(name: str, tmp_path: Path) -> None:
    said = optest(tmp_path, "capture", f"{MODELS / name}.py:forward", "-o", f"{name}.yaml")
    assert f"{name}.yaml: " in said
    assert (tmp_path / f"{name}.yaml").read_bytes() == (MODELS / f"{name}.yaml").read_bytes()


def test_all_captured_cases_pass(tmp_path: Path) -> None:
    write_all(tmp_path, {name: (MODELS / f"{name}.yaml").read_text() for name in NAMES})
    optest(tmp_path, "run", "--plan", "all.yaml")
    require_all_passed(results_of(tmp_path))


def test_all_captured_cases_pass_in_float64(tmp_path: Path) -> None:
    """In the reference's own precision the call and its reference are one computation."""
    texts = {name: (MODELS / f"{name}.yaml").read_text() for name in NAMES}
    assert all("defaults: {dtype: float32," in text for text in texts.values())
    wide = {
        name: text.replace("defaults: {dtype: float32,", "defaults: {dtype: float64,") for name, text in texts.items()
    }
    write_all(tmp_path, wide)
    optest(tmp_path, "run", "--plan", "all.yaml")
    require_all_passed(results_of(tmp_path))


def write_all(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "all.yaml").write_text("include: [" + ", ".join(f"{name}.yaml" for name in texts) + "]\n")


def require_all_passed(results: dict[str, CaseResult]) -> None:
    wrong = {name: result.verdict.message for name, result in results.items() if result.status is not Status.PASSED}
    assert not wrong
    assert {name.partition("::")[0] for name in results} == set(NAMES)

"""``make run`` shows a plan that passes and a failure that is meant, and fails as soon as either is otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "examples" / "quickstart")
    return tmp_path


def make_run(repository: Path) -> subprocess.CompletedProcess[str]:
    """``make run`` with the optest of these tests in place of a new virtual environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPTEST_", "MAKE"))}
    return subprocess.run(
        ["make", "-o", ".venv/.run", "run", f"BIN={Path(sys.executable).parent}"],
        cwd=repository,
        env={**kept, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_shows_both(repository: Path) -> None:
    ended = make_run(repository)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "41 passed" in ended.stdout
    assert "FAILED  matmul half  broken against numpy" in ended.stdout
    assert "docs/tutorial.md" in ended.stdout


def test_a_plan_that_fails_fails_it(repository: Path) -> None:
    change(repository / "examples/quickstart/plan.yaml", "input1: 128x32}, name: matmul half", "input1: 12x32}")
    assert make_run(repository).returncode != 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a, b = a[..., :-1], b[..., :-1, :]", "pass"),
        ("a, b = a[..., :-1], b[..., :-1, :]", "raise ValueError"),
        ("a, b = a[..., :-1], b[..., :-1, :]", "a = a * np.nan"),
    ],
    ids=["repaired", "raises", "another reason"],
)
def test_a_backend_that_does_not_fail_as_meant_fails_it(repository: Path, old: str, new: str) -> None:
    change(repository / "examples/quickstart/broken_backend.py", old, new)
    ended = make_run(repository)
    assert "41 passed" in ended.stdout
    assert ended.returncode != 0, ended.stdout

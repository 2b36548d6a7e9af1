"""``make run`` shows a plan that passes and a failure that is meant, and fails as soon as either is otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from texts import says

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.needs("make")]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "examples" / "quickstart")
    return tmp_path


def make_run(repository: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    """``make run`` with these programs in place of those of a new virtual environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPTEST_", "MAKE"))}
    return subprocess.run(
        ["make", "-o", ".venv/.run", "run", f"BIN={programs}"],
        cwd=repository,
        env={**kept, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_shows_both(repository: Path) -> None:
    ended = make_run(repository, Path(sys.executable).parent)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "41 passed" in ended.stdout
    assert says(ended.stdout, "docs.failed_matmul_half_broken")
    assert "docs/tutorial.md" in ended.stdout


OPTEST = """#!/bin/sh
case "$*" in
    "run "*"--backend broken"*) exit {broken} ;;
    "run "*) exit {right} ;;
    "report latest -q") echo '{report}' ;;
esac
"""


@pytest.mark.parametrize(
    ("right", "broken", "report", "succeeds"),
    [
        (0, 1, "1 failed: 1 VALUE", True),
        (1, 1, "1 failed: 1 VALUE", False),
        (0, 0, "1 passed", False),
        (0, 3, "1 failed: 1 RAISED", False),
        (0, 1, "1 failed: 1 NAN", False),
    ],
    ids=["as meant", "the plan fails", "repaired", "raises", "another reason"],
)
def test_make_run_needs_pass_and_expected_failure(
    repository: Path, right: int, broken: int, report: str, succeeds: bool
) -> None:
    (repository / "optest").write_text(OPTEST.format(right=right, broken=broken, report=report))
    (repository / "optest").chmod(0o755)
    assert (make_run(repository, repository).returncode == 0) is succeeds

"""A user's shell: a folder, an environment without optest's own variables, and the installed command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


Shell = Callable[..., Ended]


def user_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPTEST_")}
    plugins = str(ROOT / "tests" / "plugins")
    return {**kept, "PYTHONPATH": plugins, "COLUMNS": "120", **more}


@pytest.fixture
def optest(tmp_path: Path) -> Shell:
    """Run ``optest`` with these arguments in the test's folder."""

    def call(*arguments: Any, env: dict[str, str] | None = None, timeout: float = 120) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "optest", *map(str, arguments)],
            cwd=tmp_path,
            env=user_environment(**(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return call


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[str], Path]:
    """Write ``plan.yaml`` with this text."""

    def write(text: str) -> Path:
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        return path

    return write

"""Fixtures of a user's shell: the installed command in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from user_shell import Ended, Shell, user_environment


@pytest.fixture
def optest(tmp_path: Path) -> Shell:
    """Run ``optest`` with these arguments in the test's folder."""

    def call(*arguments: Any, env: dict[str, str] | None = None, timeout: float = 600) -> Ended:
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

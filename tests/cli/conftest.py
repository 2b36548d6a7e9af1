"""Fixtures of a user's shell: the command in a folder of its own, without the time that its imports take."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm_python
from user_shell import Ended, Shell, user_environment


@pytest.fixture
def optest(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    """Run ``optest`` with these arguments in the test's folder; torch is imported before for tests that need it."""
    further = warm_python.TORCH if request.node.get_closest_marker("torch") else ()

    def call(*arguments: Any, env: dict[str, str] | None = None, timeout: float = 600) -> Ended:
        environment = user_environment(**(env or {}))
        words = [str(each) for each in arguments]
        ended = warm_python.run("optest", *words, cwd=tmp_path, env=environment, timeout=timeout, further=further)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return call


@pytest.fixture
def process(tmp_path: Path) -> Shell:
    """Run a program in the test's folder: in contrast to ``optest`` a new process, not a fork with imported modules."""

    def call(*command: Any, env: dict[str, str] | None = None, timeout: float = 600, **more: Any) -> Ended:
        done = subprocess.run(
            [*map(str, command)],
            **{"cwd": tmp_path, "env": user_environment() if env is None else env, "capture_output": True, **more},
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[str], Path]:
    """Write ``plan.yaml`` with this text."""

    def write(text: str) -> Path:
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        return path

    return write

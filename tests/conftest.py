"""What holds for all tests: neither a busy machine nor the shell's variables are a failure; the example's C library is
built once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

OF_A_TERMINAL = ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "COLUMNS", "LINES", "PYTEST_ADDOPTS")
for name in [each for each in os.environ if each in OF_A_TERMINAL or each.startswith("OPTEST_")]:
    del os.environ[name]

C_LIBRARY = Path(__file__).parents[1] / "examples" / "c_library"


@pytest.fixture(scope="session")
def c_library_as_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "c_library"
    shutil.copytree(C_LIBRARY, folder, ignore=shutil.ignore_patterns("build", "lib", "broken", "asan"))
    subprocess.run(["make", "-s", "-j2", "all", "broken"], cwd=folder, check=True, timeout=600)
    return folder


@pytest.fixture(scope="module")
def c_library(c_library_as_built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module's own examples/c_library with lib/, and broken/lib/ beside it: a process loads a file only once."""
    return shutil.copytree(c_library_as_built, tmp_path_factory.mktemp("own") / "c_library")

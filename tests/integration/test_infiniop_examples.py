"""An example of the seed with all its options, and without a library; docs/c-libraries/infiniop.md runs all three."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from texts import says

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.cxx,
    pytest.mark.heavy,
    pytest.mark.torch,
]


@pytest.fixture(scope="module")
def root(c_library: Path) -> Path:
    return c_library


def ran(script: str, *arguments: str, root: Path | None) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("INFINI")}
    variables |= {"INFINI_ROOT": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(EXAMPLES / "infiniop" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=variables)


def test_gemm(root: Path) -> None:
    done = ran("gemm.py", "--debug", "--profile", "--num_iterations", "3", root=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert says(done.stdout, "integration.gemm_on_cpu_passed")
    assert done.stdout.count("wrong: 0 of ") == 3
    assert done.stdout.count(" library time: ") == done.stdout.count(" torch time: ") == 3


def test_script_without_library_ends_with_message(tmp_path: Path) -> None:
    done = ran("gemm.py", root=tmp_path)
    assert done.returncode == 5
    assert done.stderr.startswith("library infiniop is unavailable: not found at")
    assert "Traceback" not in done.stderr

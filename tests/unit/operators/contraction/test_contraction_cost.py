"""What the references promise to cost beside torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "references.py"


@pytest.mark.slow
@pytest.mark.torch
def test_conv2d_costs_at_most_sixty_times_torch_with_its_error_terms() -> None:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick"], env={**os.environ, **threads}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "at most 60 x torch" in done.stdout

"""The C++ example: the program itself, and the plan that fails; the READMEs run the other plans."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.cxx


@pytest.fixture(scope="module")
def ascend_add(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ascend") / "ascend_add"
    shutil.copytree(EXAMPLES / "ascend_add", place, ignore=shutil.ignore_patterns("build", "input", "output"))
    subprocess.run(["bash", "build.sh"], cwd=place, check=True)
    return place


def added(place: Path, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for name, values in (("input/input_x.bin", x), ("input/input_y.bin", y)):
        (place / name).parent.mkdir(exist_ok=True)
        values.tofile(place / name)
    (place / "output").mkdir(exist_ok=True)
    subprocess.run(["bash", "run.sh", "-r", "cpu", "-v", "Ascend910B"], cwd=place, check=True, capture_output=True)
    return np.fromfile(place / "output/output_z.bin", np.float16)


def require_same_halves(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert (np.isnan(got) == np.isnan(expected)).all()
    numbers = ~np.isnan(expected)
    assert (got[numbers].view(np.uint16) == expected[numbers].view(np.uint16)).all()


def test_adding_signed_zero_keeps_every_half(ascend_add: Path) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    zero = np.where(np.signbit(every), np.float16(-0.0), np.float16(0.0))
    require_same_halves(added(ascend_add, every, zero), every)


def test_sums_of_halves_are_rounded_once_to_even(ascend_add: Path) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 1 << 16, (2, 200_000), dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) + y.astype(np.float32)).astype(np.float16)
    require_same_halves(added(ascend_add, x, y), expected)


@pytest.mark.parametrize("backend", ["npu", "ascend"])
def test_failing_launch_fails_for_each_backend_spelling(ascend_add: Path, backend: str) -> None:
    """The predecessor passed this plan with `--backend npu`, by its stub."""
    plan = str(ascend_add / "plan_failure.yaml")
    command = [sys.executable, "-m", "optest", "run", "--plan", plan, "--backend", backend, "--no-color"]
    finished = subprocess.run(command, cwd=ascend_add.parent, capture_output=True, text=True, check=False)
    said = finished.stdout + finished.stderr
    assert finished.returncode == 1, said
    assert "EXIT_CODE" in said
    assert "exited with status 42" in said
    assert "aclrtLaunchKernel failed" in said

"""The C and C++ examples: the programs themselves, and their plans from the command line."""

from __future__ import annotations

import json
import os
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


@pytest.fixture
def matmul_c(tmp_path: Path) -> Path:
    place = tmp_path / "matmul_c"
    shutil.copytree(EXAMPLES / "matmul_c", place, ignore=shutil.ignore_patterns("build", "input", "output"))
    return place


def added(place: Path, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for name, values in (("input/input_x.bin", x), ("input/input_y.bin", y)):
        (place / name).parent.mkdir(exist_ok=True)
        values.tofile(place / name)
    (place / "output").mkdir(exist_ok=True)
    subprocess.run(["bash", "run.sh", "-r", "cpu", "-v", "Ascend910B"], cwd=place, check=True, capture_output=True)
    return np.fromfile(place / "output/output_z.bin", np.float16)


def test_every_half_survives_adding_a_zero_of_its_sign(ascend_add: Path) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    zero = np.where(np.signbit(every), np.float16(-0.0), np.float16(0.0))
    got = added(ascend_add, every, zero)
    assert (np.isnan(got) == np.isnan(every)).all()
    numbers = ~np.isnan(every)
    assert (got[numbers].view(np.uint16) == every[numbers].view(np.uint16)).all()


def test_sums_of_halves_are_rounded_once_to_even(ascend_add: Path) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 1 << 16, (2, 200_000), dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) + y.astype(np.float32)).astype(np.float16)
    got = added(ascend_add, x, y)
    assert (np.isnan(got) == np.isnan(expected)).all()
    numbers = ~np.isnan(expected)
    assert (got[numbers].view(np.uint16) == expected[numbers].view(np.uint16)).all()


def optest(place: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run ``optest run`` in an empty directory; returns exit status, results and what was printed."""
    report = place.parent / "report.json"
    report.unlink(missing_ok=True)
    finished = subprocess.run(
        [sys.executable, "-m", "optest", "run", *arguments, "--report", "json", "--report-path", str(report)],
        cwd=place.parent,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    cases = json.loads(report.read_text())["cases"] if report.exists() else []
    return finished.returncode, cases, finished.stdout + finished.stderr


def test_the_ascend_plan_passes(ascend_add: Path) -> None:
    status, cases, said = optest(ascend_add, "--plan", str(ascend_add / "plan.yaml"))
    assert status == 0, said
    assert len(cases) == 4
    assert "4 passed" in said


@pytest.mark.parametrize("backend", ["npu", "ascend"])
def test_the_failing_launch_fails_however_the_backend_is_chosen(ascend_add: Path, backend: str) -> None:
    """The predecessor passed this plan with `--backend npu`, by its stub."""
    plan = str(ascend_add / "plan_failure.yaml")
    status, _, said = optest(ascend_add, "--plan", plan, "--backend", backend)
    assert status == 1, said
    assert "EXIT_CODE" in said
    assert "exited with status 42" in said
    assert "aclrtLaunchKernel failed" in said


def test_an_unknown_chip_is_a_usage_error(ascend_add: Path) -> None:
    status, _, said = optest(ascend_add, "--plan", str(ascend_add / "plan.yaml"), "--chip", "totally-bogus")
    assert status == 2
    assert "totally-bogus" in said
    assert "Traceback" not in said


def test_the_matmul_tail_is_found_and_located(matmul_c: Path) -> None:
    status, _, said = optest(matmul_c, "--plan", str(matmul_c / "plan.yaml"))
    assert status == 1, said
    assert "3 passed, 3 failed" in said
    for words in ("column 16", "not a multiple of 8", "and 2 more like it: square 33, square 100"):
        assert words in said, said


def test_the_matmul_passes_on_full_blocks(matmul_c: Path) -> None:
    status, _, said = optest(matmul_c, "--plan", str(matmul_c / "plan.yaml"), "--tag", "full")
    assert status == 0, said


def test_a_broken_build_is_told_as_such(matmul_c: Path) -> None:
    (matmul_c / "matmul.c").write_text("int main(void) { return nonsense; }\n")
    status, _, said = optest(matmul_c, "--plan", str(matmul_c / "plan.yaml"), "--tag", "full")
    assert status == 1
    assert "COMPILE" in said
    assert "nonsense" in said

"""Model cases as tests of pytest: collected, selected, run by optest's engine, told in its words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(pytest.importorskip("torch") is None, reason="torch")]

CASES = """\
defaults: {dtype: fp16, seed: 123, atol: 1.0e-2, rtol: 1.0e-2}
cases:
  - name: mul_ok
    op: torch.mul
    inputs: [{tensor: {shape: [1, 64]}}, {tensor: {shape: [1, 64]}}]
  - name: add_ok
    op: torch.add
    mark: paddedtensor
    inputs: [{tensor: {shape: [1, 64]}}, {tensor: {shape: [1, 1]}}]
  - name: view_accepted
    op: torch.view
    inputs: [{tensor: {shape: [2, 3, 8]}}, {value: [2, 24]}]
    expects_error: {type: RuntimeError, match: view}
  - name: left_out
    op: torch.mul
    skip_if: {expr: device == 'cpu', reason: not on a CPU}
    inputs: [{tensor: {shape: [2]}}, {value: 2}]
"""
INI = "[pytest]\naddopts = -p optest.pytest_plugin --strict-markers -p no:cacheprovider\noptest_models = models\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text(INI)
    models = folder / "models"
    models.mkdir()
    for model in ("gpt-oss", "granite4h"):
        (models / f"{model}.yaml").write_text(f"model: {model}\n{CASES}")
    return folder


def run(project: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--compile-backend", "eager", *arguments],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path or ""), "HOME": str(project)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_case_is_a_test_and_fails_in_optests_words(project: Path) -> None:
    done = run(project)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 4 passed, 2 skipped" in done.stdout
    assert "torch on the CPU accepts the call, but the case expects it to be refused" in done.stdout
    assert "shares its execution with gpt-oss::view_accepted" in done.stdout
    assert "Traceback" not in done.stdout


def test_an_item_is_selected_by_its_id_by_model_word_and_mark(project: Path) -> None:
    name = "models/gpt-oss.yaml::gpt-oss::mul_ok"
    assert f"{name} PASSED" in run(project, "-v", name).stdout
    done = run(project, "-v", "--model", "granite4h", "-k", "torch.mul and not left_out")
    assert ("1 passed, 7 deselected" in done.stdout, "granite4h::mul_ok PASSED" in done.stdout) == (True, True)
    done = run(project, "-m", "paddedtensor and model_gpt_oss")
    assert "1 passed, 7 deselected" in done.stdout


def test_an_unknown_model_is_told_with_those_that_there_are(project: Path) -> None:
    done = run(project, "--model", "granite4")
    assert done.returncode == 4
    assert "no model is called 'granite4'; did you mean 'granite4h'?" in done.stderr + done.stdout


def test_lists_need_no_torch(project: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')\n")
    done = run(project, "--list-cases", path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gpt-oss::add_ok::torch.add  (" in done.stdout
    assert len(done.stdout.splitlines()) == 8
    assert run(project, "--list-models", path=tmp_path).stdout.split() == ["gpt-oss", "granite4h"]


def test_a_run_ends_at_the_first_failure(project: Path) -> None:
    done = run(project, "-x")
    assert "1 failed, 2 passed" in done.stdout


def test_why_a_case_was_left_out(project: Path) -> None:
    assert "not on a CPU" in run(project, "--show-skipped", "-k", "left_out").stdout


def test_a_file_that_is_wrong_is_told_by_line_and_the_others_run(project: Path) -> None:
    good, bad = project / "good.yaml", project / "bad.yaml"
    good.write_text(f"model: good\n{CASES}")
    bad.write_text("model: bad\ncases:\n  - name: a\n    op: torch.mul\n    inputs: [{tensor: {shap: [2]}}]\n")
    done = run(project, str(good), str(bad), "--continue-on-collection-errors")
    assert "bad.yaml:5" in done.stdout
    assert "shap" in done.stdout
    assert "1 failed, 2 passed, 1 skipped, 1 error" in done.stdout

"""``optest init pytest``: the lines to add, and the file that pytest reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from texts import says
from user_shell import Shell, user_environment

CASES = "model: tiny\ncases:\n  - {name: mul_ok, op: torch.mul, inputs: [{tensor: {shape: [2]}}, {value: 2}]}\n"
SWITCH = "-p optest.pytest_plugin"


def listed(folder: Path) -> str:
    """What pytest itself makes of the file."""
    done = warm_python.run("pytest", "--list-cases", cwd=folder, env=user_environment())
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    models = tmp_path / "tests" / "models"
    models.mkdir(parents=True)
    (models / "tiny.yaml").write_text(CASES)
    (tmp_path / "plan.yaml").write_text("cases: [{op: relu, shapes: {input0: 2}}]\n")  # no model cases
    return tmp_path


FORMS = {
    "pytest.ini": ("[pytest]\naddopts = -ra\n", ["[pytest]", f"addopts = {SWITCH}", "optest_models = tests/models"]),
    "tox.ini": ("[tox]\n[pytest]\n", ["[pytest]", f"addopts = {SWITCH}", "optest_models = tests/models"]),
    "setup.cfg": ("[tool:pytest]\n", ["[tool:pytest]", f"addopts = {SWITCH}", "optest_models = tests/models"]),
    "pyproject.toml": (
        '[project]\nname = "x"\n',
        ["[tool.pytest.ini_options]", f'addopts = "{SWITCH}"', 'optest_models = ["tests/models"]'],
    ),
    "pytest.toml": (
        "[pytest]\n",
        ["[pytest]", 'addopts = ["-p", "optest.pytest_plugin"]', 'optest_models = ["tests/models"]'],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_lines_to_add_are_printed(name: str, project: Path, optest: Shell) -> None:
    before, lines = FORMS[name]
    (project / name).write_text(before)
    done = optest("init", "pytest")
    assert done.status == 0, done.err
    assert (project / name).read_text() == before
    told = [f"add to {name}, beside what it has:", *(f"    {line}" for line in lines)]
    assert "\n".join(told) in done.out
    assert "pytest --list-cases" in done.out


@pytest.mark.slow
def test_ini_is_written_where_there_is_none(project: Path, optest: Shell) -> None:
    done = optest("init", "pytest")
    assert done.status == 0, done.err
    written = f"[pytest]\naddopts = {SWITCH}\noptest_models = tests/models\n"
    assert (project / "pytest.ini").read_text() == written
    assert "tiny::mul_ok::torch.mul" in listed(project)
    again = optest("init", "pytest")
    assert (again.status, (project / "pytest.ini").read_text()) == (0, written)
    assert says(again.out, "cli.pytest_ini_switches_the")


def test_file_above_is_named(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    inner = project / "tests"
    done = subprocess.run(
        [sys.executable, "-m", "optest", "init", "pytest"], cwd=inner, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0
    assert f"add to {project / 'pytest.ini'}" in done.stdout
    assert "optest_models = tests/models" in done.stdout


def test_folders_are_taken_as_named_and_have_to_exist(tmp_path: Path, optest: Shell) -> None:
    done = optest("init", "pytest", "cases")
    assert (done.status, list(tmp_path.iterdir())) == (2, [])
    assert says(done.err, "cli.cases_is_not_there")
    done = optest("init", "pytest")
    assert says(done.out, "cli.no_model_cases_yaml")
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "plan.yaml").write_text("cases: [{op: relu, shapes: {input0: 2}}]\n")
    assert says(optest("init", "pytest").out, "cli.optest_init_pytest_plans")
    assert "optest_models" not in (tmp_path / "pytest.ini").read_text()
    (tmp_path / "my cases").mkdir()
    told = optest("init", "pytest", "my cases").out
    assert "optest_models = 'my cases'" in told
    assert "addopts" not in told


@pytest.mark.torch  # the line collects cases of torch
def test_a_test_file_is_there_to_be_named(project: Path, optest: Shell) -> None:
    """``pytest tests/test_model_ops.py --model NAME`` is an error of pytest where there is no such file."""
    assert optest("init", "pytest").status == 0
    named = ("--collect-only", "-q", "tests/test_model_ops.py", "--model", "tiny")
    done = warm_python.run("pytest", *named, cwd=project, env=user_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (project / "tests" / "test_model_ops.py").write_text("# mine\n")
    optest("init", "pytest")
    assert (project / "tests" / "test_model_ops.py").read_text() == "# mine\n"


def test_plans_go_by_their_names(tmp_path: Path, optest: Shell) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "plan.yaml").write_text("cases: [{op: relu, shapes: {input0: 2}}]\n")
    done = optest("init", "pytest")
    assert (tmp_path / "pytest.ini").read_text() == f"[pytest]\naddopts = {SWITCH}\n"
    assert "no model cases" not in done.out
    assert says(done.out, "cli.collected_are_plans_called")
    assert "-::relu  (" in listed(tmp_path)
    assert not (tmp_path / "tests" / "test_model_ops.py").exists()


def test_files_that_cannot_be_read_are_reported(project: Path, optest: Shell) -> None:
    models = project / "tests" / "models"
    (models / "wrong.yaml").write_text(CASES.replace("inputs", "input"))
    (models / "suite.yaml").write_text("test_suite_config: {files: [{path: test_gather.py}]}\n")
    (project / "empty").mkdir()
    done = optest("init", "pytest", "tests/models", "empty")
    assert done.status == 0, done.err
    assert "tests/models/wrong.yaml:3 $.cases[0].input" in done.out
    assert says(done.out, "cli.tests_models_suite_yaml")
    assert says(done.out, "cli.empty_holds_no_model")
    assert "tiny.yaml" not in done.out

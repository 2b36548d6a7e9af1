"""``optest init pytest``: one line in the file that pytest reads, and nothing else of it changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from user_shell import Shell

CASES = "model: tiny\ncases:\n  - {name: mul_ok, op: torch.mul, inputs: [{tensor: {shape: [2]}}, {value: 2}]}\n"
SWITCH = "-p optest.pytest_plugin"


def listed(folder: Path) -> str:
    """What pytest itself makes of the file."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--list-cases"], cwd=folder, capture_output=True, text=True, timeout=600
    )
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    models = tmp_path / "tests" / "models"
    models.mkdir(parents=True)
    (models / "tiny.yaml").write_text(CASES)
    (tmp_path / "plan.yaml").write_text("cases: [{op: relu, shapes: {input0: 2}}]\n")  # no model cases
    return tmp_path


FORMS = {
    "none": ("pytest.ini", "", f"[pytest]\naddopts = {SWITCH}\noptest_models = tests/models\n"),
    "empty": ("pytest.ini", "[pytest]\n", f"[pytest]\naddopts = {SWITCH}\noptest_models = tests/models\n"),
    "comments and options": (
        "pytest.ini",
        "; ours\n[pytest]\n# why\naddopts = -ra  --tb=short\nmarkers =\n    a: b\n",
        f"; ours\n[pytest]\noptest_models = tests/models\n# why\naddopts = {SWITCH} -ra  --tb=short\n"
        "markers =\n    a: b\n",
    ),
    "options in lines": (
        "tox.ini",
        "[tox]\nenvlist = py\n[pytest]\naddopts =\n    -ra\n    --tb=short\n[flake8]\naddopts = 1\n",
        f"[tox]\nenvlist = py\n[pytest]\noptest_models = tests/models\naddopts =\n    {SWITCH}\n    -ra\n"
        "    --tb=short\n[flake8]\naddopts = 1\n",
    ),
    "setup.cfg": (
        "setup.cfg",
        "[metadata]\nname = x\n\n[tool:pytest]\naddopts: -q\n",
        f"[metadata]\nname = x\n\n[tool:pytest]\noptest_models = tests/models\naddopts: {SWITCH} -q\n",
    ),
    "pyproject without pytest": (
        "pyproject.toml",
        '[project]\nname = "x"  # ours\n',
        f'[project]\nname = "x"  # ours\n\n[tool.pytest.ini_options]\naddopts = "{SWITCH}"\n'
        'optest_models = ["tests/models"]\n',
    ),
    "pyproject with text": (
        "pyproject.toml",
        '[tool.pytest.ini_options] # x\nminversion = "8"\naddopts = "-ra" # all\n[tool.ruff]\nline-length = 100\n',
        '[tool.pytest.ini_options] # x\noptest_models = ["tests/models"]\nminversion = "8"\n'
        f'addopts = "{SWITCH} -ra" # all\n[tool.ruff]\nline-length = 100\n',
    ),
    "pyproject with a list": (
        "pyproject.toml",
        '[tool.pytest.ini_options]\naddopts = [\n    "-ra",\n]\n',
        '[tool.pytest.ini_options]\noptest_models = ["tests/models"]\n'
        'addopts = [\n    "-p", "optest.pytest_plugin",\n    "-ra",\n]\n',
    ),
    "pyproject with long text": (
        "pyproject.toml",
        '[tool.pytest.ini_options]\naddopts = """\n-ra\n"""\n',
        f'[tool.pytest.ini_options]\noptest_models = ["tests/models"]\naddopts = """{SWITCH} \n-ra\n"""\n',
    ),
    "lines of Windows": (
        "pytest.ini",
        "[pytest]\r\naddopts = -ra\r\n",
        f"[pytest]\r\noptest_models = tests/models\r\naddopts = {SWITCH} -ra\r\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.heavy
def test_the_lines_stand_in_the_file_that_pytest_reads(form: str, project: Path, optest: Shell) -> None:
    name, before, after = FORMS[form]
    path = project / name
    if form != "none":
        path.write_bytes(before.encode())
    done = optest("init", "pytest")
    assert done.status == 0, done.err
    assert path.read_bytes().decode() == after
    assert f"{name} now says:" in done.out
    assert "pytest --list-models" in done.out
    assert "tiny::mul_ok::torch.mul" in listed(project)

    again = optest("init", "pytest")
    assert (again.status, path.read_bytes().decode()) == (0, after)
    assert "nothing was written" in again.out


REFUSED = {
    "dotted keys": ("pyproject.toml", '[tool]\npytest.ini_options.addopts = "-ra"\n', "[tool.pytest.ini_options]"),
    "a key in quotes": ("pyproject.toml", '[tool.pytest.ini_options]\n"addopts" = "-ra"\n', 'addopts = "-p'),
    "no TOML": ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = -ra\n", "it is not TOML"),
    "a key twice": ("setup.cfg", "[tool:pytest]\naddopts = -q\naddopts = -v\n", "[tool:pytest]"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_that_cannot_be_changed_safely_is_left_with_the_lines_to_add(
    form: str, project: Path, optest: Shell
) -> None:
    name, before, told = REFUSED[form]
    (project / name).write_text(before)
    done = optest("init", "pytest")
    assert done.status == 2
    assert (project / name).read_text() == before
    assert told in done.err, done.err
    assert SWITCH in done.err
    assert "optest_models" in done.err


def test_a_file_above_that_would_be_hidden_is_named(project: Path, optest: Shell, tmp_path: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    inner = project / "inner"
    inner.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "optest", "init", "pytest"], cwd=inner, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 2
    assert f"cd {project} && optest init pytest" in done.stderr
    assert list(inner.iterdir()) == []


def test_folders_are_taken_as_named_and_have_to_exist(tmp_path: Path, optest: Shell) -> None:
    done = optest("init", "pytest", "cases")
    assert (done.status, list(tmp_path.iterdir())) == (2, [])
    assert "cases is not there" in done.err
    done = optest("init", "pytest")
    assert "no model cases (YAML files with the keys model and cases) lie below this folder" in done.out
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "plan.yaml").write_text("cases: [{op: relu, shapes: {input0: 2}}]\n")
    assert "optest init pytest plans" in optest("init", "pytest").out
    assert "optest_models" not in (tmp_path / "pytest.ini").read_text()
    (tmp_path / "my cases").mkdir()
    assert optest("init", "pytest", "my cases").status == 0
    assert "optest_models = 'my cases'" in (tmp_path / "pytest.ini").read_text()


def test_a_test_file_is_there_to_be_named(project: Path, optest: Shell) -> None:
    """``pytest tests/test_model_ops.py --model NAME`` is an error of pytest where there is no such file."""
    assert optest("init", "pytest").status == 0
    named = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/test_model_ops.py", "--model", "tiny"]
    done = subprocess.run(named, cwd=project, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (project / "tests" / "test_model_ops.py").write_text("# mine\n")
    optest("init", "pytest")
    assert (project / "tests" / "test_model_ops.py").read_text() == "# mine\n"

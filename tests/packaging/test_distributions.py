"""The wheel and the sdist, built once; installed in an environment of their own, and a plug-in installed beside them.

What pytest finds of an installed optest does nothing: its plug-in is switched on by a line of a project's ini."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin_package"


def printed_by(*words: str | Path, cwd: Path, **variables: str) -> str:
    ours = ("PYTHONPATH", "PYTEST_", "OPTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=environment | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment_with(folder: Path, *packages: Path) -> Path:
    """The programs of a new environment that has these packages, what they need, and nothing else."""
    venv.create(folder)
    install(folder / "bin", *packages)
    return folder / "bin"


def install(programs: Path, *packages: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-compile")
    printed_by(*pip, *packages, cwd=programs)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("dist")
    printed_by(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (file,) = built.glob("*.tar.gz")
    return file


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("clean"), wheel)


@pytest.fixture(scope="module")
def with_the_plugin(clean: Path) -> Path:
    """The programs of the clean environment, after the plug-in came beside the wheel."""
    install(clean, PLUGIN)
    return clean


def test_the_sdist_holds_what_its_tests_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("LICENSE", "Makefile", "requirements-test.txt", "tests/plugins/faulty_backend.py", "docs/index.md")
    assert set(needed) <= names
    assert not [name for name in names if ".optest/" in name or "__pycache__" in name]


def test_the_wheel_holds_the_package_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "optest/py.typed" in names
    files = (path for kind in ("*.yaml", "*.h", "*.html", "*.css", "*.js") for path in (ROOT / "src").rglob(kind))
    data = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert data <= set(names)
    assert all(name.startswith(("optest/", "optest-")) for name in names)


@pytest.mark.heavy
def test_the_wheel_runs_in_a_clean_environment(clean: Path, tmp_path: Path) -> None:
    printed = printed_by(clean / "optest", "run", "--plan", ROOT / "examples/quickstart/plan.yaml", "-q", cwd=tmp_path)
    assert "41 passed" in printed
    assert "optest" in printed_by(clean / "python", "-m", "optest", "--version", cwd=tmp_path)


@pytest.mark.heavy
def test_the_sdist_installs_and_runs(sdist: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path / "other", sdist)
    printed = printed_by(
        programs / "optest", "run", "--plan", ROOT / "examples/quickstart/plan.yaml", "-q", cwd=tmp_path
    )
    assert "41 passed" in printed


@pytest.mark.heavy
def test_a_plugin_of_another_distribution(with_the_plugin: Path, tmp_path: Path) -> None:
    assert "hardshrink" in printed_by(with_the_plugin / "optest", "list", "operators", cwd=tmp_path)
    installed = printed_by(with_the_plugin / "optest", "doctor", cwd=tmp_path)
    assert "installed, optest.operators: hardshrink (optest_hardshrink.operator:" in installed
    assert "installed, optest.backends: blocked (optest_hardshrink.backend:" in installed
    plan = PLUGIN / "plan.yaml"
    table = tmp_path / "results.csv"
    printed_by(
        with_the_plugin / "optest", "run", "--plan", plan, "--report", "csv", "--report-path", table, cwd=tmp_path
    )
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [(row["operator"], row["status"]) for row in rows] == [("hardshrink", "passed")] * 2
    printed = printed_by(
        with_the_plugin / "optest", "check", "--backend", "blocked", "--op", "hardshrink", cwd=tmp_path
    )
    assert "hardshrink" in printed
    assert re.search(r"\b[1-9][0-9]* passed", printed), printed


OWN_OPTIONS = """\
import sys

def pytest_addoption(parser):
    for name in ("--model", "--torch-device", "--compile-backend", "--dedupe", "--list-models", "--show-skipped"):
        parser.addoption(name, default="of this project")
    parser.addini("optest_models", "of this project")

def pytest_collection_finish(session):
    plugins = session.config.pluginmanager
    assert plugins.hasplugin("optest"), "the installed entry point was not found"
    assert not plugins.get_hookcallers(plugins.get_plugin("optest"))
    assert [name for name in sys.modules if name.partition(".")[0] == "optest"] == ["optest"]
    assert not {"numpy", "yaml"} & sys.modules.keys()

"""
OWN_TEST = "def test_own(request):\n    assert request.config.getoption('--model') == 'mine'\n"
CASES = "model: tiny\ncases:\n  - {name: a, op: torch.abs, inputs: [{tensor: {shape: [2]}}]}\n"
SWITCHED_ON = "[pytest]\naddopts = -p optest.pytest_plugin --strict-markers\noptest_models = models\n"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and its metadata as the wheel has them; it stands before what else is installed."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a test, and cases that nobody has switched on."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.yaml").write_text(CASES)
    (tmp_path / "test_own.py").write_text(OWN_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def python(installed: Path, project: Path, *words: str) -> str:
    return printed_by(sys.executable, *words, cwd=project, PYTHONPATH=str(installed), TEST_COMPILE_BACKEND="eager")


def test_the_metadata_names_the_package_and_not_the_plugin(installed: Path) -> None:
    (distribution,) = distributions(path=[str(installed)])
    assert [(each.name, each.value) for each in distribution.entry_points.select(group="pytest11")] == [
        ("optest", "optest:__version__")
    ]


def test_a_project_without_the_line_has_all_names_for_itself(installed: Path, project: Path) -> None:
    (project / "conftest.py").write_text(OWN_OPTIONS)
    printed = python(installed, project, "-m", "pytest", "-W", "error", "--strict-markers", "--model", "mine")
    assert re.search("^plugins: .*optest-", printed, re.MULTILINE)
    assert "1 passed" in printed


def test_no_warning_where_optest_was_imported_before_pytest(installed: Path, project: Path) -> None:
    start = "import sys, optest, pytest; sys.exit(pytest.main(['-W', 'error', '-q', '-k', 'not own', 'test_two.py']))"
    (project / "test_two.py").write_text("import optest\n\ndef test_two():\n    assert optest.__version__\n")
    assert "1 passed" in python(installed, project, "-c", start)


@pytest.mark.heavy
def test_the_line_switches_it_on_beside_the_entry_point(installed: Path, project: Path) -> None:
    (project / "pytest.ini").write_text(SWITCHED_ON)
    for more in ([], ["-p", "no:optest"], ["-p", "optest"]):
        printed = python(installed, project, "-m", "pytest", *more, "--list-cases", "--model", "tiny")
        assert printed.startswith("tiny::a::torch.abs  (")
    (project / "plan.yaml").write_text("backend: numpy\ncases: [{op: relu, shapes: {input0: 8x8}}]\n")
    assert "1 passed" in python(installed, project, "-m", "pytest", "-q", "plan.yaml")

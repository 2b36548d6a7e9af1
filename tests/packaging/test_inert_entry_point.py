"""What pytest finds of an installed optest does nothing: the plug-in is switched on by a line of a project's ini."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
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
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and its metadata as the wheel has them; it stands before what else is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a test, and cases that nobody has switched on."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.yaml").write_text(CASES)
    (tmp_path / "test_own.py").write_text(OWN_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def said(installed: Path, project: Path, *words: str) -> str:
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "OPTEST_"))}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env={**variables, "PYTHONPATH": str(installed), "TEST_COMPILE_BACKEND": "eager"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_metadata_names_the_package_and_not_the_plugin(installed: Path) -> None:
    (distribution,) = distributions(path=[str(installed)])
    assert [(each.name, each.value) for each in distribution.entry_points.select(group="pytest11")] == [
        ("optest", "optest")
    ]


def test_a_project_without_the_line_has_all_names_for_itself(installed: Path, project: Path) -> None:
    (project / "conftest.py").write_text(OWN_OPTIONS)
    printed = said(installed, project, "-m", "pytest", "-W", "error", "--strict-markers", "--model", "mine")
    assert re.search("^plugins: .*optest-", printed, re.MULTILINE)
    assert "1 passed" in printed


def test_no_warning_where_optest_was_imported_before_pytest(installed: Path, project: Path) -> None:
    start = "import sys, optest, pytest; sys.exit(pytest.main(['-W', 'error', '-q', '-k', 'not own', 'test_two.py']))"
    (project / "test_two.py").write_text("import optest\n\ndef test_two():\n    assert optest.__version__\n")
    assert "1 passed" in said(installed, project, "-c", start)


def test_the_line_switches_it_on_beside_the_entry_point(installed: Path, project: Path) -> None:
    (project / "pytest.ini").write_text(SWITCHED_ON)
    for more in ([], ["-p", "no:optest"], ["-p", "optest"]):
        printed = said(installed, project, "-m", "pytest", *more, "--list-cases", "--model", "tiny")
        assert printed.startswith("tiny::a::torch.abs  (")
    pytest.importorskip("torch")
    assert "1 passed" in said(installed, project, "-m", "pytest", "-q", "--model", "tiny", "-k", "torch.abs")

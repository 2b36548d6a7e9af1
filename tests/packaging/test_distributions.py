"""The wheel and the sdist, built and installed in an environment of their own, and a plug-in installed beside them."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin_package"


def said(*words: str | Path, cwd: Path, status: int = 0) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "OPTEST_PLUGINS")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("dist")
    said(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def clean(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    (wheel,) = built.glob("*.whl")
    said(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return programs


@pytest.fixture(scope="module")
def with_the_plugin(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the clean environment, after the plug-in came beside the wheel."""
    said(clean / "python", "-m", "pip", "install", "--quiet", PLUGIN, cwd=tmp_path_factory.mktemp("plugin"))
    return clean


def test_the_sdist_holds_what_its_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("LICENSE", "Makefile", "requirements-test.txt", "tests/plugins/faulty_backend.py", "docs/index.md")
    assert set(wanted) <= names
    assert not [name for name in names if ".optest/" in name or "__pycache__" in name]


def test_the_wheel_holds_the_package_alone(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "optest/py.typed" in names
    data = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.yaml")}
    assert data <= set(names)
    assert all(name.startswith(("optest/", "optest-")) for name in names)


def test_the_wheel_runs_in_a_clean_environment(clean: Path, tmp_path: Path) -> None:
    printed = said(clean / "optest", "run", "--plan", ROOT / "examples/quickstart/plan.yaml", "-q", cwd=tmp_path)
    assert "41 passed" in printed
    assert "optest" in said(clean / "python", "-m", "optest", "--version", cwd=tmp_path)


@pytest.mark.heavy
def test_the_sdist_installs_and_runs(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=True)
    programs = tmp_path / "other" / "bin"
    (sdist,) = built.glob("*.tar.gz")
    said(programs / "python", "-m", "pip", "install", "--quiet", sdist, cwd=tmp_path)
    printed = said(programs / "optest", "run", "--plan", ROOT / "examples/quickstart/plan.yaml", "-q", cwd=tmp_path)
    assert "41 passed" in printed


def test_a_plugin_of_another_distribution(with_the_plugin: Path, tmp_path: Path) -> None:
    assert "hardshrink" in said(with_the_plugin / "optest", "list", "operators", cwd=tmp_path)
    installed = said(with_the_plugin / "optest", "doctor", cwd=tmp_path)
    assert "installed, optest.operators: hardshrink (optest_hardshrink.operator:" in installed
    assert "installed, optest.backends: blocked (optest_hardshrink.backend:" in installed
    plan = PLUGIN / "plan.yaml"
    table = tmp_path / "results.csv"
    said(with_the_plugin / "optest", "run", "--plan", plan, "--report", "csv", "--report-path", table, cwd=tmp_path)
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [(row["operator"], row["status"]) for row in rows] == [("hardshrink", "passed")] * 2


def test_the_plugins_backend_is_checked_by_its_own_case_sets(with_the_plugin: Path, tmp_path: Path) -> None:
    printed = said(with_the_plugin / "optest", "check", "--backend", "blocked", "--op", "hardshrink", cwd=tmp_path)
    assert "hardshrink" in printed
    assert re.search(r"\b[1-9][0-9]* passed", printed), printed

"""A backend's own test file: one line, and every case of a check is a test with a stable name."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import warm_python
from texts import says

from optest.errors import UsageError
from optest.suites import define_backend_tests

pytestmark = pytest.mark.slow

INI = "[pytest]\naddopts = -p optest.pytest_plugin -p no:cacheprovider\n"
SUITE = """\
import numpy as np
from optest.backends import BackendDriver
from optest.suites import define_backend_tests

MADE = []


class Mine(BackendDriver):
    name = "mine"

    def lacks(self, descriptor):
        return None if descriptor.name in ("relu", "sum") else "not in mine"

    def run(self, case, inputs):
        if case.descriptor.name == "relu":
            return [np.maximum(inputs[0], 0)]
        dim, keep = case.attributes.get("dim"), case.attributes.get("keepdim", False)
        dim = tuple(dim) if isinstance(dim, list) else dim
        if dim == 1:
            inputs = [inputs[0][:, :-1]]  # the last of a row is forgotten
        return [inputs[0].sum(axis=dim, keepdims=keep)]


define_backend_tests("mine_backend_tests", Mine)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_suite.py").write_text(SUITE)
    return folder


def run(project: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run("pytest", *arguments, cwd=project, env={"OPTEST_RUNS_DIR": str(project / "runs"), **env})


def test_smoke_is_the_default_and_names_are_stable(project: Path) -> None:
    listed = run(project, "--collect-only", "-q").stdout.splitlines()
    assert [line.rpartition("::")[0] for line in listed if "::" in line] == [
        f"test_suite.py::mine_backend_tests::{name}_matches_torch" for name in ("relu", "sum")
    ]
    ended = run(project, "-q")
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


def test_parity_tier_failure_is_reproducible(project: Path) -> None:
    ended = run(project, "-q", "--optest-tier", "parity", "-k", "sum_matches_torch", "--junitxml", "report.xml")
    assert ended.returncode == 1
    assert "sum of" in ended.stdout or "elements are off" in ended.stdout
    assert "OPTEST_PLUGINS=test_suite optest run" in ended.stdout
    tests = ElementTree.parse(project / "report.xml").getroot().iter("testcase")
    found = [(each.get("classname", "").rpartition(".")[2], each.get("name", "")) for each in tests]
    assert {operator for operator, _ in found} == {"sum_matches_torch"}
    assert "ordinary/1[float32 (4x37, dim=[1])]" in [name for _, name in found]


@pytest.mark.heavy
def test_the_table_of_times_stands_at_the_end(project: Path) -> None:
    ended = run(project, "--optest-bench", "-k", "relu_matches_torch")
    assert ended.returncode == 0, ended.stdout
    lines = ended.stdout.splitlines()
    (head,) = [line for line in lines if line.split()[:2] == ["test", "reference"]]
    row = lines[lines.index(head) + 1].split()
    assert (row[0], row[-1]) == ("relu", "ok")
    assert any(each.endswith("µs") or each in ("µs", "ms", "ns") for each in row), row
    assert "reference" not in run(project, "-k", "relu_matches_torch").stdout


@pytest.mark.heavy
def test_workers_of_xdist_share_it(project: Path) -> None:
    ended = run(project, "-q", "-n2", "--optest-tier", "parity", "-k", "relu_matches_torch and sizes")
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout


@pytest.mark.parametrize(
    ("factory", "said"),
    [("lambda: 1 / 0", "the factory of suite mine_backend_tests raised ZeroDivisionError"), ("dict", "backend is a")],
)
def test_a_factory_that_is_wrong_ends_the_collection(project: Path, tmp_path: Path, factory: str, said: str) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_suite.py").write_text(SUITE.replace('tests", Mine)', f'tests", {factory})'))
    ended = run(tmp_path, "-q")
    assert ended.returncode != 0
    assert said in ended.stdout


def test_without_the_plug_in_a_test_fails(project: Path) -> None:
    (project / "none.ini").write_text("[pytest]\n")
    ended = run(project, "-q", "-c", "none.ini", "--rootdir", ".")
    assert ended.returncode == 1
    assert "-p optest.pytest_plugin" in ended.stdout


@pytest.mark.parametrize(
    ("name", "factory", "tier"), [("my suite", dict, "smoke"), ("mine", None, "smoke"), ("mine", dict, "parities")]
)
def test_a_wrong_definition_is_refused(name: str, factory: object, tier: str) -> None:
    with pytest.raises(UsageError):
        define_backend_tests(name, factory, tier=tier)  # type: ignore[arg-type]


def test_a_suite_inside_a_function_is_refused() -> None:
    with pytest.raises(UsageError, match="inside test_a_suite_inside_a_function"):
        define_backend_tests("mine", dict)


def test_marks_of_the_project_skip_cases(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_suite.py").write_text("import pytest\n" + SUITE + 'pytestmark = pytest.mark.skip("not now")\n')
    ended = run(tmp_path, "-rs")
    assert ended.returncode == 5, ended.stdout  # nothing was verified
    assert "not now" in ended.stdout


def test_an_unknown_tier_of_the_ini_is_said(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI + "optest_tier = foo\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    ended = run(tmp_path, "-q")
    assert ended.returncode != 0
    assert says(ended.stdout, "pytest_plugin.is_foo_but_should")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('define_backend_tests("others", Mine)\n', "give them different names"),
        ('define_backend_tests("mine_backend_tests", Mine)\n', "two suites called mine_backend_tests"),
        (
            "from optest.backends import backend_manager\nbackend_manager.register(Mine())\n",
            "give them different names",
        ),
    ],
)
def test_two_drivers_of_one_name_are_no_guess(tmp_path: Path, more: str, said: str) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_suite.py").write_text(SUITE + more)
    ended = run(tmp_path, "-q")
    assert ended.returncode != 0
    assert said in ended.stdout


@pytest.mark.heavy
def test_repro_line_finds_a_suite_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "test_below.py").write_text(SUITE)
    ended = run(tmp_path, "-q", "below/test_below.py", "--optest-tier", "parity", "-k", "sum_matches_torch")
    assert says(ended.stdout, "pytest_plugin.again_pythonpath_below_optest")


@pytest.mark.heavy
def test_suites_of_shipped_drivers_and_layers(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_suite.py").write_text(
        "from optest.backends.numpy_reference import NumpyBackend\nfrom optest.suites import define_backend_tests\n"
        'define_backend_tests("own", NumpyBackend)\n'
    )
    ended = run(tmp_path, "-v", "-k", "torch_feed_forward_matches_torch or relu_matches_torch")
    assert ended.returncode == 0, ended.stdout
    assert "test_suite.py::own::torch_feed_forward_matches_torch::ordinary/1" in ended.stdout
    assert "test_suite.py::own::relu_matches_torch::ordinary/1" in ended.stdout

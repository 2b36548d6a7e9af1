"""A backend's own test file: one line, and every case of a check is a test with a stable name."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import warm_python
from texts import says
from user_shell import Ended

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
    return written(tmp_path_factory.mktemp("project"))


def written(folder: Path, suite: str = SUITE, ini: str = "", name: str = "test_suite.py") -> Path:
    """The folder with a project of this one suite."""
    (folder / "pytest.ini").write_text(INI + ini)
    (folder / name).write_text(suite)
    return folder


def run(project: Path, *arguments: str) -> Ended:
    done = warm_python.run("pytest", *arguments, cwd=project, env={"OPTEST_RUNS_DIR": str(project / "runs")})
    return Ended(done.returncode, done.stdout, done.stderr)


def test_smoke_is_the_default_and_names_are_stable(project: Path) -> None:
    listed = run(project, "--collect-only", "-q").out.splitlines()
    assert [line.rpartition("::")[0] for line in listed if "::" in line] == [
        f"test_suite.py::mine_backend_tests::{name}_matches_torch" for name in ("relu", "sum")
    ]
    run(project, "-q").expect(0, out="2 passed")


def test_parity_tier_failure_is_reproducible(project: Path) -> None:
    ended = run(project, "-q", "--optest-tier", "parity", "-k", "sum_matches_torch", "--junitxml", "report.xml")
    ended.expect(1)
    assert "sum of" in ended.out or "elements are off" in ended.out
    assert "OPTEST_PLUGINS=test_suite optest run" in ended.out
    tests = ElementTree.parse(project / "report.xml").getroot().iter("testcase")
    found = [(each.get("classname", "").rpartition(".")[2], each.get("name", "")) for each in tests]
    assert {operator for operator, _ in found} == {"sum_matches_torch"}
    assert "ordinary/1[float32 (4x37, dim=[1])]" in [name for _, name in found]


@pytest.mark.heavy
def test_the_table_of_times_stands_at_the_end(project: Path) -> None:
    ended = run(project, "--optest-bench", "-k", "relu_matches_torch").expect(0)
    lines = ended.out.splitlines()
    (head,) = [line for line in lines if line.split()[:2] == ["test", "reference"]]
    row = lines[lines.index(head) + 1].split()
    assert (row[0], row[-1]) == ("relu", "ok")
    assert any(each.endswith("µs") or each in ("µs", "ms", "ns") for each in row), row
    assert "reference" not in run(project, "-k", "relu_matches_torch").out


@pytest.mark.heavy
def test_workers_of_xdist_share_it(project: Path) -> None:
    run(project, "-q", "-n2", "--optest-tier", "parity", "-k", "relu_matches_torch and sizes").expect(0, out=" passed")


@pytest.mark.parametrize(
    ("factory", "said"),
    [("lambda: 1 / 0", "the factory of suite mine_backend_tests raised ZeroDivisionError"), ("dict", "backend is a")],
)
def test_a_factory_that_is_wrong_ends_the_collection(tmp_path: Path, factory: str, said: str) -> None:
    ended = run(written(tmp_path, SUITE.replace('tests", Mine)', f'tests", {factory})')), "-q")
    assert (ended.status != 0, said in ended.out) == (True, True), ended.text


def test_without_the_plug_in_a_test_fails(project: Path) -> None:
    (project / "none.ini").write_text("[pytest]\n")
    run(project, "-q", "-c", "none.ini", "--rootdir", ".").expect(1, out="-p optest.pytest_plugin")


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
    suite = "import pytest\n" + SUITE + 'pytestmark = pytest.mark.skip("not now")\n'
    run(written(tmp_path, suite), "-rs").expect(5, out="not now")  # nothing was verified


def test_an_unknown_tier_of_the_ini_is_said(tmp_path: Path) -> None:
    ended = run(written(tmp_path, ini="optest_tier = foo\n"), "-q")
    assert ended.status != 0
    assert says(ended.out, "pytest_plugin.is_foo_but_should")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('define_backend_tests("others", Mine)\n', "give them different names"),
        ('define_backend_tests("mine_backend_tests", Mine)\n', "two suites called mine_backend_tests"),
        ("import optest.backends as b\nb.backend_manager.register(Mine())\n", "give them different names"),
    ],
)
def test_two_drivers_of_one_name_are_no_guess(tmp_path: Path, more: str, said: str) -> None:
    ended = run(written(tmp_path, SUITE + more), "-q")
    assert (ended.status != 0, said in ended.out) == (True, True), ended.text


@pytest.mark.heavy
def test_repro_line_finds_a_suite_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    ended = run(
        written(tmp_path, name="below/test_below.py"),
        "-q",
        "below/test_below.py",
        "--optest-tier",
        "parity",
        "-k",
        "sum_matches_torch",
    )
    assert says(ended.out, "pytest_plugin.again_pythonpath_below_optest")


@pytest.mark.heavy
def test_suites_of_shipped_drivers_and_layers(tmp_path: Path) -> None:
    suite = "from optest.backends.numpy_reference import NumpyBackend\nfrom optest.suites import define_backend_tests\n"
    project = written(tmp_path, suite + 'define_backend_tests("own", NumpyBackend)\n')
    names = ("torch_feed_forward_matches_torch", "relu_matches_torch")
    ended = run(project, "-v", "-k", " or ".join(names))
    ended.expect(0, out=tuple(f"test_suite.py::own::{name}::ordinary/1" for name in names))

"""Plans among the tests of a project: which files are taken, who runs them, and assertions beside them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import warm_python
from user_shell import Ended

INI = "[pytest]\naddopts = -p optest.pytest_plugin -p no:cacheprovider\ntestpaths = tests\npythonpath = tests\n"
PLAN = """\
cases:
  - {op: matmul, dtypes: float16, shapes: {input0: 3x4, input1: 4x5}}
  - {name: r, op: relu, dtypes: float32, shapes: {input0: 2x8}}
"""
DEVICE = """\
import numpy as np
from optest.backends import BackendDriver, backend_manager

class Device(BackendDriver):
    kind = "gpu"
    def __init__(self, name): self.name = name
    def run(self, case, inputs):
        return [inputs[0] @ inputs[1] if len(inputs) > 1 else np.abs(inputs[0])]

for name in ("one", "two"):
    backend_manager.register(Device(name))
"""
TEST = """\
import numpy as np
import pytest
from optest.testing import assert_right

@pytest.mark.parametrize("scale", [1, 2])
def test_relu(scale):
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    assert_right(scale * np.maximum(x, 0), op="relu", inputs=[x])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    (tests / "more").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(INI)
    (tests / "plan.yaml").write_text(PLAN)
    (tests / "more" / "relu_plan.yml").write_text("cases: [{op: relu, dtypes: float16, shapes: {input0: 3}}]\n")
    (tests / "device.py").write_text(DEVICE)
    (tests / "foreign.yaml").write_text("cases: [of another tool]\n")
    (tests / "plan_of_travel.yaml").write_text("from: here\nto: there\n")
    return tmp_path


def run(project: Path, *arguments: str, **variables: str) -> Ended:
    own = {"PATH": "/usr/bin:/bin", "HOME": str(project), "COLUMNS": "200", "OPTEST_ISOLATE": "none"}
    done = warm_python.run("pytest", *arguments, cwd=project, env={**own, **variables})
    return Ended(done.returncode, done.stdout, done.stderr)


def outcomes(done: Ended) -> set[tuple[str, str]]:
    return set(re.findall(r"^(\S+::.*?) (PASSED|FAILED|SKIPPED|ERROR)", done.out, re.MULTILINE))


def test_plans_are_collected_by_name(project: Path) -> None:
    done = run(project, "-v")
    assert outcomes(done) == {
        ("tests/plan.yaml::matmul[float16](3x4, 4x5)", "PASSED"),
        ("tests/plan.yaml::r", "PASSED"),
        ("tests/more/relu_plan.yml::relu[float16](3)", "PASSED"),
    }, done.out
    assert done.status == 0
    assert "2 passed" in run(project, "-o", "optest_plans=p*.yaml").out
    assert run(project, "-o", "optest_plans=").status == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.heavy
def test_backend_comes_from_ini_environment_or_option(project: Path) -> None:
    ini = project / "pytest.ini"
    ini.write_text(f"{INI}optest_plugins = device\noptest_backend = one\n")
    for arguments, variables, name in (
        ((), {}, "one"),
        ((), {"OPTEST_BACKEND": "two"}, "two"),
        (("--optest-backend", "two"), {"OPTEST_BACKEND": "one"}, "two"),
    ):
        done = run(project, "tests/plan.yaml", *arguments, **variables)
        assert "1 failed, 1 passed" in done.out
        assert f"FAILED  r  {name} against numpy" in done.out
        command = rf"reproduce: OPTEST_PLUGINS=device optest run --op relu .* --backend {name}$"
        assert re.search(command, done.out, re.M)
    ini.write_text(INI)
    done = run(project, "--optest-plugins", "device", "--optest-backend", "one", OPTEST_ISOLATE="worker")
    assert "2 failed, 1 passed" in done.out
    run(project, "--optest-backend", "one").expect(pytest.ExitCode.TESTS_FAILED, out="unknown backend 'one'")


def test_assertion_fails_at_its_line(project: Path) -> None:
    (project / "tests" / "test_x.py").write_text(TEST)
    done = run(project, "-k", "relu", "-n", "2", "--junitxml", "j.xml")
    assert "1 failed, 3 passed" in done.out
    block = done.out.partition('>       assert_right(scale * np.maximum(x, 0), op="relu", inputs=[x])\n')[2]
    told, _, behind = block.partition("\n\n")
    assert told.startswith(
        "E       AssertionError: FAILED  relu[float32](9)  actual against numpy\nE         out: 4 of 9"
    )
    assert behind.startswith("tests/test_x.py:8: AssertionError\n")
    names = [case.get("name") for case in ElementTree.parse(project / "j.xml").iter("testcase")]
    assert sorted(map(str, names)) == ["r", "relu[float16](3)", "test_relu[1]", "test_relu[2]"]


def test_plan_finds_modules_of_the_start_folder(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text("import numpy as np\ndef relu(x):\n    return np.maximum(x, 0)\n")
    stated = "backend_config: {function: {relu: own_kernels:relu}}, op: relu, dtypes: float32, shapes: {input0: 8}"
    (tmp_path / "plan.yaml").write_text(f"backend: function\ncases: [{{{stated}}}]\n")
    done = run(tmp_path, "-v", "-p", "optest.pytest_plugin", "plan.yaml")
    assert outcomes(done) == {("plan.yaml::relu[float32](8)", "PASSED")}, done.out

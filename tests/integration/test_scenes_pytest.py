"""Scenes by pytest, as a program, and by ``optest run``: the same cases, verdicts and exit status."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import warm_python
from texts import says

from optest.guests import Option
from optest.pytest_plugin.options import level_of_a_runtime
from optest.settings import OPTIONS
from optest.store import read_journal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"
INI = "[pytest]\naddopts = -p optest.pytest_plugin --strict-markers --strict-config -p no:cacheprovider\n"
SCENES = """\
import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


class Plus(SceneTestCase):
    CALLABLE = {"orchestration": {"function_name": "aicpu_orchestration_entry", "signature": [D.IN, D.OUT]}}

    def generate_args(self, params):
        return TaskArgsBuilder(Tensor("x", np.ones(8, np.float32)), Tensor("y", np.zeros(8, np.float32)))

    def compute_golden(self, args, params):
        args.y[:] = args.x + 1


@scene_test(level=2, runtime="tensormap_and_ringbuffer", platforms=["a2a3sim", "a5sim", "a2a3"])
class TestPlus(Plus):
    CASES = [
        {"name": "default"},
        {"name": "other", "platforms": ["a2a3sim"]},
        {"name": "large", "manual": True},
    ]


@scene_test(level=3, runtime="other", platforms=["a2a3sim", "a2a3"])
class TestRing(Plus):
    CASES = [{"name": "two", "device_count": 2}]


@scene_test(runtime="tensormap_and_ringbuffer", platforms=["a2a3"])
class TestHardware(Plus):
    CASES = [{"name": "default"}]


def test_plain():
    with open("plain.txt", "a") as file:
        file.write("ran")
"""
MORE = '''\
import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(runtime="tensormap_and_ringbuffer", platforms=["a2a3sim"])
class TestSum(SceneTestCase):
    """A golden of its own file; the function adds to what the output holds, which every round begins anew."""

    CALLABLE = {"orchestration": {"function_name": "accumulate", "signature": [D.IN, D.INOUT]}}
    CASES = [{"name": "default", "params": {"size": 8}}]
    GOLDEN = "golden.py"


@scene_test(runtime="tensormap_and_ringbuffer", platforms=["a2a3sim"])
class TestWrong(TestSum):
    CALLABLE = {"orchestration": {"function_name": "wrong", "signature": [D.IN, D.INOUT]}}
    CASES = [{"name": "default", "params": {"size": 8}}]
'''
GOLDEN = """\
import numpy as np
from optest.scenes import TaskArgs, Tensor

def generate_inputs(params):
    return TaskArgs(Tensor("x", np.ones(params["size"])), Tensor("y", np.full(params["size"], 2.0)))

def compute_golden(args, params):
    args.y += args.x
"""
MAIN = '\n\nif __name__ == "__main__":\n    SceneTestCase.run_module(__name__)\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_scenes.py").write_text(SCENES + MAIN)
    (tmp_path / "test_more.py").write_text(MORE + MAIN)
    (tmp_path / "golden.py").write_text(GOLDEN)
    return tmp_path


def environment(**further: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}
    search = {"PYTHONPATH": str(PLUGINS), "OPTEST_PLUGINS": "scene_stand_in", "COLUMNS": "200"}
    return {**kept, **search, **further}


def run(
    project: Path, *words: str, further: tuple[str, ...] = ("pytest",), **env: str
) -> subprocess.CompletedProcess[str]:
    """pytest, in a process that has imported ``further``."""
    return warm_python.run("pytest", *words, cwd=project, env=environment(**env), further=further)


def optest(project: Path, file: str, *words: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run(
        "optest", "run", "--source", f"scene:{file}", *words, cwd=project, env=environment(), further=("pytest",)
    )


def standalone(project: Path, file: str, *words: str) -> subprocess.CompletedProcess[str]:
    """``python -m`` the file; the example is run as ``python FILE``."""
    return warm_python.run(file.removesuffix(".py"), *words, cwd=project, env=environment(), further=("pytest",))


def outcome(project: Path, done: subprocess.CompletedProcess[str]) -> tuple[int, list[tuple[str, str, int]]]:
    """Exit status, and id, status and round of every result of the newest run."""
    journals = sorted((project / ".optest/runs").glob("*/journal.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    assert journals, done.stdout + done.stderr
    results = read_journal(journals[-1]).results
    shutil.rmtree(project / ".optest" / "runs")  # what was compiled stays
    return done.returncode, sorted((each.id, each.status.value, each.round) for each in results)


@pytest.mark.parametrize(
    ("file", "words", "status", "count"),
    [
        pytest.param("test_scenes.py", ("--device", "0-1"), 0, 5, marks=pytest.mark.heavy),
        pytest.param(
            "test_scenes.py",
            ("--platform", "a2a3", "--device", "4-7", "--manual", "include", "--max-parallel", "2"),
            0,
            5,
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            "test_scenes.py",
            ("--level", "2", "--runtime", "tensormap_and_ringbuffer", "--case", "TestPlus::"),
            0,
            3,
            marks=pytest.mark.heavy,
        ),
        pytest.param("test_scenes.py", ("--platform", "a5"), 5, 4, marks=pytest.mark.heavy),
        ("test_more.py", ("-x", "--device", "0"), 1, 2),
        pytest.param(
            "test_scenes.py",
            ("--skip-golden", "--case", "default", "--case", "TestRing::two", "--device", "0,3"),
            0,
            4,
            marks=pytest.mark.heavy,
        ),
        pytest.param("test_more.py", ("--rounds", "3"), 1, 6, marks=pytest.mark.heavy),
    ],
)
def test_three_faces_agree(project: Path, file: str, words: tuple[str, ...], status: int, count: int) -> None:
    by_optest = outcome(project, optest(project, file, *words))
    assert (by_optest[0], len(by_optest[1])) == (status, count)
    assert outcome(project, standalone(project, file, *words)) == by_optest
    done = run(project, "-v", file, *words, "--deselect", f"{file}::test_plain")
    assert outcome(project, done) == by_optest
    told = re.findall(rf"^{file}::(\S+\[\S+\]::\S+) ", done.stdout, re.MULTILINE)
    assert sorted(told) == sorted({name for name, _, _ in by_optest[1]})


@pytest.mark.cxx
@pytest.mark.heavy
def test_the_example_by_three_faces(tmp_path: Path) -> None:
    folder = tmp_path / "vector_add"
    shutil.copytree(ROOT / "examples/scenes/vector_add", folder)
    (tmp_path / "pytest.ini").write_text(INI)
    words = ("--platform", "cpusim", "--device", "0-1")
    by_optest = outcome(tmp_path, optest(tmp_path, "vector_add", *words))
    assert {status for _, status, _ in by_optest[1]} == {"passed"}
    program = [sys.executable, "vector_add/test_vector_add.py", "-p", "cpusim", "-d", "0-1"]
    done = subprocess.run(program, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert outcome(tmp_path, done) == by_optest
    assert outcome(tmp_path, run(tmp_path, "vector_add", *words)) == by_optest


@pytest.mark.heavy
def test_one_worker_for_all_rounds_and_files(project: Path) -> None:
    run(project, "--rounds", "2", "--platform", "a2a3sim", "--level", "2")
    assert (project / "opened.txt").read_text() == "tensormap_and_ringbuffer a2a3sim 0\n"


@pytest.mark.heavy
def test_workers_of_xdist_share_the_devices(project: Path) -> None:
    done = run(project, "-n", "2", "--dist", "loadfile", "--platform", "a2a3sim", "--device", "8-11")
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_more.py::TestWrong[a2a3sim]::default - " in done.stdout
    opened = [line.split()[2] for line in (project / "opened.txt").read_text().splitlines()]
    assert len(opened) == len(set(opened))
    wide, *narrow = sorted(opened, key=len, reverse=True)
    mine = wide.split(",")  # gw0 has 8 and 9, gw1 the others: each file is one worker's
    assert mine in (["8", "9"], ["10", "11"])
    assert any(each in mine for each in narrow)
    assert any(each not in mine for each in narrow)
    assert (project / "plain.txt").read_text() == "ran"


@pytest.mark.heavy
def test_plain_tests_run_once_beside_scenes(project: Path) -> None:
    done = run(project, "test_scenes.py", "--device", "0-1", "-rs")
    assert "5 passed, 1 skipped, 2 deselected" in done.stdout, done.stdout
    assert says(done.stdout, "integration.test_scenes_py_no")
    assert (project / "plain.txt").read_text() == "ran"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (
            ["test_scenes.py"],
            ["Plus[a2a3sim]::default", "Plus[a2a3sim]::other", "Plus[a5sim]::default", "Ring[a2a3sim]::two"],
        ),
        (["test_scenes.py::TestPlus[a2a3sim]"], ["Plus[a2a3sim]::default", "Plus[a2a3sim]::other"]),
        (["test_scenes.py::TestPlus[a2a3sim]::other"], ["Plus[a2a3sim]::other"]),
        (
            ["test_scenes.py::TestPlus[a2a3sim]::other", "test_scenes.py::TestPlus[a2a3sim]"],
            ["Plus[a2a3sim]::other", "Plus[a2a3sim]::default"],
        ),
        (
            ["test_scenes.py::TestRing[a2a3sim]::two", "--runtime", "other", "--level", "3", "--case", "TestRing::two"],
            ["Ring[a2a3sim]::two"],
        ),
        (["-k", "a5sim"], ["Plus[a5sim]::default"]),
        (["-m", "level3"], ["Ring[a2a3sim]::two"]),
        (["--manual", "only"], ["Plus[a2a3sim]::large", "Plus[a5sim]::large"]),
        (["--manual", "include", "--case", "TestPlus::large", "--platform", "a5sim"], ["Plus[a5sim]::large"]),
        (["test_scenes.py", "--case", "TestRing::"], ["Ring[a2a3sim]::two"]),
        (
            ["--platform", "a2a3", "test_scenes.py"],
            ["Plus[a2a3]::default", "Plus[a2a3]::other", "Ring[a2a3]::two", "Hardware[a2a3]::default"],
        ),
    ],
)
def test_what_is_collected(project: Path, words: list[str], names: list[str]) -> None:
    done = run(project, "--collect-only", "-q", *words)
    told = [line.partition("::Test")[2] for line in done.stdout.splitlines() if "]::" in line]
    gone = {"Sum[a2a3sim]::default", "Wrong[a2a3sim]::default", "Hardware[-]::default"}
    assert [each for each in told if each not in gone] == names, done.stdout
    assert not (project / "opened.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--case", "nope"], "no case matches --case 'nope'; ids: TestSum[a2a3sim]::default, "),
        pytest.param(
            ["--case", "nope", "-n", "2"],
            "no case matches --case 'nope'; ids: TestSum[a2a3sim]::default, ",
            marks=pytest.mark.heavy,
        ),
        (["--case", "TestPlus::default", "test_more.py"], "no case matches --case 'TestPlus::default'"),
        (["--case", "large"], "--case 'large' matches only manual cases; add --manual include"),
        (["--runtime", "ringbuffer"], "unknown runtime 'ringbuffer'"),
        (["--platform", "a2a3sm"], "--platform is 'a2a3sm', expected a registered platform; did you mean a2a3sim?"),
    ],
)
def test_wrong_requests(project: Path, words: list[str], message: str) -> None:
    done = run(project, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert not (project / "opened.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--platform", "a2a3sim", "--device", "8-10"), "leaves each worker 1 of the 3 devices"),
        (("--platform", "a2a3", "--device", "8", "--level", "2"), "two workers on hardware would wait"),
    ],
)
def test_xdist_with_too_few_devices_runs_nothing(project: Path, words: tuple[str, ...], message: str) -> None:
    done = run(project, "-n", "2", "test_scenes.py", *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert message in done.stdout + done.stderr
    assert not (project / "opened.txt").exists()


def test_a_plug_in_of_this_folder_is_found(project: Path) -> None:
    """As by ``optest run``; pytest by itself has only the folders of its files on the path."""
    (project / "beside.py").write_text("import scene_stand_in\nscene_stand_in.register()\n")
    (project / "below").mkdir()
    (project / "test_more.py").rename(project / "below" / "test_more.py")
    (project / "golden.py").rename(project / "below" / "golden.py")
    command = [str(Path(sys.executable).with_name("pytest")), "below", "--platform", "a2a3sim", "-k", "Sum"]
    variables = environment(OPTEST_PLUGINS="beside")  # `python -m pytest` would add this folder
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "python sc/test_more.py",
        "pytest sc",
        "optest run --source scene:sc",
        "optest list --source scene:sc/test_more.py",
    ],
)
def test_a_plug_in_beside_the_scene_is_found(project: Path, words: str) -> None:
    """By all faces, from another folder than the scene's."""
    (project / "sc").mkdir()
    for name in ("test_more.py", "golden.py"):
        (project / name).rename(project / "sc" / name)
    (project / "sc" / "beside.py").write_text("import scene_stand_in\nscene_stand_in.register()\n")
    program, *rest = words.split()
    command = [str(Path(sys.executable).with_name(program)), *rest]
    variables = environment(OPTEST_PLUGINS="beside")
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert ("TestSum[a2a3sim]::default" if "list" in words else "1 passed") in output, output


@pytest.mark.parametrize("words", [["--level", "4"], ["--rounds", "0"], ["--schedule", "random"]])
def test_wrong_values(project: Path, words: list[str]) -> None:
    done = run(project, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert words[0] in done.stdout + done.stderr
    assert standalone(project, "test_more.py", *words).returncode == 2


def test_too_few_devices_fail_before_anything_runs(project: Path) -> None:
    done = run(project, "test_scenes.py", "--device", "3")
    assert done.returncode == 4
    assert "TestRing[a2a3sim]::two needs 2" in done.stderr
    assert "widen --device" in done.stderr
    assert not (project / "opened.txt").exists()


def test_the_first_failure_ends_the_session(project: Path) -> None:
    done = run(project, "-x", "test_more.py::TestWrong", "test_more.py::TestSum")
    assert "1 failed" in done.stdout
    assert "stopping after 1 failures" in done.stdout
    assert "passed" not in done.stdout


@pytest.mark.heavy
def test_junit_has_every_case(project: Path) -> None:
    run(project, "--junitxml=report.xml", "--device", "0-1", "--platform", "a2a3sim")
    suite = ElementTree.parse(project / "report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "1", "1")
    wrong = next(each for each in suite if "TestWrong" in f"{each.get('classname')}{each.get('name')}")
    assert "all 8 elements are off" in f"{wrong[0].text}"
    assert (wrong.get("classname"), wrong.get("name")) == ("test_more", "TestWrong[a2a3sim]::default")


@pytest.mark.heavy
def test_golden_is_not_compared_but_run(project: Path) -> None:
    done = run(project, "-v", "--skip-golden", "test_more.py")
    assert (done.returncode, "2 unchecked" in done.stdout) == (0, True), done.stdout
    assert "TestWrong[a2a3sim]::default UNCHECKED" in done.stdout


SEED = """\
import torch
from simpler.task_interface import ArgDirection as D

from simpler_setup import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestMyKernel(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration/my_orch.cpp",
            "function_name": "aicpu_orchestration_entry",
            "signature": [D.IN, D.OUT],
        },
        "incores": [
            {"func_id": 0, "source": "kernels/aiv/my_kernel.cpp", "core_type": "aiv"},
        ],
    }

    CASES = [
        {
            "name": "default",
            "platforms": ["a2a3sim", "a2a3"],
            "config": {"aicpu_thread_num": 4, "block_dim": 3},
            "params": {},
        },
    ]

    def generate_args(self, params):
        return TaskArgsBuilder(
            Tensor("x", torch.ones(1024, dtype=torch.float32)),
            Tensor("y", torch.zeros(1024, dtype=torch.float32)),
        )

    def compute_golden(self, args, params):
        args.y[:] = args.x + 1

if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
"""


@pytest.mark.heavy
@pytest.mark.torch
def test_scene_of_simpler_runs_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_my_kernel.py").write_text(SEED)
    done = run(tmp_path, "-rs", OPTEST_PLUGINS="", further=warm_python.TORCH)
    assert says(done.stdout, "integration.runtime_tensormap_and_ringbuffer"), done.stdout
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "1 passed" in run(tmp_path, "-v", further=warm_python.TORCH).stdout
    assert "1 passed" in run(tmp_path, "-v", "--platform", "a2a3", further=warm_python.TORCH).stdout


BY_HAND = """\
import numpy as np
import pytest
from optest.scenes import TaskArgs, Tensor

class TestApi:
    _scene_platforms = ("a2a3sim", "a5sim", "a2a3")

    @pytest.mark.parametrize("size", [1, 8])
    def test_run(self, st_platform, st_worker, st_device_ids, size):
        args = TaskArgs(Tensor("x", np.ones(size)), Tensor("y", np.zeros(size)))
        st_worker.run({"orchestration": {"function_name": "aicpu_orchestration_entry"}}, args, runtime="other")
        assert (args.y == 2).all()
        assert (st_worker.platform, st_worker.device_ids) == (st_platform, st_device_ids)

class TestHardware:
    _scene_platforms = ("a2a3",)

    def test_platform(self, st_platform):
        assert st_platform == "a2a3"

    def test_without_it(self):
        pass
"""


@pytest.mark.parametrize(
    ("words", "counts", "opened"),
    [
        ([], "4 passed, 2 skipped", ["other a2a3sim 0", "other a5sim 0"]),
        (["--platform", "a5sim"], "2 passed, 2 skipped", ["other a5sim 0"]),
        (["--platform", "a2a3", "--device", "4-5"], "4 passed", ["other a2a3 4,5"]),
        (["--platform", "a5"], "4 skipped", []),
    ],
)
def test_tests_by_hand(tmp_path: Path, words: list[str], counts: str, opened: list[str]) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_api.py").write_text(BY_HAND)
    done = run(tmp_path, *words)
    assert f" {counts} in " in done.stdout, done.stdout
    file = tmp_path / "opened.txt"
    assert (file.read_text().splitlines() if file.exists() else []) == opened


OWN_OPTIONS = """\
def pytest_addoption(parser):
    parser.addoption("--platform", default=None, help="ours")
    parser.addoption("--device", dest="ids", default="0-3")
    parser.addoption("--rounds", type=int, default=2)
    parser.addoption("--own", default="")
"""


@pytest.mark.parametrize(
    ("is_below", "processes"),
    [
        (False, ()),
        (True, ()),
        (True, ("-n", "2")),
    ],
)
@pytest.mark.heavy
def test_options_of_the_project_go_before_ours(project: Path, is_below: bool, processes: tuple[str, ...]) -> None:
    """Also where the values of options stand alone on the command line, and conftest.py lies in a folder of the ini."""
    if is_below:
        (project / "tests").mkdir()
        (project / "pytest.ini").write_text(f"{INI}testpaths = tests\n")
        for name in ("test_scenes.py", "test_more.py", "golden.py"):
            (project / name).rename(project / "tests" / name)
    (project / ("tests" if is_below else ".") / "conftest.py").write_text(OWN_OPTIONS)
    words = ("--own", "value", "--platform", "a2a3sim", "--case", "TestSum::", "--case", "TestRing::")
    status, results = outcome(project, run(project, *words, *processes))
    assert status == 0
    assert results == [
        (f"{name}", "passed", each)
        for name in ("TestRing[a2a3sim]::two", "TestSum[a2a3sim]::default")
        for each in (0, 1)
    ]


@pytest.mark.heavy
def test_a_conftest_may_load_the_plug_in(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "conftest.py").write_text(f'pytest_plugins = ["optest.pytest_plugin"]\n{OWN_OPTIONS}')
    status, results = outcome(project, run(project, "--platform", "a2a3sim", "--case", "TestSum::"))
    assert (status, len(results)) == (0, 2)


def test_without_the_plug_in_scenes_fail(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    done = run(project)
    assert "5 failed, 1 passed" in done.stdout, done.stdout
    assert says(done.stdout, "integration.add_addopts_optest_pytest")


def test_a_class_without_the_decorator_fails(project: Path) -> None:
    (project / "test_more.py").write_text(
        MORE.replace('@scene_test(runtime="tensormap_and_ringbuffer", platforms=["a2a3sim"])', "")
    )
    done = run(project, "test_more.py")
    assert "2 failed" in done.stdout
    assert "@scene_test(…)" in done.stdout


@pytest.mark.heavy
def test_a_mark_of_the_class_counts(project: Path) -> None:
    text = MORE.replace("@scene_test", '@pytest.mark.xfail(reason="known")\n@scene_test').replace(
        "import numpy", "import pytest\nimport numpy"
    )
    (project / "test_more.py").write_text(text)
    done = run(project, "test_more.py", "-rx")
    assert "1 xfailed" in done.stdout, done.stdout


def test_failing_import_is_reported_once(project: Path) -> None:
    (project / "test_more.py").write_text("import nothing_of_this_name\n" + MORE)
    done = run(project, "test_more.py")
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert done.stdout.count("ModuleNotFoundError") == 1


def of_command(command: str) -> list[Option]:
    return [option for option in OPTIONS if command in option.commands]


def test_pytest_has_no_short_options_of_ours(project: Path) -> None:
    text = standalone(project, "test_more.py", "--help").stdout
    assert set(re.findall(r"(?<![\w-])-\w(?=[, ])", text)) == {"-p", "-d", "-x", "-h"}
    help_of_pytest = run(project, "--help").stdout.partition("scenes and devices (optest):")[2].partition("\n\n")[0]
    flags = re.findall(r"^  (-\S+)", help_of_pytest, re.MULTILINE)
    assert sorted(each.partition("=")[0] for each in flags) == sorted(each.flags[0] for each in of_command("pytest"))


def test_script_lists_cases_and_resumes(project: Path) -> None:
    listed = standalone(project, "test_more.py", "--co", "--case", "TestSum::")
    assert (listed.returncode, listed.stdout.split()[0]) == (0, "TestSum[a2a3sim]::default")
    assert not (project / ".optest").exists()
    assert not (project / "opened.txt").exists()
    for words in ((), ("--resume", "latest")):
        assert standalone(project, "test_more.py", "--device", "0", *words).returncode == 1
    assert (project / "opened.txt").read_text().count("\n") == 1
    assert len(list((project / ".optest/runs").glob("2*"))) == 1


def test_one_table_serves_three_faces() -> None:
    of_pytest = {each.name for each in of_command("pytest")}
    assert of_pytest < {each.name for each in of_command("scene")}
    assert {each.name for each in of_command("scene")} <= {each.name for each in of_command("run")}
    assert {each.name for each in of_command("scene")} - of_pytest == {
        *("exitfirst", "log_level"),  # pytest's own
        *("seed", "timeout", "report", "report_path", "runs_dir", "resume"),
    }
    assert {each.short for each in OPTIONS if each.short} == {"-p", "-d"}


@pytest.mark.parametrize(
    ("text", "level"),
    [(None, None), ("DEBUG", "debug"), ("info", "info"), ("WARNING", "warn"), ("25", "warn"), ("CRITICAL", "error")],
)
def test_pytest_log_level_reaches_runtime(text: str | None, level: str | None) -> None:
    assert level_of_a_runtime(text) == level

"""Runs that something works against: what a backend does to the process, the run's folder or another run's journal."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from user_shell import Shell, user_environment

Write = Callable[[str], Path]

PLUGIN = {"OPTEST_PLUGINS": "faulty_backend"}


def two(fault: str, second: str = "zeros") -> str:
    return f"""
backend: faulty
cases:
  - {{op: add, dtypes: float32, shapes: {{input0: 4x5, input1: 4x5}}, name: first,
     backend_config: {{faulty: {{fault: {fault}}}}}}}
  - {{op: add, dtypes: float32, shapes: {{input0: 6x5, input1: 6x5}}, name: second,
     backend_config: {{faulty: {{fault: {second}}}}}}}
"""


@pytest.mark.parametrize("isolate", ["worker", "case", "none"])
def test_a_fork_of_the_backend_answers_for_nobody(optest: Shell, plan: Write, isolate: str) -> None:
    ended = optest("run", "--plan", plan(two("fork")), "--isolate", isolate, env=PLUGIN)
    assert ended.status == 1, ended.text
    assert ended.out.count("1 passed, 1 failed") == 1


def test_an_exit_of_the_backend_is_no_success_in_this_process(optest: Shell, plan: Write) -> None:
    ended = optest("run", "--plan", plan(two("exit 0", "none")), "--isolate", "none", env=PLUGIN)
    assert ended.status == 1, ended.text
    assert "1 passed, 1 crashed" in ended.out


@pytest.mark.parametrize("isolate", ["worker", "none"])
def test_a_function_that_runs_at_the_end_does_not_decide_the_exit_status(
    optest: Shell, plan: Write, isolate: str
) -> None:
    ended = optest("run", "--plan", plan(two("exits 0 in the end")), "--isolate", isolate, env=PLUGIN)
    assert ended.status == 1, ended.text
    assert "2 failed" in ended.out


@pytest.mark.parametrize("isolate", ["worker", "none"])
def test_a_backend_that_leaves_the_folder_is_brought_back(
    optest: Shell, plan: Write, isolate: str, tmp_path: Path
) -> None:
    arguments = ("--isolate", isolate, "--report-path", "report.json")
    ended = optest("run", "--plan", plan(two("changes directory", "none")), *arguments, env=PLUGIN)
    assert ended.status == 1, ended.text
    assert "1 passed, 1 failed" in ended.out
    assert "1 STATE" in ended.out
    assert (tmp_path / "report.json").exists()


@pytest.mark.parametrize("isolate", ["worker", "none"])
def test_a_run_whose_journal_was_deleted_is_no_success(optest: Shell, plan: Write, isolate: str) -> None:
    ended = optest("run", "--plan", plan(two("removes the run", "none")), "--isolate", isolate, env=PLUGIN)
    assert ended.status == 3, ended.text
    assert "deleted while the run went on" in ended.err


def test_a_backend_that_kills_its_guard_costs_its_own_case(optest: Shell, plan: Write) -> None:
    ended = optest("run", "--plan", plan(two("kills its guard", "none")), env=PLUGIN)
    assert ended.status == 1, ended.text
    assert "1 passed, 1 crashed" in ended.out


@pytest.mark.heavy
def test_a_run_that_another_process_writes_is_left_alone(optest: Shell, plan: Write, tmp_path: Path) -> None:
    path = plan(two("none", "none"))
    assert optest("run", "--plan", path, env=PLUGIN).status == 0
    (folder,) = (tmp_path / ".optest" / "runs").glob("*-*")
    before = {each: each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()}
    journal = os.open(folder / "journal.jsonl", os.O_RDWR)
    try:
        fcntl.flock(journal, fcntl.LOCK_EX)
        ended = optest("run", "--plan", path, "--resume", "latest", env=PLUGIN)
    finally:
        os.close(journal)
    assert ended.status == 2, ended.text
    assert "another process" in ended.err
    assert {each: each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()} == before


RESUMED = """
backend: mine
cases:
  - {op: relu, dtypes: float32, shapes: {input0: 4x5}, name: first, reference: "truth:relu", generator: "source:draw"}
  - {op: relu, dtypes: float32, shapes: {input0: 6x5}, name: second}
"""
FILES = {
    "mine.py": "import kernels\nfrom optest.backends import BackendDriver, backend_manager\n\n\n"
    "class Mine(BackendDriver):\n    name = kind = 'mine'\n\n    def run(self, case, inputs):\n"
    "        return [kernels.relu(inputs[0])]\n\n\nbackend_manager.register(Mine())\n",
    "kernels.py": "def relu(x):\n    return x * (x > 0)\n",
    "truth.py": "def relu(inputs, attributes):\n    return [inputs[0] * (inputs[0] > 0)]\n",
    "source.py": "def draw(case, rng):\n    return [rng.random(case.inputs[0].spec.shape, 'f4')], None\n",
}


@pytest.mark.parametrize(
    "edited",
    [
        "mine.py",
        None,
        *(pytest.param(each, marks=pytest.mark.heavy) for each in ("kernels.py", "truth.py", "source.py")),
    ],
)
def test_a_run_is_resumed_only_with_the_code_that_it_began_with(
    optest: Shell, plan: Write, tmp_path: Path, edited: str | None
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    path = plan(RESUMED)
    mine = {"OPTEST_PLUGINS": "mine", "PYTHONPATH": str(tmp_path)}
    assert optest("run", "--plan", path, env=mine).status == 0
    if edited is not None:
        (tmp_path / edited).write_text(FILES[edited] + "# another time\n")
    ended = optest("run", "--plan", path, "--resume", "latest", env=mine)
    assert ended.status == (0 if edited is None else 2), ended.text
    if edited is not None:
        assert f"{edited.removesuffix('.py')}" in ended.err
        assert "has changed" in ended.err


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_closed_stream_changes_nothing(tmp_path: Path, stream: int) -> None:
    words = ["-m", "optest", "run", "--op", "relu", "--shape", "input0=4", "--isolate", "worker"]
    ended = subprocess.run(
        ["bash", "-c", f'exec "$@" {stream}>&-', "bash", sys.executable, *words],
        cwd=tmp_path, env=user_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    (journal,) = (tmp_path / ".optest" / "runs").glob("*/journal.jsonl")
    assert b"passed" in journal.read_bytes()


def test_a_removed_folder_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    words = ["-m", "optest", "run", "--op", "relu", "--shape", "input0=4"]
    ended = subprocess.run(
        ["bash", "-c", 'cd gone && rmdir ../gone && exec "$@"', "bash", sys.executable, *words],
        cwd=tmp_path, env=user_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("optest: the working directory")


@pytest.mark.parametrize("words", [("list",), ("run", "--op", "relu", "--shape", "input0=4")])
def test_a_full_standard_output_is_reported(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "optest", *words]
        ended = subprocess.run(
            command, cwd=tmp_path, env=user_environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 3
    assert "No space left" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("ending", ["os._exit(1)", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_backend_that_cannot_be_loaded_ends_the_run(optest: Shell, tmp_path: Path, ending: str) -> None:
    (tmp_path / "unloadable.py").write_text(
        "import os, sys\n"
        "import numpy as np\n"
        "from optest.backends import BackendDriver, backend_manager\n"
        "class Unloadable(BackendDriver):\n"
        "    name = kind = 'unloadable'\n"
        "    def run(self, case, inputs):\n"
        "        return [np.maximum(inputs[0], 0)]\n"
        "if os.path.exists('loaded'):\n"
        "    print('KeyError: no such device', file=sys.stderr, flush=True)\n"
        f"    {ending}\n"
        "open('loaded', 'w').close()\n"
        "backend_manager.register(Unloadable())\n"
    )
    env = {"OPTEST_PLUGINS": "unloadable", "PYTHONPATH": str(tmp_path)}
    ended = optest("check", "--backend", "unloadable", "--op", "relu", "-j", "2", env=env)
    assert ended.status == 2, ended.text
    assert ended.err.count("KeyError: no such device") == 1
    assert "gdb" not in ended.text

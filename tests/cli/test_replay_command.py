"""``optest replay`` as a user types it: one result, several, all failures; what it wrote is said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import warm_python
from texts import says
from user_shell import Shell, user_environment

PLUGIN = {"OPTEST_PLUGINS": "user_plugin"}
PLAN = """
version: 1
backend: faulty
defaults: {dtypes: float32}
cases:
  - {op: relu, name: good, shapes: {input0: 4}}
  - {op: relu, name: bad/one, shapes: {input0: 5}, backend_config: {faulty: {fault: value}}}
  - {op: add, name: bad/two, shapes: {input0: 6, input1: 6}, backend_config: {faulty: {fault: nan}}}
  - {op: relu, name: noisy, shapes: {input0: 7}, backend_config: {faulty: {fault: raise}}}
"""


@pytest.fixture(scope="module")
def folder_of_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ran")
    (folder / "user_plugin.py").write_text("import faulty_backend\nfaulty_backend.register()\n")
    (folder / "plan.yaml").write_text(PLAN)
    words = ("run", "--plan", "plan.yaml", "-qq")
    done = warm_python.run("optest", *words, cwd=folder, env=user_environment(**PLUGIN), further=())
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


@pytest.fixture
def ran(folder_of_a_run: Path, tmp_path: Path) -> Path:
    """The folder in which the plan was run, as this test's own."""
    return shutil.copytree(folder_of_a_run, tmp_path, dirs_exist_ok=True)


def replayed(out: str) -> list[str]:
    return [line.split("]", 1)[1].split()[1] for line in out.splitlines() if line.startswith("[")]


@pytest.mark.heavy
def test_all_failures_in_order(optest: Shell, ran: Path) -> None:
    ended = optest("replay", "latest", env=PLUGIN)
    assert (ended.status, replayed(ended.out)) == (1, ["bad/one", "bad/two", "noisy"])
    again = optest("replay", "--last", env=PLUGIN)
    assert replayed(again.out) == ["bad/one", "bad/two", "noisy"], "a replay is a run, with the same failures"
    assert optest("replay", env=PLUGIN).status == 1


def test_globs_and_several(optest: Shell, ran: Path) -> None:
    run = next((ran / ".optest" / "runs").glob("2*")).name
    assert replayed(optest("replay", "bad/*", "--run", run, env=PLUGIN).out) == ["bad/one", "bad/two"]
    assert replayed(optest("replay", "noisy", "1", "--run", run, env=PLUGIN).out) == ["good", "noisy"]
    assert says(optest("replay", "good", "--last", "--run", run, env=PLUGIN).expect(2).err, "cli.give_it_or_result")


def test_nothing_to_replay(optest: Shell, ran: Path) -> None:
    assert optest("run", "--plan", "plan.yaml", "--case", "good", "-qq", env=PLUGIN).status == 0
    assert says(optest("replay", env=PLUGIN).expect(5).err, "cli.nothing_to_replay_no")


def test_what_was_written_is_said(optest: Shell, ran: Path) -> None:
    ended = optest("replay", "bad/*", "--save", "kept/here", "--script", env=PLUGIN).expect(1)
    tail = [line for line in ended.out.splitlines() if line.startswith(("saved", "script"))]
    one = "(input0, output0.expected, output0.actual, output0.error)"
    two = "(input0, input1, output0.expected, output0.actual, output0.error)"
    why = "backend faulty cannot write scripts that run without optest"
    assert tail == [
        f"saved: kept/here/bad-one.npz {one}",
        f"script: kept/here/bad-one.py (needs optest: {why}, reads bad-one.npz)",
        f"saved: kept/here/bad-two.npz {two}",
        f"script: kept/here/bad-two.py (needs optest: {why}, reads bad-two.npz)",
    ]
    for line in tail:
        assert (ran / line.split()[1]).is_file()


def test_scripts_lie_here_if_nothing_is_said(optest: Shell, ran: Path) -> None:
    ended = optest("replay", "noisy", "--script", env=PLUGIN)
    assert (ran / "noisy.py").is_file()
    assert (ran / "noisy.npz").is_file()
    assert says(ended.out, "cli.script_noisy_py_needs")
    assert "RAISED" in (ran / "noisy.py").read_text()


@pytest.mark.heavy
def test_script_elsewhere_finds_plug_ins(optest: Shell, process: Shell, ran: Path) -> None:
    optest("replay", "bad/one", "--script", "scripts", env=PLUGIN)
    ended = process(sys.executable, "scripts/bad-one.py", cwd=ran)
    assert ended.out.startswith("out[")
    assert ended.err.endswith("AssertionError\n")


def test_unusable_folder_is_refused_before_the_run(optest: Shell, ran: Path) -> None:
    (ran / "file").write_text("")
    runs = len(list((ran / ".optest" / "runs").glob("2*")))
    optest("replay", "noisy", "--save", "file/x", env=PLUGIN).expect(2, err="file/x")
    assert len(list((ran / ".optest" / "runs").glob("2*"))) == runs


def test_a_replay_has_reports_too(optest: Shell, ran: Path) -> None:
    assert optest("replay", "bad/one", "--report-path", "r.xml", env=PLUGIN).status == 1
    assert 'failures="1"' in (ran / "r.xml").read_text()


def test_nothing_is_saved_of_what_is_not_run(optest: Shell, ran: Path) -> None:
    (ran / "plan.yaml").write_text(PLAN.replace("name: noisy,", "name: noisy, skip: not today,"))
    assert optest("run", "--plan", "plan.yaml", "--case", "noisy", "-qq", env=PLUGIN).status == 5
    ended = optest("replay", "noisy", "--save", "kept", "--script", env=PLUGIN).expect(5)
    assert says(ended.out, "cli.nothing_to_save_of")
    assert list((ran / "kept").iterdir()) == []

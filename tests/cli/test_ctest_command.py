"""``optest ctest`` with the real CTest: labels, devices, how tests end, and what the run's reports say of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from texts import says, says_exactly
from user_shell import Ended, Shell, user_environment

pytestmark = pytest.mark.needs("cmake")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ctest"


def configured(folder: Path, tests: dict[str, str], **properties: str) -> Path:
    """A build folder with these tests of a shell, and properties of some of them."""
    lines = ["cmake_minimum_required(VERSION 3.21)", "project(toy NONE)", "enable_testing()"]
    lines += [f'add_test(NAME "{name}" COMMAND sh -c [[{text}]])' for name, text in tests.items()]
    lines += [f"set_tests_properties({name} PROPERTIES {text})" for name, text in properties.items()]
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    subprocess.run(["cmake", "-B", "build", "-S", "."], cwd=folder, check=True, capture_output=True)
    return folder / "build"


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """The cases of the JSON report, by name."""
    return {each["id"]: each for each in json.loads((folder / "report.json").read_text())["cases"]}


def statuses(folder: Path) -> dict[str, str]:
    return {name: each["status"] for name, each in cases(folder).items()}


def messages(folder: Path) -> dict[str, str]:
    return {name: each["message"] for name, each in cases(folder).items()}


@pytest.fixture
def ctest(optest: Shell) -> Shell:
    """``optest ctest`` with a JSON report in the test's folder."""

    def call(*words: Any, **more: Any) -> Ended:
        ended = optest("ctest", *words, "--report-path", "report.json", **more)
        assert "Traceback" not in ended.text, ended.text
        return ended

    return call


@pytest.mark.parametrize(
    ("platform", "runs"),
    [
        (None, {"plain"}),
        ("a2a3sim", {"plain"}),
        ("a2a3", {"any", "a2a3"}),
        ("a5", {"any", "a5"}),
        ("own.1", {"any", "own.1"}),
    ],
)
def test_labels_choose_as_marks_do(ctest: Shell, tmp_path: Path, platform: str | None, runs: set[str]) -> None:
    named = {name: f"requires_hardware_{name}" for name in ("a2a3", "a5", "own.1")}
    labels = {"any": "requires_hardware", **named, "other": "requires_hardware_x", "plain": "not_requires_hardware"}
    configured(tmp_path, dict.fromkeys(labels, "true"), **{name: f'LABELS "{text}"' for name, text in labels.items()})
    on = [] if platform is None else ["--platform", platform]
    ctest(*on).expect(0)
    assert {name for name, status in statuses(tmp_path).items() if status == "passed"} == runs
    said = messages(tmp_path)
    if platform in ("a2a3", "a5"):
        assert says_exactly(said["plain"], "cli.no_hardware_test_runs")
    else:
        assert said["a2a3"] == "requires --platform a2a3"
    assert said["other"] == "requires --platform x"


ENDINGS = {
    "well": ("true", "passed", None),
    "wrong": ("for i in $(seq 99); do echo line $i; done; exit 3", "failed", "EXIT_CODE"),
    "a (b) c": ("kill -SEGV $$", "crashed", "SIGNAL"),
    "aborts": ("echo '1 - wrong (Timeout)'; kill -ABRT $$", "crashed", "SIGNAL"),
    "hangs": ("sleep 60", "timeout", "DEADLINE"),
    "greedy": ("true", "error", "UNAVAILABLE"),
    "of_gpus": ("true", "error", "UNAVAILABLE"),
    "dependent": ("true", "error", "UNAVAILABLE"),
    "skips": ("exit 77", "skipped", None),
    "switched_off": ("true", "skipped", None),
    "empty_gtest": ("echo '[  PASSED  ] 0 tests.'", "skipped", None),
}


def test_every_ending_of_a_test(ctest: Shell, tmp_path: Path) -> None:
    configured(
        tmp_path,
        {name: text for name, (text, _, _) in ENDINGS.items()},
        wrong="FIXTURES_SETUP prepared",
        hangs="TIMEOUT 1",
        greedy='RESOURCE_GROUPS "3,npus:1"',
        of_gpus='RESOURCE_GROUPS "gpus:1"',
        dependent="FIXTURES_REQUIRED prepared",
        skips="SKIP_RETURN_CODE 77",
        switched_off="DISABLED TRUE",
    )
    ended = ctest("--device", "4,5", "--report", "json").expect(1)
    found = {name: (each["status"], each["reason"]) for name, each in cases(tmp_path).items()}
    assert found == {name: (status, reason) for name, (_, status, reason) in ENDINGS.items()}
    said = messages(tmp_path)
    assert "'npus'" in said["greedy"]
    assert "1 slot × 3" in said["greedy"]
    assert "'5': 1 slot" in said["greedy"]
    assert "list more devices in --device" in ended.out
    assert says(said["of_gpus"], "cli.gpus_which_does_not")
    assert "wrong" in said["dependent"]
    assert "SEGFAULT" in said["a (b) c"]
    assert "    line 99" in ended.out
    assert "  command: " in ended.out
    assert "CMakeLists.txt:5" in ended.out
    assert says(ended.out, "cli.again_optest_ctest_test")


def test_evidence_timings_and_later_reports(ctest: Shell, optest: Shell, tmp_path: Path) -> None:
    configured(tmp_path, {"well": "sleep 0.1", "wrong": "exit 1"})
    ended = ctest("--report", "junit", "--report-path", ".", "-R", "well")
    assert ended.status == 2  # two paths
    assert optest("ctest", "--report", "junit", "--report", "json", "--report-path", ".", "-R", "well").status == 0
    (well,) = cases(tmp_path).values()
    assert well["evidence"] == "external report"
    assert well["timings"]["run_s"] >= 0.1
    assert 'name="well"' in (tmp_path / "junit.xml").read_text()
    optest("report", "latest", "--format", "junit").expect(0, out='value="external report"')
    assert optest("ctest").status == 1
    assert "1 passed, 1 failed in" in optest("report", "latest").out


def test_devices_are_always_held(ctest: Shell, tmp_path: Path) -> None:
    """Without a resource spec file CTest would run the test and give it no device."""
    text = 'echo "$CTEST_RESOURCE_GROUP_0_NPUS $CTEST_RESOURCE_GROUP_1_NPUS"; exit 1'
    configured(tmp_path, {"two": text}, two='RESOURCE_GROUPS "2,npus:1"')
    assert ctest("--device", "0-3,6").status == 1
    ((run,), case) = (tmp_path / ".optest/runs").glob("2*"), cases(tmp_path)["two"]
    spec = json.loads((run / "resources.json").read_text())
    assert spec["version"] == {"major": 1, "minor": 0}
    assert spec["local"] == [{"npus": [{"id": str(device), "slots": 1} for device in (0, 1, 2, 3, 6)]}]
    first, second = case["details"]["stdout_tail"].split()
    assert first != second
    assert {first, second} <= {f"id:{device},slots:1" for device in (0, 1, 2, 3, 6)}
    for environment in ({}, {"DEVICE_RANGE": "5"}):  # one device is too few
        assert ctest(env=environment).status == 1
        assert statuses(tmp_path) == {"two": "error"}
    assert ctest(env={"DEVICE_RANGE": "4-5"}).status == 1
    assert set(cases(tmp_path)["two"]["details"]["stdout_tail"].split()) == {"id:4,slots:1", "id:5,slots:1"}


def test_tests_of_one_name_in_two_folders(ctest: Shell, tmp_path: Path) -> None:
    for name, program in (("one", "true"), ("two", "false")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "CMakeLists.txt").write_text(f"add_test(NAME same COMMAND {program})\n")
    configured(tmp_path, {})
    with (tmp_path / "CMakeLists.txt").open("a") as file:
        file.write("add_subdirectory(one)\nadd_subdirectory(two)\n")
    subprocess.run(["cmake", "build"], cwd=tmp_path, check=True, capture_output=True)
    assert ctest().status == 1
    report = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert [each["status"] for each in report] == ["passed", "failed"]


def test_nothing_ran_is_5(ctest: Shell, tmp_path: Path) -> None:
    configured(tmp_path, {"plain": "true"})
    assert ctest("--platform", "a5").status == 5
    assert statuses(tmp_path) == {"plain": "skipped"}
    assert says(ctest("-R", "other").expect(5).err, "cli.whose_name_matches_other")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--test-dir", "nowhere"), "there is no such folder"),
        (("--platform", "a2a4"), "did you mean 'a2a3'"),
        (("--device", "4-2"), "counts down"),
        (("-R", "("), "Unmatched parentheses"),
        (("-j", "0"), "expected 1 or more"),
    ],
)
def test_what_is_wrong_is_said(ctest: Shell, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    configured(tmp_path, {"plain": "true"})
    ctest(*words).expect(2, err=said)
    assert not (tmp_path / ".optest").exists()


def test_a_pipe_is_not_waited_for(ctest: Shell, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    os.mkfifo(tmp_path / "build" / "CTestTestfile.cmake")
    assert says(ctest("--test-dir", "build").expect(2).err, "cli.build_ctesttestfile_cmake_is")


def test_a_label_that_names_a_simulation(ctest: Shell, tmp_path: Path) -> None:
    configured(tmp_path, {"odd": "true"}, odd="LABELS requires_hardware_a5sim")
    assert says(ctest().expect(2).err, "cli.the_labels_of_test")


def test_no_cmake(ctest: Shell, tmp_path: Path) -> None:
    ctest(env={"PATH": str(tmp_path)}).expect(5, err="install CMake")


def test_a_ctest_that_dies_is_no_pass(ctest: Shell, tmp_path: Path) -> None:
    configured(tmp_path, {"plain": "true"})
    wrapper = tmp_path / "bin" / "ctest"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *junit*) echo no memory; exit 9;; esac\nexec {shutil.which("ctest")} "$@"\n'
    )
    wrapper.chmod(0o755)
    assert says(ctest(env={"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}).expect(3).err, "cli.ctest_ended_with_and")


def test_ctrl_c_leaves_no_test_alive(tmp_path: Path) -> None:
    configured(tmp_path, {"slow": "echo $$ > pid; exec sleep 600"})
    command = [sys.executable, "-m", "optest", "ctest"]
    program = subprocess.Popen(command, cwd=tmp_path, env=user_environment(), stdout=subprocess.PIPE, text=True)
    pid = tmp_path / "build" / "pid"
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "interrupted" in out
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_ctest_waits_for_devices_of_another_run(tmp_path: Path) -> None:
    """Its tests run when the device is free, and may themselves be runs on that device."""
    inner = "import sys\nfrom optest.core.devices import Platform, devices_held\n"
    inner += "with devices_held(Platform(name='a2a3'), [4], lambda: sys.exit('waits')): print('inside')"
    (tmp_path / "inner.py").write_text(inner)
    text = f"echo $$ >> ran; exec {sys.executable} {tmp_path}/inner.py"
    configured(tmp_path, {"t": text}, t='LABELS "requires_hardware"')
    leases = tmp_path / "leases"
    leases.mkdir()
    other = FileLock(leases / "a2a3-4.lock", thread_local=False)
    (leases / "a2a3-4.json").write_text(json.dumps({"command": "optest run --source scene:s.py", "pid": 12}))
    command = [sys.executable, "-m", "optest", "ctest", "--platform", "a2a3", "--device", "4"]
    environment = user_environment(OPTEST_LEASES=str(leases))
    with other, subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        line = program.stderr.readline()
        assert says_exactly(line, "cli.optest_device_is_held")
        assert not (tmp_path / "build" / "ran").exists()
        other.release()
        assert program.wait(60) == 0


@pytest.mark.heavy
@pytest.mark.cxx
@pytest.mark.needs("gtest")
def test_the_example_and_its_header(ctest: Shell, process: Shell, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for words in (["-B", "build", "-S", str(EXAMPLE)], ["--build", "build", "-j2"]):
        process("cmake", *words, env=user_environment(PATH=path)).expect(0)
    names = ("test_data_type", "test_runtime", "test_copy", "test_ring")
    for platform, passed in (("a2a3sim", names[:1]), ("a2a3", names[1:]), ("a5", names[1:2])):
        assert ctest("--platform", platform, "--device", "4-7").status == 0
        assert statuses(tmp_path) == {name: "passed" if name in passed else "skipped" for name in names}
    groups = "CTEST_RESOURCE_GROUP_"
    of_two = {f"{groups}COUNT": "2", f"{groups}0": "npus", f"{groups}0_NPUS": "id:4,slots:1", f"{groups}1": "npus"}
    for variables, status, said in (
        ({}, 1, "no device was allocated"),
        ({**of_two, f"{groups}1_NPUS": "id:5,slots:1"}, 0, "devices 4 and 5"),
        (
            {**of_two, f"{groups}0": "gpus", f"{groups}0_NPUS": "", f"{groups}1_NPUS": "id:6,slots:1;id:7,slots:2"},
            0,
            "6 and 7",
        ),
        ({**of_two, f"{groups}1_NPUS": "id:4,slots:1"}, 1, "Expected: (devices[0]) != (devices[1])"),
        ({**of_two, f"{groups}1_NPUS": "id:x,slots:1"}, 1, "NPUS holds 'x'"),
        ({**of_two, f"{groups}1_NPUS": "5"}, 1, "expected id:<id>,slots:<slots>"),
        ({**of_two, f"{groups}COUNT": "-1"}, 1, "COUNT holds '-1'"),
    ):
        process(tmp_path / "build" / "test_ring", env=variables).expect(status, out=said)


def test_command_that_cannot_start_is_no_crash(ctest: Shell, tmp_path: Path) -> None:
    build = configured(tmp_path, {"plain": "true"})
    (build / "CTestTestfile.cmake").write_text('add_test(plain "/etc/passwd")\n')
    assert ctest().status == 1
    assert statuses(tmp_path) == {"plain": "error"}
    assert messages(tmp_path)["plain"].startswith("not run: its command cannot ")


def test_broken_folder_shows_the_error_of_cmake(ctest: Shell, tmp_path: Path) -> None:
    build = configured(tmp_path, {"plain": "true"})
    (build / "CTestTestfile.cmake").write_text('message(FATAL_ERROR "no tests today")\n')
    assert says(ctest().expect(2).err, "cli.ctesttestfile_cmake_message_no")


def test_a_test_that_is_listed_twice_runs_twice(ctest: Shell, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    line = 'add_test(same "sh" "-c" "echo x >> ran; test $(wc -l < ran) -lt 2")\n'
    (tmp_path / "build" / "CTestTestfile.cmake").write_text(2 * line)
    assert ctest("-j", "1").status == 1
    report = json.loads((tmp_path / "report.json").read_text())["cases"]
    assert sorted(each["status"] for each in report) == ["failed", "passed"]

"""``optest run`` as a user types it: exit statuses, selection, isolation, interruption, resume."""

from __future__ import annotations

import json
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import says
from user_shell import Ended, Shell, user_environment

from optest.spec import CaseResult
from optest.store import read_journal

Write = Callable[[str], Path]

THREE = """
cases:
  - {op: add, dtypes: float32, shapes: {input0: 4x5, input1: 4x5}, name: first, tags: [quick]}
  - {op: matmul, dtypes: float16, shapes: {input0: 8x9, input1: 9x7}, name: second}
  - {op: relu, dtypes: int8, shapes: {input0: 10}, name: third, tags: [quick, ints]}
"""


def journal_of(folder: Path) -> Path:
    (path,) = (folder / ".optest" / "runs").glob("*/journal.jsonl")
    return path


def results_of(folder: Path) -> tuple[CaseResult, ...]:
    return read_journal(journal_of(folder)).results


def faulty(*faults: str, **keys: object) -> str:
    lines = ["backend: faulty", "cases:"]
    for index, fault in enumerate(faults):
        more = "".join(f", {key}: {value}" for key, value in keys.items() if key != "timeout" or fault == "sleep")
        lines.append(
            f"  - {{op: add, dtypes: float32, shapes: {{input0: {index + 2}x5, input1: {index + 2}x5}}, "
            f'name: "{index} {fault}", backend_config: {{faulty: {{fault: "{fault}"}}}}{more}}}'
        )
    return "\n".join(lines)


PLUGIN = {"OPTEST_PLUGINS": "faulty_backend"}


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["-k", "matmul or ints"], ["second", "third"]),
        (["--tag", "quick", "--skip-tag", "ints"], ["first"]),
        (["--case", "s*"], ["second"]),
        (["--op", "elementwise_add"], ["first"]),
    ],
)
def test_selection(optest: Shell, plan: Write, arguments: list[str], kept: list[str]) -> None:
    ended = optest("list", "cases", "--json", "--plan", plan(THREE), *arguments)
    assert [row["id"] for row in json.loads(ended.out)] == kept


def test_everything_skipped_is_not_success(optest: Shell, plan: Write) -> None:
    text = "cases:\n  - {op: add, dtypes: float32, shapes: {input0: 4, input1: 4}, skip: broken rig}\n"
    optest("run", "--plan", plan(text)).expect(5, out="broken rig")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backend", "numppy"], "did you mean numpy?"),
        (["--backend", "gpu"], "known: "),
        (["--backend", "ascend", "--chip", "a100"], "unknown chip"),
        (["--tag", "quik"], "did you mean 'quick'"),
        (["--report-path", "/dev/null/x.json", "--report", "json"], "/dev/null/x.json cannot be written"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--maxfail", "-1"], "--maxfail is -1"),
        (["--seed", "1", "--seed", "2"], "--seed is given 2 times"),
        (["--dtype", "float32", "--dtype", "int8"], "expected once; for several values: --dtype D0,D1"),
        (
            ["--plan", "a.yaml", "--plan", "b.yaml"],
            "--plan is given 3 times, expected once; to run several",
        ),
        (["--backend", "numpy", "--torch-device", "cuda"], "--torch-device is not for backend numpy"),
        (["--torch-device", ""], "--torch-device (OPTEST_TORCH_DEVICE) is empty; set a value"),
        (["--tag", ""], "--tag (OPTEST_TAG) is empty; set a value"),
        (["--jobs", "2", "--isolate", "none"], "--jobs"),
        (["--tolerance", "rtol=1,rell=2"], "rell"),
        (["--resume", "nosuchrun"], "nosuchrun"),
    ],
)
def test_bad_requests_are_one_sentence_and_exit_2(optest: Shell, plan: Write, arguments: list[str], said: str) -> None:
    ended = optest("run", "--plan", plan(THREE), *arguments).expect(2, err=said)
    assert "Traceback" not in ended.text


@pytest.mark.parametrize("command", ["run", "check"])
def test_unknown_backend_names_its_origin(optest: Shell, plan: Write, tmp_path: Path, command: str) -> None:
    arguments = (command, "--plan", plan(THREE)) if command == "run" else (command, "--op", "relu")
    assert "unknown backend 'numppy'" in (ended := optest(*arguments, env={"OPTEST_BACKEND": "numppy"})).err
    assert "at OPTEST_BACKEND" in ended.err
    (tmp_path / "optest.toml").write_text('backend = "numppy"\n')
    assert says((ended := optest(*arguments)).err, "cli.at_backend_in_optest")
    assert ended.status == 2


def test_an_unknown_operator_may_be_ones_own(optest: Shell) -> None:
    assert "docs/how-to/custom-operator.md" in optest("run", "--op", "relu_add", "--shape", "input0=2").err
    assert "custom" not in optest("run", "--op", "reluu", "--shape", "input0=2").err


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OPTEST_BAKCEND": "numpy"}, "OPTEST_BACKEND"),
        ({"OPTEST_PLUGINS": "no_such_module"}, "no_such_module"),
        ({"OPTEST_PLUGINS": "broken_plugin"}, "broken_plugin.py:2"),
    ],
)
def test_a_wrong_variable_is_refused(
    optest: Shell, plan: Write, tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    (tmp_path / "broken_plugin.py").write_text("x = 1\ny = undefined_name\n")
    optest("run", "--plan", plan(THREE), env=variables).expect(2, err=said)


ENDS = {
    "none": "passed",
    "value": "failed VALUE",
    "raise": "error RAISED",
    "SystemExit": "error RAISED",
    "segfault": "crashed SIGNAL",
    "exit 0": "crashed EXIT_CODE",
    "exit 7": "crashed EXIT_CODE",
    "sleep": "timeout DEADLINE",
}


@pytest.mark.parametrize(
    ("faults", "words", "isolation"),
    [
        (("none", "segfault", "exit 0", "value", "SystemExit", "none"), (), "worker"),
        (("segfault", "none", "sleep", "exit 7"), ("--isolate", "case"), "case"),
        *((("none", "value", "raise"), ("--isolate", each), each) for each in ("none", "worker", "case")),
        ((*["none"] * 6, "segfault", *["none"] * 6), ("-j", "2"), "worker"),
    ],
)
def test_each_fault_ends_its_own_case(
    optest: Shell, plan: Write, tmp_path: Path, faults: tuple[str, ...], words: tuple[str, ...], isolation: str
) -> None:
    ended = optest("run", "--plan", plan(faulty(*faults, timeout=1)), *words, env=PLUGIN).expect(1)
    results = sorted(results_of(tmp_path), key=lambda result: int(result.id.split()[0]))
    ends = [" ".join([each.status.value, *([each.reason.value] if each.reason else [])]) for each in results]
    assert ends == [ENDS[fault] for fault in faults], ended.text
    assert {each.isolation for each in results} == {isolation}
    assert "optest run" in ended.out.partition("reproduce: ")[2]


def test_a_retry_that_passes_is_suspect(optest: Shell, plan: Write, tmp_path: Path) -> None:
    text = faulty("fails once").replace('fault: "fails once"', f'fault: "fails once", flag: {tmp_path / "flag"}')
    optest("run", "--plan", plan(text), "--retries", 2, env=PLUGIN).expect(1)
    (result,) = results_of(tmp_path)
    assert (result.status.value, result.attempts) == ("suspect", 2)


def started(arguments: list[str], folder: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "optest", *arguments],
        cwd=folder,
        env=user_environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_results(folder: Path, count: int) -> None:
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        paths = list((folder / ".optest" / "runs").glob("*/journal.jsonl"))
        if paths and paths[0].read_text().count('"type":"result"') >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {count} results in 300 s")


@pytest.mark.slow
def test_resume_after_kill_9_completes_the_run(optest: Shell, plan: Write, tmp_path: Path) -> None:
    path = plan(faulty(*["none"] * 4, "sleep", *["none"] * 3, timeout=5))
    process = started(["run", "--plan", str(path)], tmp_path, **PLUGIN)
    wait_for_results(tmp_path, 4)
    process.kill()
    process.communicate()
    ended = optest("run", "--plan", path, "--resume", "latest", env=PLUGIN).expect(1)
    results = results_of(tmp_path)
    assert len(results) == len({result.id for result in results}) == 8
    assert "7 passed" in ended.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_leaves_journal_and_reports(plan: Write, tmp_path: Path, number: signal.Signals) -> None:
    path = plan(faulty("none", "none", "sleep", "none", timeout=600))
    process = started(["run", "--plan", str(path), "--report", "json", "--report-path", "r.json"], tmp_path, **PLUGIN)
    wait_for_results(tmp_path, 2)
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, out + err
    journal = read_journal(journal_of(tmp_path))
    assert len(journal.results) == 2
    assert journal.summary is not None
    assert journal.summary.interrupted
    assert len(json.loads((tmp_path / "r.json").read_text())["cases"]) == 2


def limited_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_full_disk_keeps_the_journal(process: Shell, plan: Write, tmp_path: Path) -> None:
    cases = "\n".join(f"  - {{op: add, dtypes: float32, shapes: {{input0: {n}, input1: {n}}}}}" for n in range(1, 60))
    path = plan(f"cases:\n{cases}\n")
    ended = process(sys.executable, "-m", "optest", "run", "--plan", path, preexec_fn=limited_files)
    ended.expect(3, err="cannot be written")
    assert 0 < len(results_of(tmp_path)) < 59


def again_line(ended: Ended) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables of the line that runs the first failure again."""
    line = next(line for line in ended.out.splitlines() if line.strip().startswith("reproduce: "))
    words = shlex.split(line.partition("reproduce: ")[2])
    start = words.index("optest")
    return words[start + 1 :], dict(word.split("=", 1) for word in words[:start])


@pytest.mark.parametrize("layout", ["4x5", "{shape: [4, 5], strides: [1, 4]}"])
def test_the_repro_line_finds_the_same_failure(optest: Shell, plan: Write, tmp_path: Path, layout: str) -> None:
    text = faulty("value").replace("2x5", layout, 1).replace("2x5", "4x5")
    first = optest("run", "--plan", plan(text), env=PLUGIN)
    arguments, variables = again_line(first)
    assert variables == {**PLUGIN, "PYTHONPATH": user_environment()["PYTHONPATH"]}
    again = optest(*arguments, "--runs-dir", "again", env=variables)
    assert (first.status, again.status) == (1, 1), first.text + again.text
    before = results_of(tmp_path)[0]
    after = read_journal(next((tmp_path / "again").glob("*/journal.jsonl"))).results[0]
    assert after.key == before.key
    assert after.reason is before.reason
    assert after.verdict.measures[0].worst_index == before.verdict.measures[0].worst_index


def test_rounds(optest: Shell, plan: Write, tmp_path: Path) -> None:
    optest("run", "--plan", plan(THREE), "--rounds", 3).expect(0)
    assert len(results_of(tmp_path)) == 9


@pytest.mark.parametrize("what", ["plan", "report", "journal", "model-cases"])
def test_schemas_are_json_schemas(optest: Shell, what: str) -> None:
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(json.loads(optest("schema", what).out))


def test_doctor_and_lists(optest: Shell) -> None:
    doctor = optest("doctor")
    assert not doctor.err  # neither do frameworks see each other's forks
    assert all(f"  {package} " in doctor.out for package in ("numpy", "pycparser", "safetensors"))
    assert "matmul" in optest("list", "operators").out
    assert "ascend" in optest("list", "backends").out


def test_help_and_version(optest: Shell) -> None:
    assert optest("--version").out.startswith("optest 0.")
    assert "--plan" in optest("run", "--help").out
    assert optest("run", "--no-such-flag").status == 2


def test_repro_lines_differ_by_backend_options(optest: Shell, plan: Write, tmp_path: Path) -> None:
    text = "backend: command\ncases:\n" + "\n".join(
        f"  - {{op: relu, dtypes: float32, shapes: {{input0: 4}}, name: exit {status}, "
        f"backend_config: {{command: {{command: [sh, -c, exit {status}]}}}}}}"
        for status in (3, 4)
    )
    file = plan(text)
    for status in (3, 4):
        first = optest("run", "--plan", file, "--case", f"exit {status}")
        (line,) = [line.partition("reproduce: optest ")[2] for line in first.out.splitlines() if "reproduce: " in line]
        assert f"status {status}" in optest(*shlex.split(line), "--runs-dir", tmp_path / str(status)).out


@pytest.mark.parametrize("text", ["import sys\nsys.exit(0)\n", "def register():\n    raise SystemExit\n"])
def test_plug_in_that_exits_is_no_success(optest: Shell, plan: Write, tmp_path: Path, text: str) -> None:
    (tmp_path / "exiting_plugin.py").write_text(text)
    ended = optest("run", "--plan", plan(THREE), env={"OPTEST_PLUGINS": "exiting_plugin"})
    ended.expect(2, err=("exiting_plugin.py:2", "sys.exit("))


def test_there_are_no_more_workers_than_cases(optest: Shell, plan: Write, tmp_path: Path) -> None:
    optest("run", "--plan", plan(THREE), "--jobs", "1000000", timeout=60).expect(0)
    info = read_journal(journal_of(tmp_path)).info
    assert info is not None
    assert info.jobs == 3


@pytest.mark.parametrize("key", ["backend", "chip"])
@pytest.mark.parametrize("value", ['""', '" "', "[]", "3"])
def test_wrong_backend_name_shows_its_line(optest: Shell, plan: Write, key: str, value: str) -> None:
    optest("run", "--plan", plan(f"version: 1\n{key}: {value}\n{THREE}")).expect(2, err=f"plan.yaml:2 $.{key}:")


def test_a_plan_for_scenes_names_no_other_operators(optest: Shell, plan: Write) -> None:
    for config in ("", ", backend_config: {scene: {device: 1}}"):
        text = f"backend: scene\ncases:\n  - {{op: relu, shapes: {{input0: 4}}{config}}}\n"
        ended = optest("run", "--plan", plan(text))
        assert (ended.status, ended.err.partition(" ")[0].rpartition("/")[2]) == (2, "plan.yaml:3"), ended.text

"""Commands that do what they should, and every way in which they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from handmade import case_of, command_case, command_driver, inputs, spec
from texts import refusal, says, says_exactly

from optest.backends import _BUILTINS, BackendDriver, BackendManager, Fault, Reason, command
from optest.numerics import numpy_dtype
from optest.spec import CheckState, Fill, OperatorDescriptor, Status, TestCase, dtype

ADD_PY = """
import sys, numpy as np
a, b, out, kind = sys.argv[1:5]
(np.fromfile(a, kind) + np.fromfile(b, kind)).astype(kind).tofile(out)
"""
ADDING = [sys.executable, "add.py", "{input0}", "{input1}", "{output0}", "{dtype}"]
SUMS = [[0, 11, 22], [33, 44, 55]]
COPY = ["cp", "{input0}", "{output0}"]
BOOM = {"stderr_tail": "boom\n"}


@pytest.fixture
def driver() -> BackendDriver:
    return command_driver()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "add.py").write_text(ADD_PY)
    return tmp_path


def run(driver: BackendDriver, place: Path, config: dict[str, Any], kind: str = "float32", **fields: Any) -> Any:
    case = command_case(driver.name, kind=kind, config=config, base_dir=str(place), **fields)
    assert driver.problems(case) == []
    (output,) = driver.run(case, inputs(kind))
    return output


def fault(driver: BackendDriver, place: Path, script: str, timeout_s: float = 200, **config: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        run(driver, place, {"command": ["sh", "-c", script], **config}, timeout_s=timeout_s)
    return caught.value


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int64", "float64"])
def test_an_adding_program_adds(driver: BackendDriver, place: Path, kind: str) -> None:
    output = run(driver, place, {"command": ADDING}, kind)
    assert (output.dtype, output.tolist()) == (np.dtype(kind), SUMS)


def test_files_are_raw_dense_and_little_endian(driver: BackendDriver, place: Path) -> None:
    run(driver, place, {"command": ["cp", "{input1}", "{output0}"]})
    assert (place / "input/input1.bin").read_bytes() == np.arange(0, 60, 10, dtype="<f4").tobytes()
    assert (place / "input/input0.bin").stat().st_size == 24
    case = command_case(config={"command": COPY}, base_dir=str(place))
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 5::-2]
    assert driver.run(case, [wide, np.broadcast_to(np.float32(1), (2, 3))])[0].tolist() == wide.tolist()
    assert (place / "input/input1.bin").stat().st_size == 24


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_types_that_numpy_lacks_go_through_files(driver: BackendDriver, place: Path, kind: Any) -> None:
    case = command_case(kind=np.dtype(kind).name, config={"command": COPY}, base_dir=str(place))
    array = np.arange(6).reshape(2, 3).astype(kind)
    (output,) = driver.run(case, [array, array])
    assert (output.dtype, output.tolist()) == (array.dtype, array.tolist())


def test_input_file_of_other_dtype_is_noted(driver: BackendDriver, place: Path) -> None:
    files = {name: {"path": f"{name}.bin", "dtype": "float16"} for name in ("input0", "input1")}
    script = "import sys, numpy as np; (np.fromfile(sys.argv[1], 'f2').astype('f4')).tofile(sys.argv[2])"
    config = {"command": [sys.executable, "-c", script, "{input0}", "{output0}"], "inputs": files}
    case = command_case(config=config, base_dir=str(place))
    (output,) = driver.run(case, [np.full((2, 3), 0.1, np.float32)] * 2)
    assert output[0, 0] == np.float16(0.1)
    notes = [check for check in driver.checks(case) if check.name == "inputs as generated"]
    assert len(notes) == 2
    assert says(notes[0].detail, "backends.float_but_was_written")


def test_tokens_environment_and_directory(driver: BackendDriver, place: Path) -> None:
    (place / "work dir").mkdir()
    script = 'printf "%s\\n" "$@" "$MINE" "$PATH" "$PWD" > said; cp "$1" "$2"'
    words = ["{dtype}", "{dtypes}", "{shape0}", "{case}", "{chip}", "{seed}", "{op}", "{{x}}", "{workdir}"]
    config = {
        "workdir": "work dir",
        "command": ["sh", "-c", script, "sh", "{input0}", "{output0}", *words],
        "env": {"MINE": "{shape1}-{seed}"},
    }
    run(driver, place, config, name="my/case [1]", seed=7, chip="c910")
    workdir = str(place / "work dir")
    assert (place / "work dir" / "said").read_text().splitlines() == [
        f"{workdir}/input/input0.bin",
        f"{workdir}/output/output0.bin",
        *("float32", "float32,float32", "2x3", "my/case [1]", "c910", "7", "add", "{x}", workdir),
        "2x3-7",
        os.environ["PATH"],
        workdir,
    ]
    config = {"command": ADDING, "workdir": "runs/{case}", "prepare": ["cp", str(place / "add.py"), "."]}
    run(driver, place, config, name="../evil/[x y]")
    assert [path.name for path in (place / "runs").iterdir()] == ["evil_x_y"]


@pytest.mark.parametrize(
    ("script", "reason", "status", "details"),
    [
        ("echo out; echo boom >&2; exit 42", "EXIT_CODE", "ERROR", {"exit_code": 42, "stdout_tail": "out\n"} | BOOM),
        ("sh -c 'kill -SEGV $$'; exit $?", "SIGNAL", "CRASHED", {"exit_code": 139, "signal": "SIGSEGV"}),
        ("echo boom >&2; kill -SEGV $$", "SIGNAL", "CRASHED", {"signal": "SIGSEGV"} | BOOM),
        ("echo boom >&2", "MISSING_OUTPUT", "FAILED", BOOM),
    ],
)
def test_faults_of_commands(
    driver: BackendDriver, place: Path, script: str, reason: str, status: str, details: dict[str, Any]
) -> None:
    found = fault(driver, place, script)
    assert (found.reason, found.status) == (Reason[reason], Status[status])
    assert details.items() <= found.details.items()
    if reason == "EXIT_CODE":
        assert "exited with status 42" in found.message
    elif reason == "MISSING_OUTPUT":
        assert found.details["path"] == str(place / "output/output0.bin")
    elif "exit_code" in details:
        assert says_exactly(found.message, "backends.sh_exited_with_status")


@pytest.mark.parametrize("status", [1, 2, 128, 129, 130, 141, 143, 255])
def test_other_exit_statuses_are_no_crash(driver: BackendDriver, place: Path, status: int) -> None:
    found = fault(driver, place, f"exit {status}")
    assert (found.reason, found.status) == (Reason.EXIT_CODE, Status.ERROR)
    assert "signal" not in found.details


def test_a_missing_command(driver: BackendDriver, place: Path) -> None:
    with pytest.raises(Fault) as caught:
        run(driver, place, {"command": ["no-such-program", "x"]})
    assert (caught.value.reason, caught.value.status) == (Reason.UNAVAILABLE, Status.ERROR)
    assert says(caught.value.message, "backends.no_such_program_does")


def test_a_stale_output_does_not_pass(driver: BackendDriver, place: Path) -> None:
    run(driver, place, {"command": ADDING})
    assert (place / "output/output0.bin").exists()
    assert fault(driver, place, "true").reason is Reason.MISSING_OUTPUT
    prepare = ["sh", "-c", "mkdir -p output; head -c 24 /dev/zero > output/output0.bin"]
    assert fault(driver, place, "true", prepare=prepare).reason is Reason.MISSING_OUTPUT
    (place / "precious").write_bytes(b"\0" * 24)
    (place / "output/output0.bin").symlink_to(place / "precious")
    assert fault(driver, place, "true").reason is Reason.MISSING_OUTPUT
    assert (place / "precious").exists()


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "too short"),
        (20, "5 elements, not 6"),
        (25, "too long"),
        (10**6, "too long"),
        (12, "bfloat16[2x3] or float16[2x3]"),
        (48, "float64[2x3]"),
        (6, "float8_e4m3fn[2x3] or "),
    ],
)
def test_an_output_of_the_wrong_size(driver: BackendDriver, place: Path, count: int, words: str) -> None:
    found = fault(driver, place, f"head -c {count} /dev/zero > {{output0}}")
    assert found.reason is Reason.SHAPE
    if "[2x3]" in words:
        assert says(found.message, "backends.bytes_as", count=count, of=words)
    else:
        assert says(found.message, "backends.has_bytes_but_should", count=count)
        assert words in found.message


def test_a_directory_in_place_of_an_output(driver: BackendDriver, place: Path) -> None:
    assert "is a directory" in fault(driver, place, "mkdir {output0}").message
    assert fault(driver, place, "true").reason is Reason.BAD_CASE  # and nothing removes a directory


def test_a_hang_ends_at_the_deadline(driver: BackendDriver, place: Path) -> None:
    for deadline_s in (0.4, 4, 40):  # on a busy machine nothing may be printed so soon
        began = time.monotonic()
        found = fault(driver, place, "echo waiting >&2; sleep 600", timeout_s=deadline_s)
        assert (found.reason, found.status) == (Reason.DEADLINE, Status.TIMEOUT)
        assert time.monotonic() - began < deadline_s + 60
        if found.details["stderr_tail"]:
            break
    assert found.details["stderr_tail"] == "waiting\n"


def test_the_deadline_covers_all_steps_together(
    driver: BackendDriver, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def noted(argv: Any, *, timeout_s: float, **further: Any) -> Any:
        given.append(timeout_s)
        return run_command(argv, timeout_s=timeout_s if argv[0] == "sleep" else 0.1, **further)

    run_command = command.run
    monkeypatch.setattr(command, "run", noted)
    found = fault(driver, place, "sleep 600", timeout_s=100, prepare=["sleep", "0.3"])
    assert found.reason is Reason.DEADLINE
    preparing_s, running_s = given
    assert preparing_s <= 100
    assert 0 < running_s <= preparing_s - 0.3


def test_garbage_on_stdout(driver: BackendDriver, place: Path) -> None:
    found = fault(driver, place, "head -c 50000000 /dev/urandom; exit 1")
    assert found.details["stdout_bytes"] == 50_000_000
    assert len(found.details["stdout_tail"]) <= 8192


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "sleep 600"])
def test_no_child_of_a_command_survives(driver: BackendDriver, place: Path, end: str) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    sleeper = (
        "import os, time\n"
        "for _ in range(2):\n"
        "    parent = os.getpid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    while os.getppid() == parent: time.sleep(0.001)\n"
        "    os.setsid()\n"
        "os.close(1); time.sleep(600)"
    )
    # The shell reads what the sleeper prints until only the last process is left, which has closed that.
    script = f": $(env -i {sys.executable} -c '{sleeper}' {mark}); cp {{input0}} {{output0}}; {end}"
    config = {"command": ["sh", "-c", script]}
    if end == "exit 0":
        case = command_case(config=config, base_dir=str(place))
        driver.run(case, inputs())
        (note,) = driver.checks(case)
        assert says(note.detail, "backends.processes_that_command_left")
    else:
        with pytest.raises(Fault) as caught:
            run(driver, place, config, timeout_s=1.5 if end == "sleep 600" else 100)
        assert caught.value.details["strays_killed"] >= 1
    assert processes_with(mark) == []


def arguments(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def processes_with(mark: str) -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and mark in arguments(entry)]


def test_build_runs_once_and_before_prepare(driver: BackendDriver, place: Path) -> None:
    config = {
        "command": ADDING,
        "build": [["sh", "-c", "echo build >> log"], ["sh", "-c", "echo build2 >> log"]],
        "prepare": ["sh", "-c", "echo prepare >> log"],
        "cleanup": ["sh", "-c", "echo cleanup >> log"],
    }
    run(driver, place, config)
    run(driver, place, config)
    steps = ["build", "build2", "prepare", "cleanup", "prepare", "cleanup"]
    assert (place / "log").read_text().split() == steps


def test_failed_build_runs_once_for_all_cases(driver: BackendDriver, place: Path) -> None:
    build = ["sh", "-c", "echo x >> tries; echo 'error: expected ;' >&2; exit 2"]
    for _ in range(2):
        found = fault(driver, place, "true", build=build)
        assert found.reason is Reason.COMPILE
        assert says(found.message, "backends.build_sh_exited_with")
        assert found.details["stderr_tail"] == "error: expected ;\n"
    assert (place / "tries").read_text() == "x\n"
    assert fault(driver, place, "true", build=["no-such-compiler"]).reason is Reason.COMPILE


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "sleep 600", "true"])
def test_cleanup_runs_whatever_happens(driver: BackendDriver, place: Path, script: str) -> None:
    fault(driver, place, script, timeout_s=0.4, cleanup=[["no-such-program"], ["touch", "cleaned"]])
    assert (place / "cleaned").exists()


def test_cleanup_follows_failed_prepare_and_notes_failures(driver: BackendDriver, place: Path) -> None:
    found = fault(driver, place, "true", prepare=["false"], cleanup=["touch", "cleaned"])
    assert (found.reason, found.message) == (Reason.EXIT_CODE, "prepare: false exited with status 1")
    assert (place / "cleaned").exists()
    config = {"command": ADDING, "cleanup": [["sh", "-c", "echo dirty >&2; exit 3"]]}
    case = command_case(config=config, base_dir=str(place))
    driver.run(case, inputs())
    (note,) = driver.checks(case)
    assert (note.name, note.state) == ("cleanup", CheckState.NOTE)
    assert "status 3\ndirty" in note.detail


def golden_of(driver: BackendDriver, place: Path, config: Any, **fields: Any) -> Any:
    return driver.golden(command_case(config={"command": ADDING, **config}, base_dir=str(place), **fields))


GOLDEN, ONLY_LOAD = {"golden": {"output0": "golden/z.bin"}}, {"golden": {"load": {"out": "golden/z.bin"}}}


def test_golden_files_belong_to_one_case(driver: BackendDriver, place: Path) -> None:
    assert golden_of(driver, place, GOLDEN) is None
    run(driver, place, {"command": ADDING, **GOLDEN})
    (golden,) = golden_of(driver, place, GOLDEN)
    # the file's own dtype, which says that the values are rounded
    assert (golden.dtype, golden.tolist()) == (np.float32, SUMS)
    assert golden_of(driver, place, GOLDEN, seed=1) is None
    with refusal(Fault, "backends.belongs_to_another_case") as caught:
        golden_of(driver, place, ONLY_LOAD, seed=1)
    assert caught.value.reason is Reason.BAD_CASE
    assert golden_of(driver, place, ONLY_LOAD) is not None
    with refusal(Fault, "backends.another_case_seed_or"):
        golden_of(driver, place, ONLY_LOAD, reference="elsewhere:add")
    np.full(6, 5, np.float32).tofile(place / "golden" / "z.bin")
    for config in (ONLY_LOAD, GOLDEN):
        with pytest.raises(Fault, match="has changed since its") as caught:
            golden_of(driver, place, config)
        assert caught.value.reason is Reason.BAD_CASE


@pytest.mark.parametrize(
    "paths",
    [
        {"inputs": {"input0": "a.bin"}, "outputs": {"output0": "./a.bin"}},
        {"outputs": {"output0": "z.bin"}, "golden": {"load": {"out": "z.bin"}}},
        {"outputs": {"output0": "z.bin"}, "golden": {"out": "x/../z.bin"}},
        {"inputs": {"input0": "a.bin"}, "golden": {"load": {"out": "a.bin"}}},
    ],
)
def test_no_file_stands_for_two_things(driver: BackendDriver, place: Path, paths: dict[str, object]) -> None:
    (problem,) = driver.problems(command_case(config={"command": ADDING, **paths}, base_dir=str(place)))
    assert "has the path" in problem


def test_golden_file_of_user_is_kept(driver: BackendDriver, place: Path) -> None:
    np.full(6, 5, np.float32).tofile(place / "mine.bin")
    case = command_case(config={"command": ADDING, "golden": {"out": "mine.bin"}}, base_dir=str(place))
    assert driver.golden(case)[0].tolist() == [[5.0] * 3] * 2
    driver.run(case, inputs())
    assert np.fromfile(place / "mine.bin", np.float32).tolist() == [5.0] * 6
    (note,) = driver.checks(case)
    assert "has no .key file" in note.detail
    np.save(place / "x.npy", inputs()[0])
    case = with_input_file(place, ONLY_LOAD)
    (place / "golden").mkdir()
    np.zeros(6, np.float32).tofile(place / "golden" / "z.bin")
    (place / "golden" / "z.bin.key").write_text(f"{case.key}\n")
    assert driver.golden(case) is not None


def test_missing_golden_file_next_to_users_is_created(driver: BackendDriver, place: Path) -> None:
    both = OperatorDescriptor(
        name="both", signature="input -> low, high", reference=lambda given, _: (given[0] - 1.0, given[0] + 1.0)
    )
    np.full(2, 5, np.float32).tofile(place / "mine.bin")
    config = {
        "command": ["sh", "-c", "cp {input0} {output0}; cp {input0} {output1}"],
        "golden": {"low": "mine.bin", "high": "made.bin"},
    }
    case = case_of(
        both,
        spec("float32", 2),
        outputs=(spec("float32", 2), spec("float32", 2)),
        backend_config={"command": config},
        base_dir=str(place),
    )
    assert driver.golden(case) is None
    driver.run(case, [np.zeros(2, np.float32)])
    assert [each.tolist() for each in driver.golden(case)] == [[5, 5], [1, 1]]


def test_missing_or_short_golden_files_fail(driver: BackendDriver, place: Path) -> None:
    with pytest.raises(Fault, match="does not exist"):
        golden_of(driver, place, ONLY_LOAD)
    (place / "golden").mkdir()
    (place / "golden" / "z.bin").write_bytes(b"123")
    with refusal(Fault, "backends.has_bytes_but_should_have"):
        golden_of(driver, place, ONLY_LOAD)
    assert golden_of(driver, place, {}) is None


def test_two_drivers_in_one_directory_take_turns(place: Path) -> None:
    """Two workers with the same workdir would read each other's files."""
    results: dict[int, list[Any]] = {}

    def call(number: int) -> None:
        config = {"command": ["sh", "-c", "sleep 0.2; cp {input0} {output0}"]}
        array = np.full((2, 3), number, np.float32)
        (output,) = command_driver().run(command_case(config=config, base_dir=str(place)), [array, array])
        results[number] = output.tolist()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [[number] * 3] * 2 for number in range(4)}


def test_inputs_that_cannot_be_written(driver: BackendDriver, place: Path) -> None:
    files = {"input0": {"path": "x", "dtype": "int8"}}
    case = command_case(config={"command": ADDING, "inputs": files}, base_dir=str(place))
    with refusal(Fault, "backends.input_cannot_be_written") as caught:
        driver.run(case, [np.full((2, 3), 0.5, np.float32)] * 2)
    assert caught.value.reason is Reason.BAD_CASE
    (place / "input").write_text("a file where a directory should be")
    found = fault(driver, place, "true")
    assert found.reason is Reason.BAD_CASE
    assert "input0 cannot be written" in found.message


def test_the_ascend_driver_reads_its_own_section(place: Path) -> None:
    driver = BackendManager(_BUILTINS).select("npu", "Ascend910B")
    assert run(driver, place, {"command": ADDING}).tolist() == SUMS
    assert driver.keeps_deadline
    assert signal.SIGKILL == 9


def with_input_file(place: Path, config: Any) -> TestCase:
    """Return a case whose first input comes from x.npy."""
    case = command_case(config={"command": ADDING, **config}, base_dir=str(place))
    first, *others = case.inputs
    return replace(case, inputs=(replace(first, fill=Fill(kind="file", parameters={"path": "x.npy"})), *others))


def test_changed_input_file_makes_golden_stale(driver: BackendDriver, place: Path) -> None:
    np.save(place / "x.npy", inputs()[0])
    case = with_input_file(place, GOLDEN)
    driver.run(case, inputs())
    assert driver.golden(case) is not None
    assert driver.golden(with_input_file(place, ONLY_LOAD)) is not None
    np.save(place / "x.npy", inputs()[0] + 1)
    assert driver.golden(case) is None  # so that the reference is computed
    with pytest.raises(Fault, match="other inputs") as caught:
        driver.golden(with_input_file(place, ONLY_LOAD))
    assert caught.value.reason is Reason.BAD_CASE
    driver.run(case, inputs())
    assert driver.golden(case) is not None


@pytest.mark.parametrize("hook", ["reference", "generator"])
def test_changed_code_makes_golden_file_stale(
    driver: BackendDriver, place: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    monkeypatch.syspath_prepend(str(place))
    code, named = place / f"golden_{hook}_of_mine.py", {hook: f"golden_{hook}_of_mine:named"}
    code.write_text("def named(inputs, attributes):\n    return (inputs[0] + inputs[1],)\n")
    run(driver, place, {"command": ADDING, **GOLDEN}, **named)
    assert golden_of(driver, place, GOLDEN, **named) is not None
    code.write_text("def named(inputs, attributes):\n    return (inputs[0] - inputs[1],)\n")
    assert golden_of(driver, place, GOLDEN, **named) is None


def read_bytes(place: Path, kind: str, content: bytes) -> list[int]:
    (place / "made.bin").write_bytes(content)
    case = command_case(kind=kind, config={"command": ["cp", "made.bin", "{output0}"]}, base_dir=str(place))
    given = np.zeros((2, 3), dtype=numpy_dtype(dtype(kind)))
    (output,) = command_driver().run(case, [given, given])
    return [int(each) for each in output.reshape(-1)]


@pytest.mark.parametrize(
    ("kind", "content", "values"),
    [
        ("int4", bytes([0, 1, 7, 0x08, 0x0F, 0x0A]), [0, 1, 7, -8, -1, -6]),
        ("int4", bytes([0, 1, 7, 0xF8, 0xFF, 0xFA]), [0, 1, 7, -8, -1, -6]),
        ("uint4", bytes([0, 1, 7, 8, 15, 10]), [0, 1, 7, 8, 15, 10]),
        ("bool", bytes([0, 1, 1, 0, 0, 1]), [0, 1, 1, 0, 0, 1]),
    ],
)
def test_bytes_that_are_elements(tmp_path: Path, kind: str, content: bytes, values: list[int]) -> None:
    assert read_bytes(tmp_path, kind, content) == values


@pytest.mark.parametrize(
    ("kind", "byte"),
    [("int4", 0x13), ("int4", 0x83), ("int4", 0xF7), ("uint4", 0x10), ("uint4", 0xFF), ("bool", 2), ("bool", 0xFF)],
)
def test_bytes_that_are_none(tmp_path: Path, kind: str, byte: int) -> None:
    with pytest.raises(Fault) as caught:
        read_bytes(tmp_path, kind, bytes([0, 1, 1, byte, 0, byte]))
    assert caught.value.reason is Reason.DTYPE
    assert f"has 2 of 6 bytes that are no {kind}; the first is {byte:#04x}, of element 3" in caught.value.message


SECONDS = (1, 10, 100)


"""A deadline after which the last words were said: on a busy machine a later one."""


PLAN = """
version: 1
backend: command
defaults: {{dtypes: [float32]}}
cases:
  - op: relu
    name: hangs
    shapes: {{input0: [2]}}
    timeout: {timeout}
    backend_config:
      command:
        command: [sh, -c, "echo last words >&2; setsid sleep 600.{mark} & sleep 600.{mark}"]
        cleanup: [touch, cleaned]
  - op: transpose
    name: goes on
    shapes: {{input0: [2, 1]}}
    attributes: {{dim0: 0, dim1: 1}}
    backend_config: {{command: {{command: [cp, "{{input0}}", "{{output0}}"]}}}}
"""


def run_plan(folder: Path, text: str) -> tuple[int, str]:
    (folder / "plan.yaml").write_text(text)
    command = [sys.executable, "-m", "optest", "run", "--plan", "plan.yaml", "--no-color"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    return finished.returncode, finished.stdout + finished.stderr


def test_hang_reports_output_and_cleans_up(tmp_path: Path) -> None:
    mark = str(uuid.uuid4().int)[:12]
    for timeout in SECONDS:
        exit_status, text = run_plan(tmp_path, PLAN.format(mark=mark, timeout=timeout))
        assert exit_status == 1, text
        assert "DEADLINE" in text
        if "last words" in text:
            break
    assert "last words" in text
    assert "1 passed" in text
    assert (tmp_path / "cleaned").exists()
    assert processes_with(f"600.{mark}") == []


def test_a_wrong_configuration_is_refused_before_anything_runs(tmp_path: Path) -> None:
    exit_status, text = run_plan(tmp_path, PLAN.format(mark="1", timeout=1).replace("[cp,", "[cp, '{inptu0}',"))
    assert exit_status == 2, text
    assert "plan.yaml:" in text
    assert "did you mean {input0}?" in text
    assert "Traceback" not in text
    assert not (tmp_path / "cleaned").exists()

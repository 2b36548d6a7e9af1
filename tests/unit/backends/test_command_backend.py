"""Commands that do what they should, and every way in which they do not."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from handmade import case_of, command_case, inputs, spec
from texts import refusal, says, says_exactly

from optest.backends import _BUILTINS, BackendDriver, BackendManager, Fault, Reason, command
from optest.spec import CheckState, OperatorDescriptor, Status

ADD_PY = """
import sys, numpy as np
a, b, out, kind = sys.argv[1:5]
(np.fromfile(a, kind) + np.fromfile(b, kind)).astype(kind).tofile(out)
"""
ADDING = [sys.executable, "add.py", "{input0}", "{input1}", "{output0}", "{dtype}"]


@pytest.fixture
def driver() -> BackendDriver:
    return BackendManager(_BUILTINS).get("command")


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
    assert output.dtype == np.dtype(kind)
    assert output.tolist() == [[0, 11, 22], [33, 44, 55]]


def test_files_are_raw_and_little_endian(driver: BackendDriver, place: Path) -> None:
    run(driver, place, {"command": ["cp", "{input1}", "{output0}"]})
    assert (place / "input/input1.bin").read_bytes() == np.arange(0, 60, 10, dtype="<f4").tobytes()
    assert (place / "input/input0.bin").stat().st_size == 24


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_types_that_numpy_lacks_go_through_files(driver: BackendDriver, place: Path, kind: Any) -> None:
    name = np.dtype(kind).name
    case = command_case(kind=name, config={"command": ["cp", "{input0}", "{output0}"]}, base_dir=str(place))
    array = np.arange(6).reshape(2, 3).astype(kind)
    (output,) = driver.run(case, [array, array])
    assert output.dtype == array.dtype
    assert output.tolist() == array.tolist()


def test_a_strided_input_is_written_dense(driver: BackendDriver, place: Path) -> None:
    case = command_case(config={"command": ["cp", "{input0}", "{output0}"]}, base_dir=str(place))
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 5::-2]
    assert driver.run(case, [wide, np.broadcast_to(np.float32(1), (2, 3))])[0].tolist() == wide.tolist()
    assert (place / "input/input1.bin").stat().st_size == 24


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


def test_case_name_is_one_path_component(driver: BackendDriver, place: Path) -> None:
    config = {"command": ADDING, "workdir": "runs/{case}", "prepare": ["cp", str(place / "add.py"), "."]}
    run(driver, place, config, name="../evil/[x y]")
    assert [path.name for path in (place / "runs").iterdir()] == ["evil_x_y"]


@pytest.mark.parametrize(
    ("script", "reason", "status", "details"),
    [
        (
            "echo to out; echo boom >&2; exit 42",
            Reason.EXIT_CODE,
            Status.ERROR,
            {"exit_code": 42, "stderr_tail": "boom\n", "stdout_tail": "to out\n"},
        ),
        ("sh -c 'kill -SEGV $$'; exit $?", Reason.SIGNAL, Status.CRASHED, {"exit_code": 139, "signal": "SIGSEGV"}),
        (
            "echo last words >&2; kill -SEGV $$",
            Reason.SIGNAL,
            Status.CRASHED,
            {"signal": "SIGSEGV", "stderr_tail": "last words\n"},
        ),
        ("echo nothing done >&2", Reason.MISSING_OUTPUT, Status.FAILED, {"stderr_tail": "nothing done\n"}),
    ],
)
def test_faults_of_commands(
    driver: BackendDriver, place: Path, script: str, reason: Reason, status: Status, details: dict[str, Any]
) -> None:
    found = fault(driver, place, script)
    assert (found.reason, found.status) == (reason, status)
    assert details.items() <= found.details.items()
    if reason is Reason.EXIT_CODE:
        assert "exited with status 42" in found.message
    elif reason is Reason.MISSING_OUTPUT:
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


def test_stale_link_is_removed_without_its_target(driver: BackendDriver, place: Path) -> None:
    (place / "precious").write_bytes(b"\0" * 24)
    (place / "output").mkdir()
    (place / "output/output0.bin").symlink_to(place / "precious")
    assert fault(driver, place, "true").reason is Reason.MISSING_OUTPUT
    assert (place / "precious").exists()


@pytest.mark.parametrize(
    ("count", "words"), [(0, "too short"), (20, "5 elements, not 6"), (25, "too long"), (10**6, "too long")]
)
def test_an_output_of_the_wrong_size(driver: BackendDriver, place: Path, count: int, words: str) -> None:
    found = fault(driver, place, f"head -c {count} /dev/zero > {{output0}}")
    assert found.reason is Reason.SHAPE
    assert says(found.message, "backends.has_bytes_but_should", count=count)
    assert words in found.message


@pytest.mark.parametrize(
    ("count", "of"), [(12, "bfloat16[2x3] or float16[2x3]"), (48, "float64[2x3]"), (6, "float8_e4m3fn[2x3] or ")]
)
def test_an_output_of_the_size_of_another_dtype(driver: BackendDriver, place: Path, count: int, of: str) -> None:
    assert says(
        fault(driver, place, f"head -c {count} /dev/zero > {{output0}}").message,
        "backends.bytes_as",
        count=count,
        of=of,
    )


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
    living = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and mark in arguments(entry)]
    assert living == []


def arguments(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


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


def test_golden_files_belong_to_one_case(driver: BackendDriver, place: Path) -> None:
    config = {"command": ADDING, "golden": {"output0": "golden/z.bin"}}
    one = command_case(config=config, base_dir=str(place))
    assert driver.golden(one) is None
    driver.run(one, inputs())
    (golden,) = driver.golden(one)
    assert golden.tolist() == [[0, 11, 22], [33, 44, 55]]
    assert golden.dtype == np.float32  # the file's own, which says that the values are rounded
    other = command_case(config=config, base_dir=str(place), seed=1)
    assert driver.golden(other) is None
    only_load = {"command": ADDING, "golden": {"load": {"out": "golden/z.bin"}}}
    with refusal(Fault, "backends.belongs_to_another_case") as caught:
        driver.golden(command_case(config=only_load, base_dir=str(place), seed=1))
    assert caught.value.reason is Reason.BAD_CASE
    assert driver.golden(command_case(config=only_load, base_dir=str(place))) is not None


def test_golden_files_of_other_origin_are_refused(driver: BackendDriver, place: Path) -> None:
    config = {"command": ADDING, "golden": {"output0": "golden/z.bin"}}
    driver.run(command_case(config=config, base_dir=str(place)), inputs())
    load = {"command": ADDING, "golden": {"load": {"out": "golden/z.bin"}}}
    assert driver.golden(command_case(config=load, base_dir=str(place))) is not None
    with refusal(Fault, "backends.another_case_seed_or"):
        driver.golden(command_case(config=load, base_dir=str(place), reference="elsewhere:add"))
    np.full(6, 5, np.float32).tofile(place / "golden" / "z.bin")
    for each in (load, config):
        with pytest.raises(Fault, match="has changed since its") as caught:
            driver.golden(command_case(config=each, base_dir=str(place)))
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


def test_output_of_prepare_does_not_count(driver: BackendDriver, place: Path) -> None:
    prepare = ["sh", "-c", "mkdir -p output; head -c 24 /dev/zero > output/output0.bin"]
    assert fault(driver, place, "true", prepare=prepare).reason is Reason.MISSING_OUTPUT


def test_user_golden_file_is_noted_not_overwritten(driver: BackendDriver, place: Path) -> None:
    np.full(6, 5, np.float32).tofile(place / "mine.bin")
    case = command_case(config={"command": ADDING, "golden": {"out": "mine.bin"}}, base_dir=str(place))
    assert driver.golden(case)[0].tolist() == [[5.0] * 3] * 2
    driver.run(case, inputs())
    assert np.fromfile(place / "mine.bin", np.float32).tolist() == [5.0] * 6
    (note,) = driver.checks(case)
    assert "has no .key file" in note.detail


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
    config = {"command": ADDING, "golden": {"load": {"out": "g.bin"}}}
    case = command_case(config=config, base_dir=str(place))
    with pytest.raises(Fault, match="does not exist"):
        driver.golden(case)
    (place / "g.bin").write_bytes(b"123")
    with refusal(Fault, "backends.has_bytes_but_should_have"):
        driver.golden(case)
    assert driver.golden(command_case(config={"command": ADDING}, base_dir=str(place))) is None


def test_two_drivers_in_one_directory_take_turns(place: Path) -> None:
    """Two workers with the same workdir would read each other's files."""
    script = "sleep 0.2; cp {input0} {output0}"
    results: dict[int, list[Any]] = {}

    def ask(number: int) -> None:
        case = command_case(config={"command": ["sh", "-c", script]}, base_dir=str(place))
        array = np.full((2, 3), number, np.float32)
        results[number] = BackendManager(_BUILTINS).get("command").run(case, [array, array])[0].tolist()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [[number] * 3] * 2 for number in range(4)}


def test_inputs_that_cannot_be_written(driver: BackendDriver, place: Path) -> None:
    (place / "input").write_text("a file where a directory should be")
    found = fault(driver, place, "true")
    assert found.reason is Reason.BAD_CASE
    assert "input0 cannot be written" in found.message


def test_values_that_the_file_cannot_hold(driver: BackendDriver, place: Path) -> None:
    config = {"command": ADDING, "inputs": {"input0": {"path": "x", "dtype": "int8"}}}
    case = command_case(config=config, base_dir=str(place))
    with refusal(Fault, "backends.input_cannot_be_written") as caught:
        driver.run(case, [np.full((2, 3), 0.5, np.float32)] * 2)
    assert caught.value.reason is Reason.BAD_CASE


def test_the_ascend_driver_reads_its_own_section(place: Path) -> None:
    driver = BackendManager(_BUILTINS).select("npu", "Ascend910B")
    assert run(driver, place, {"command": ADDING}).tolist() == [[0, 11, 22], [33, 44, 55]]
    assert driver.keeps_deadline
    assert signal.SIGKILL == 9

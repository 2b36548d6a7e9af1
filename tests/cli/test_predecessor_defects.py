"""The 36 defects found in the optest before this one; each was reproduced there, and none of them is here.

Numbers are those of the list that was made of it. Defect 28, a reference of seven nested loops for conv2d, is
represented by the cost of the contraction that exists.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from user_shell import Ended, Shell

from optest.spec import CaseResult
from optest.store import read_journal

Write = Callable[[str], Path]
PYTHON = sys.executable

RIGHT = (
    "import numpy as np; a = np.fromfile('input/input0.bin', np.float32); "
    "(a + np.fromfile('input/input1.bin', np.float32)).tofile('output/output0.bin')"
)


def command_plan(command: list[Any], *, case: str = "", shape: str = "2x3", **config: Any) -> str:
    """A plan of one add through a command; JSON is YAML."""
    section = json.dumps({"command": {"command": command, **config}})
    return (
        f"backend: command\ncases:\n"
        f"  - {{op: add, dtypes: float32, shapes: {{input0: {shape}, input1: {shape}}}, name: one, "
        f"backend_config: {section}{case}}}\n"
    )


def script(body: str) -> list[str]:
    return ["sh", "-c", body]


def results(folder: Path) -> tuple[CaseResult, ...]:
    *_, newest = sorted((folder / ".optest" / "runs").glob("*/journal.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return read_journal(newest).results


def reasons(folder: Path) -> list[str]:
    return [result.reason.value if result.reason else result.status.value for result in results(folder)]


def refused(ended: Ended, *words: str) -> None:
    assert ended.status == 2, ended.text
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err


@pytest.mark.parametrize("chip", [[], ["--chip", "Ascend910B"], ["--chip", "ascend"]])
def test_01_a_failing_command_never_passes_on_a_stub(
    optest: Shell, plan: Write, tmp_path: Path, chip: list[str]
) -> None:
    text = command_plan(script("echo boom >&2; exit 42")).replace("command: {", "ascend: {", 1)
    text = text.replace('"command": {"command"', '"ascend": {"command"').replace("backend: command\n", "")
    ended = optest("run", "--plan", plan(text), "--backend", "npu", *chip)
    assert ended.status == 1, ended.text
    assert reasons(tmp_path) == ["EXIT_CODE"]
    assert "boom" in ended.out
    assert "42" in ended.out


def test_01_a_bogus_chip_is_refused(optest: Shell, plan: Write) -> None:
    text = command_plan(script("true")).replace('"command": {"command"', '"ascend": {"command"')
    text = text.replace("backend: command\n", "")
    refused(optest("run", "--plan", plan(text), "--backend", "npu", "--chip", "totally-bogus"), "totally-bogus")


@pytest.mark.parametrize(
    "flags",
    [
        ["--tolerance", "abs=0,rell=3"],
        ["--attr", "foo=bar"],
        ["--dtype", "complex64,complex64"],
    ],
)
def test_02_slips_are_refused_and_declared_dtypes_enforced(optest: Shell, flags: list[str]) -> None:
    shapes = ["--shape", "input0=2x3", "--shape", "input1=3x4"]
    dtypes = [] if "--dtype" in flags else ["--dtype", "float32,float32"]
    refused(optest("run", "--op", "matmul", *shapes, *dtypes, *flags))


def test_03_a_command_that_hangs_ends_and_its_output_is_kept(optest: Shell, plan: Write, tmp_path: Path) -> None:
    for deadline_s in (0.5, 5, 50):  # on a busy machine nothing may be printed so soon
        text = command_plan(script("echo last words; sleep 600"), case=f", timeout: {deadline_s}")
        began = time.monotonic()
        ended = optest("run", "--plan", plan(text))
        assert time.monotonic() - began < deadline_s + 100
        assert (ended.status, reasons(tmp_path)) == (1, ["DEADLINE"])
        printed = results(tmp_path)[0].verdict.details["stdout_tail"]
        if printed:
            break
    assert printed == "last words\n"


def test_04_cleanup_runs_after_a_failure_and_stale_outputs_are_gone(optest: Shell, plan: Write, tmp_path: Path) -> None:
    good = plan(command_plan([PYTHON, "-c", RIGHT]))
    assert optest("run", "--plan", good).status == 0
    assert (tmp_path / "output" / "output0.bin").exists()
    idle = plan(command_plan(["true"], cleanup=["touch", "cleaned"]))
    assert optest("run", "--plan", idle).status == 1
    assert reasons(tmp_path) == ["MISSING_OUTPUT"]
    assert (tmp_path / "cleaned").exists()


def test_05_several_build_commands(optest: Shell, plan: Write, tmp_path: Path) -> None:
    text = command_plan([PYTHON, "-c", RIGHT], build=[["touch", "a"], ["touch", "b"]])
    assert optest("run", "--plan", plan(text)).status == 0
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()


def test_06_paths_are_relative_to_the_plan(optest: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / "add.py").write_text(RIGHT)
    (folder / "p.yaml").write_text(command_plan([PYTHON, "add.py"], workdir="kernel"))
    ended = optest("run", "--plan", folder / "p.yaml")
    assert ended.status == 0, ended.text


def test_07_golden_files_are_not_reused_for_other_inputs(optest: Shell, plan: Write) -> None:
    text = command_plan([PYTHON, "-c", RIGHT], golden={"output0": "golden.bin"})
    for seed in (1, 1, 2):
        ended = optest("run", "--plan", plan(text), "--seed", seed)
        assert ended.status == 0, ended.text
    load = command_plan([PYTHON, "-c", RIGHT], golden={"load": {"output0": "golden.bin"}})
    ended = optest("run", "--plan", plan(load), "--seed", 3)
    assert ended.status == 1
    assert "BAD_CASE" in ended.out


OWN = """
import numpy as np
print("executed", flush=True)
open("executed", "a").write("x")
def draw(case, rng):
    return [rng.random(argument.spec.shape, "f4") for argument in case.inputs], None
"""


def test_08_a_plain_function_is_a_generator_and_35_its_module_runs_once(
    optest: Shell, plan: Write, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    rows = "\n".join(
        f"  - {{op: relu, dtypes: float32, shapes: {{input0: {size}}}, generator: 'own:draw', name: c{size}}}"
        for size in (3, 4, 5)
    )
    ended = optest("run", "--plan", plan(f"cases:\n{rows}"), "--isolate", "worker", "--jobs", 1)
    assert ended.status == 0, ended.text
    assert (tmp_path / "executed").read_text() == "xx"  # once in each process: the path is tried before the run


INTEGERS = "cases:\n" + "\n".join(
    f"  - {{op: add, dtypes: {name}, shapes: {{input0: 40, input1: 40}}, name: {name}}}"
    for name in ("uint8", "int8", "int16", "int32", "int64")
)


def test_09_every_integer_type_has_inputs_and_21_they_say_something(optest: Shell, plan: Write, tmp_path: Path) -> None:
    ended = optest("run", "--plan", plan(INTEGERS))
    assert ended.status == 0, ended.text
    from optest.core.inputs import make_inputs
    from optest.core.wire import case_from_wire
    from optest.operators import operators

    for result in results(tmp_path):
        inputs, _ = make_inputs(case_from_wire(result.case, operators.get))
        assert len({int(value) for value in inputs[0]}) > 5, result.id
        assert inputs[0].tobytes() != inputs[1].tobytes()  # 20: inputs are drawn apart


WRONG = """
import numpy as np
from optest.backends import BackendDriver, backend_manager
from optest.backends.numpy_reference import NumpyBackend
from optest.operators import operators
from optest.spec import OperatorDescriptor, Rule, RuleClass

honest = NumpyBackend()


class Wrong(BackendDriver):
    name = kind = "wrong"

    def run(self, case, inputs):
        outs = [np.array(out) for out in honest.run(case, inputs)]
        how = case.backend_config.get("wrong", {}).get("how", "nothing")
        if how == "nan":
            outs[0].flat[0] = np.nan
        if how == "plus one":
            outs[0].flat[0] += 1
        if how == "flip":
            outs[0].flat[0] = not outs[0].flat[0]
        if how == "both":
            for out in outs:
                out.flat[-1] += 1
        if how == "garbage":
            outs[0][...] = 1e30
        return outs


backend_manager.register(Wrong())
exact = Rule(kind=RuleClass.EXACT)
operators.register(
    OperatorDescriptor(name="is_positive", signature="x -> out", reference=lambda i, a: [i[0] > 0], rule=exact)
)
operators.register(
    OperatorDescriptor(
        name="halves", signature="x -> low, high", reference=lambda i, a: [i[0] / 2, i[0] * 2], rule=exact
    )
)
operators.register(
    OperatorDescriptor(name="same", signature="x -> out", reference=lambda i, a: [i[0]], rule=exact)
)
"""
MINE = {"OPTEST_PLUGINS": "wrong"}


@pytest.fixture
def wrong(optest: Shell, plan: Write, tmp_path: Path) -> Callable[..., Ended]:
    """Run one case on a backend that is wrong in one way."""
    (tmp_path / "wrong.py").write_text(WRONG)

    def ask(op: str, how: str, *flags: Any, dtype: str = "float32", shape: str = "4x5", more: str = "") -> Ended:
        text = (
            f"backend: wrong\ncases:\n  - {{op: {op}, dtypes: {dtype}, shapes: {{input0: {shape}}}, name: one, "
            f"backend_config: {{wrong: {{how: {how}}}}}{more}}}\n"
        )
        return optest("run", "--plan", plan(text), *flags, env=MINE)

    return ask


def test_10_nan_equals_nan(wrong: Callable[..., Ended]) -> None:
    partly = ", generator: {fill: data, values: [1.0, .nan]}"
    assert wrong("same", "nothing", shape="2", more=partly).status == 0
    assert wrong("same", "nan").status == 1


def test_10_int64_is_compared_as_integers(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    """2**53 + 1 and 2**53 are one float64."""
    large = f", generator: {{fill: data, values: [{2**53}, 1, 2]}}"
    assert wrong("same", "nothing", dtype="int64", shape="3", more=large).status == 0
    assert wrong("same", "plus one", dtype="int64", shape="3", more=large).status == 1
    (measure,) = results(tmp_path)[0].verdict.measures
    assert (measure.mismatched, measure.worst_index) == (1, (0,))


def test_10_an_index_is_printed_as_numbers(wrong: Callable[..., Ended]) -> None:
    ended = wrong("same", "plus one")
    assert "worst at [0, 0]" in ended.out
    assert "np.int64" not in ended.out


def test_11_the_module_is_the_command(optest: Shell) -> None:
    assert optest("--version").out.startswith("optest ")


@pytest.mark.parametrize("how", ["nan", "plus one"])
def test_12_and_27_reports_are_json_whatever_they_hold(wrong: Callable[..., Ended], tmp_path: Path, how: str) -> None:
    ended = wrong("same", how, "--report", "json", "--report-path", "r.json", shape="[]")
    assert ended.status == 1, ended.text

    def refuse(token: str) -> None:
        raise AssertionError(token)

    report = json.loads((tmp_path / "r.json").read_text(), parse_constant=refuse)
    assert report["summary"]["by_status"] == {"failed": 1}


def test_13_misfit_shapes_are_told_by_file_line_and_tensor(optest: Shell, plan: Write) -> None:
    text = "cases:\n  - {op: gemm, dtypes: float32, shapes: {input0: 2x3, input1: 4x5}}\n"
    refused(optest("run", "--plan", plan(text)), "plan.yaml:2", "2x3", "4x5")


def test_14_arguments_reach_the_program_as_they_are(optest: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "sp ace"
    folder.mkdir()
    code = RIGHT + "; import sys; open('seen', 'w').write(repr(sys.argv[1:]))"
    (folder / "p.yaml").write_text(command_plan([PYTHON, "-c", code, "{shape0}", "it's", "$HOME", "{workdir}"]))
    ended = optest("run", "--plan", folder / "p.yaml")
    assert ended.status == 0, ended.text
    assert (folder / "seen").read_text() == repr(["2x3", "it's", "$HOME", str(folder)])


def test_15_files_of_another_case_are_never_inputs(optest: Shell, plan: Write) -> None:
    """The two cases share their files; there the second read what was left of the first."""
    one = command_plan([PYTHON, "-c", RIGHT])
    other = command_plan([PYTHON, "-c", RIGHT], shape="4x4").splitlines()[-1].replace("name: one", "name: two")
    ended = optest("run", "--plan", plan(one + other))
    assert ended.status == 0, ended.text


def test_16_nothing_is_compared_with_itself(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    assert wrong("same", "garbage").status == 1
    assert reasons(tmp_path) == ["VALUE"]


@pytest.mark.parametrize("status", ["failed", "error"])
def test_17_an_expected_failure_hides_no_broken_set_up(optest: Shell, plan: Write, tmp_path: Path, status: str) -> None:
    case = f", xfail: {{reason: known, status: {status}}}"
    ended = optest("run", "--plan", plan(command_plan(["no-such-binary"], case=case)))
    assert (ended.status, reasons(tmp_path)) == (1, ["UNAVAILABLE"])


def test_17_an_unexpected_pass_is_counted_once(wrong: Callable[..., Ended]) -> None:
    ended = wrong("same", "nothing", more=", xfail: known")
    assert ended.status == 1
    assert "1 xpassed" in ended.out
    assert "xfailed" not in ended.out.splitlines()[-2]


@pytest.mark.parametrize(("step", "timeout", "reason"), [("exit 3", 100, "EXIT_CODE"), ("sleep 600", 0.7, "DEADLINE")])
def test_18_cleanup_runs_when_prepare_fails_and_fractions_of_a_second_count(
    optest: Shell, plan: Write, tmp_path: Path, step: str, timeout: float, reason: str
) -> None:
    text = command_plan(["true"], prepare=script(step), cleanup=["touch", "cleaned"], case=f", timeout: {timeout}")
    assert optest("run", "--plan", plan(text)).status == 1
    assert reasons(tmp_path) == [reason]
    assert (tmp_path / "cleaned").exists()


def test_18_a_deadline_is_tried_again_as_a_crash_is(optest: Shell, plan: Write, tmp_path: Path) -> None:
    made = f'{PYTHON} -c "{RIGHT}"; cp output/output0.bin right'
    assert optest("run", "--plan", plan(command_plan(script(made)))).status == 0
    body = "test -e tried && exec cp right output/output0.bin; touch tried; sleep 600"
    ended = optest("run", "--plan", plan(command_plan(script(body), case=", timeout: 3, retries: 1")))
    (result,) = results(tmp_path)
    assert (ended.status, result.status.value, result.attempts) == (1, "suspect", 2), ended.text


def test_19_a_case_adds_to_the_defaults(optest: Shell, plan: Write) -> None:
    text = (
        "defaults: {tolerance: {rtol: 0.25}, attributes: {alpha: 3.0}}\ncases:\n"
        "  - {op: gemm, dtypes: float32, shapes: {input0: 2x3, input1: 3x4}, name: one, tolerance: {atol: 0.5}, "
        "attributes: {beta: 2.0}}\n"
    )
    ended = optest("explain", "one", "--plan", plan(text))
    assert ended.status == 0, ended.text
    for stated in ("rtol=0.25", "atol=0.5", "alpha", "3.0", "beta", "2.0"):
        assert stated in ended.out


def test_20_each_input_has_its_own_fill(optest: Shell, plan: Write, tmp_path: Path) -> None:
    text = (
        "cases:\n  - {op: add, dtypes: float32, shapes: {input0: 40, input1: 40}, name: one, "
        "generator: {input0: {fill: uniform, low: 5, high: 6}, input1: ones}}\n"
    )
    ended = optest("run", "--plan", plan(text))
    assert ended.status == 0, ended.text
    assert [entry[3] for entry in results(tmp_path)[0].case["inputs"]] == ["uniform", "ones"]


def test_22_the_seed_is_fixed_reported_and_repeats(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    first = wrong("same", "plus one")
    worst = results(tmp_path)[0].verdict.measures[0].worst_expected
    assert "seed 0" in first.out
    wrong("same", "plus one")
    assert results(tmp_path)[0].verdict.measures[0].worst_expected == worst


def test_23_references_do_not_compute_in_the_inputs_type(optest: Shell, plan: Write) -> None:
    """The exact 16-bit sum of 4096 ones and a half is lost in float16, and 200 products of 100 wrap in int8."""
    import numpy as np

    from optest.operators.reference_impls import gemm_reference

    ones = np.full((1, 4096), 1.0, np.float16)
    (value,) = np.atleast_1d(
        gemm_reference([ones, ones.T], {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False})
    )
    assert float(np.ravel(value)[0]) == 4096.0
    assert np.asarray(value).dtype == np.float64


def test_24_scalars_are_outputs(optest: Shell) -> None:
    ended = optest("run", "--op", "sum", "--dtype", "float32", "--shape", "input0=4x5", "-v")
    assert ended.status == 0, ended.text
    assert "1 elements compared" in ended.out or "1 element compared" in ended.out


@pytest.mark.parametrize(("op", "how", "dtype"), [("is_positive", "flip", "float32"), ("same", "plus one", "uint8")])
def test_25_bool_and_unsigned_mismatches_are_failures(
    wrong: Callable[..., Ended], tmp_path: Path, op: str, how: str, dtype: str
) -> None:
    assert wrong(op, how, dtype=dtype).status == 1
    (result,) = results(tmp_path)
    assert (result.status.value, result.verdict.measures[0].mismatched) == ("failed", 1)
    assert result.verdict.measures[0].max_abs_error in (1.0, 255.0)


def test_26_every_output_is_compared_and_located(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    ended = wrong("halves", "both")
    low, high = results(tmp_path)[0].verdict.measures
    assert (low.mismatched, high.mismatched) == (1, 1)
    assert low.worst_index == high.worst_index == (3, 4)
    assert ended.out.count("worst at [3, 4]") == 2


def test_27_a_missing_report_folder_is_told_before_anything_runs(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    ended = wrong("same", "nothing", "--report-path", "no/such/folder/r.json")
    refused(ended, "no/such/folder")
    assert not (tmp_path / ".optest").exists()


def test_28_references_are_not_loops(optest: Shell, tmp_path: Path) -> None:
    """The predecessor took 470 ns for a multiplication; at that rate this product would take 63 s."""
    flags = ["--dtype", "float32,float32", "--shape", "input0=512x512", "--shape", "input1=512x512"]
    assert optest("run", "--op", "matmul", *flags).status == 0
    reference_s = results(tmp_path)[0].timings.reference_s
    assert reference_s is not None
    assert reference_s < 6.3


@pytest.mark.parametrize(
    ("slip", "near"),
    [
        ("desciption: adds", "description"),
        ("tolerence: {rtol: 1}", "tolerance"),
        ("tolerance: {rtoll: 1}", "rtol"),
        ("generator: {fill: uniform, lo: 1}", "low"),
        ("xfail: {reson: x}", "reason"),
    ],
)
def test_29_unknown_keys_are_refused_at_every_depth(optest: Shell, plan: Write, slip: str, near: str) -> None:
    text = f"cases:\n  - {{op: relu, dtypes: float32, shapes: {{input0: 4}}, {slip}}}\n"
    refused(optest("run", "--plan", plan(text)), "plan.yaml:2", near)


def test_30_duplicate_names_and_bad_dtypes_are_found_when_the_plan_is_read(optest: Shell, plan: Write) -> None:
    case = "  - {op: relu, dtypes: float32, shapes: {input0: 4}, name: one}\n"
    refused(optest("run", "--plan", plan(f"cases:\n{case}{case}")), "plan.yaml:3", "one")
    refused(optest("run", "--plan", plan(f"cases:\n{case.replace('float32', 'flaot32')}")), "float32")


def test_30_tags_of_a_plan_select(optest: Shell, plan: Write) -> None:
    text = "defaults: {tags: [nightly]}\ncases:\n  - {op: relu, dtypes: float32, shapes: {input0: 4}}\n"
    assert optest("run", "--plan", plan(text), "--tag", "nightly").status == 0
    assert optest("run", "--plan", plan(text), "--skip-tag", "nightly").status == 5


@pytest.mark.parametrize("selector", [["--case", "no-such*"], ["-k", "nosuch"], ["--tag", "nosuch"]])
def test_31_nothing_selected_is_no_success(optest: Shell, plan: Write, selector: list[str]) -> None:
    text = "cases:\n  - {op: relu, dtypes: float32, shapes: {input0: 4}, tags: [quick]}\n"
    for command in (["run"], ["list", "cases"]):
        ended = optest(*command, "--plan", plan(text), *selector)
        assert ended.status in (2, 5), ended.text


def test_32_braces_can_be_written_and_tokens_are_no_expressions(optest: Shell, plan: Write, tmp_path: Path) -> None:
    code = RIGHT + "; import sys; open('seen', 'w').write(sys.argv[1])"
    assert optest("run", "--plan", plan(command_plan([PYTHON, "-c", code, "awk {{print $1}}"]))).status == 0
    assert (tmp_path / "seen").read_text() == "awk {print $1}"
    refused(optest("run", "--plan", plan(command_plan(["echo", "{case.__class__}"]))), "case.__class__")


def test_33_any_kind_of_backend_can_be_brought(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    assert wrong("same", "nothing", "--backend", "wrong").status == 0
    assert (results(tmp_path)[0].backend, results(tmp_path)[0].kind) == ("wrong", "wrong")


def test_34_side_by_side_first_failure_and_durations(optest: Shell, plan: Write, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    rows = "\n".join(
        f"  - {{op: same, dtypes: float32, shapes: {{x: {size}}}, backend_config: {{wrong: {{how: plus one}}}}}}"
        for size in range(2, 8)
    )
    text = f"backend: wrong\ncases:\n{rows}\n"
    assert optest("run", "--plan", plan(text), "--jobs", 2, env=MINE).status == 1
    assert len(results(tmp_path)) == 6
    assert all(result.timings.run_s is not None for result in results(tmp_path))
    assert optest("run", "--plan", plan(text), "--fail-fast", env=MINE).status == 1
    assert len(results(tmp_path)) == 1


def test_36_a_file_of_the_wrong_size_is_told_with_path_dtype_and_bytes(
    optest: Shell, plan: Write, tmp_path: Path
) -> None:
    short = script("mkdir -p output; head -c 12 /dev/zero > output/output0.bin")
    ended = optest("run", "--plan", plan(command_plan(short)))
    assert (ended.status, reasons(tmp_path)) == (1, ["SHAPE"])
    for fact in ("output0.bin", "12 bytes", "24", "float32", "too short"):
        assert fact in ended.out

"""Scripts of failures show the same wrong value at the same place, without optest."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from texts import refusal, says, says_exactly
from user_shell import driver_text, user_environment

from optest import api
from optest.api import run
from optest.api.checking import check_request
from optest.api.replaying import replay
from optest.api.report import Report
from optest.api.saving import load_saved
from optest.api.scripts import Replayed, script_for
from optest.backends import BackendDriver, Script, ScriptInput, backend_manager
from optest.core.expected import make_inputs
from optest.core.kept_tensors import Archive, spec_of, write_archive
from optest.core.results import result_of
from optest.errors import UsageError
from optest.numerics import bits, private_copy
from optest.spec import CaseResult, Fault, Measure, Reason, Status, Verdict

FAILING = """
version: 1
defaults: {{tolerance: {{rtol: 0, atol: 0}}}}
cases:
{cases}
"""

WRONG_REFERENCES = """
import numpy as np
def first(inputs, attributes): return [np.full(inputs[0].shape, 777.0)]
def matmul(inputs, attributes): return [np.full((inputs[0].shape[0], inputs[1].shape[1]), 777.0)]
def row(inputs, attributes): return [np.full(inputs[0].shape[:1], 777.0)]
"""
"""What torch computes is right, so it fails by a reference that is wrong, or by a tolerance that is too tight."""

TORCH_CASES = {
    "exp": "op: exp, dtypes: float32, shapes: {input0: 40x30}",
    "inline": "op: exp, dtypes: float32, shapes: {input0: 6}",
    "scalar": "op: exp, dtypes: float64, shapes: {input0: []}",
    "float16 inline": "op: exp, dtypes: float16, shapes: {input0: 2x3}",
    "bfloat16": "op: matmul, dtypes: bfloat16, shapes: {input0: 5x7, input1: 7x9}",
    "strided": (
        "op: matmul, dtypes: float16, shapes: {input0: {shape: [5, 7], strides: [1, 5], offset: 3}, "
        "input1: {shape: [7, 9], strides: [20, 2], offset: 1}}"
    ),
    "repeated": "op: div, dtypes: bfloat16, shapes: {input0: 6x5, input1: {shape: [6, 5], strides: [0, 1]}}",
    "float8": "op: cast, dtypes: float8_e4m3fn, shapes: {input0: 50}, attributes: {dtype: float32}",
    "to float8": "op: cast, dtypes: float32, shapes: {input0: 50}, attributes: {dtype: float8_e5m2, saturate: true}",
    "gemm": (
        "op: gemm, dtypes: float32, shapes: {input0: 7x5, input1: 7x9, input2: 5x9}, "
        "attributes: {alpha: 0.3, beta: 0.7, trans_a: true}"
    ),
    "gemm without c": "op: gemm, dtypes: float16, shapes: {input0: 5x7, input1: 7x9}, attributes: {alpha: 0.3}",
    "softmax": "op: softmax, dtypes: float32, shapes: {input0: 8x33}, attributes: {dim: 0}",
    "layer_norm": (
        "op: layer_norm, dtypes: float16, shapes: {input0: 8x33, input1: 33, input2: 33}, "
        "attributes: {normalized_shape: [33]}"
    ),
    "gelu": "op: gelu, dtypes: float32, shapes: {input0: 100}, attributes: {approximate: tanh}",
    "alpha": "op: add, dtypes: float32, shapes: {input0: 50, input1: 50}, attributes: {alpha: 0.1}",
    "sum": "op: sum, dtypes: float16, shapes: {input0: 4x1000}, attributes: {dim: [1]}",
}
WRONG = {
    **dict.fromkeys(("bfloat16", "strided", "gemm without c"), "matmul"),
    **dict.fromkeys(("inline", "scalar", "float16 inline", "repeated", "float8", "to float8", "layer_norm"), "first"),
    "sum": "row",
}
"""References of the cases that would pass with the right one."""


def failing(folder: Path, cases: dict[str, str], **options: Any) -> Report:
    """Run cases whose tolerance is too tight for them, or whose reference is wrong."""
    wrong = {name: f", reference: 'wrongs:{WRONG[name]}'" if name in WRONG else "" for name in cases}
    lines = [f"  - {{name: {name}, {case}{wrong[name]}}}" for name, case in cases.items()]
    return run_of(folder, FAILING.format(cases="\n".join(lines)), **options)


def run_of(folder: Path, plan: str, **options: Any) -> Report:
    (folder / "plan.yaml").write_text(plan)
    return run(plan="plan.yaml", quiet=2, **options)


def got_in(text: str) -> tuple[tuple[int, ...], float]:
    """Index and value of ``out[1, 2]: got 0.5, expected …``."""
    found = re.search(r"^\w+\[(.*?)\]: got (\S+), expected", text, re.M)
    assert found is not None, text
    index = tuple(int(each) for each in found[1].split(",") if each.strip().isdigit())
    return index, float(found[2])


def assert_shows_the_failure(script: Path, result: CaseResult, ended: subprocess.CompletedProcess[str]) -> None:
    text = script.read_text()
    assert "but not optest" in text
    measure = result.verdict.measures[0]
    assert got_in(ended.stdout) == (measure.worst_index, measure.worst_actual), ended.stderr
    assert ended.returncode == 1
    assert "AssertionError" in ended.stderr


ALL_ALONE = """
import contextlib, io, json, runpy, sys, traceback
sys.modules["optest"] = None
for path in sys.argv[1:]:
    out, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(path, run_name="__main__")
    except Exception:
        error = traceback.format_exc()
    print(json.dumps([out.getvalue(), error]))
"""


def alone(*scripts: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run scripts where optest cannot be imported, in one process, since importing torch takes longer than a script."""
    ended = subprocess.run(
        [sys.executable, "-c", ALL_ALONE, *map(str, scripts)],
        env=user_environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    pairs = [json.loads(line) for line in ended.stdout.splitlines()]
    return [subprocess.CompletedProcess([], int(bool(error)), out, error) for out, error in pairs]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.torch
def test_torch_without_optest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "wrongs.py").write_text(WRONG_REFERENCES)
    monkeypatch.syspath_prepend(here)
    failing(here, TORCH_CASES, backend="torch", isolate="none")
    outcome = replay([], "latest", {"quiet": 2, "isolate": "none"}, script="scripts")
    by_name = {each.id: each for each in outcome.results}
    assert set(by_name) == set(TORCH_CASES), "each of these cases fails"
    scripts = [here / "scripts" / f"{name.replace(' ', '-')}.py" for name in by_name]
    for script, result, ended in zip(scripts, outcome.results, alone(*scripts), strict=True):
        assert_shows_the_failure(script, result, ended)
    inline = (here / "scripts" / "float16-inline.py").read_text()
    assert "np.array([[" in inline
    assert "saved" not in inline
    files = {each.name for each in (here / "scripts").iterdir()}
    assert "inline.npz" not in files, "six numbers stand in the script itself"
    assert "exp.npz" in files
    strided = (here / "scripts" / "strided.py").read_text()
    assert "as_strided((5, 7), (1, 5), 3)" in strided
    gemm = (here / "scripts" / "gemm.py").read_text()
    assert "t0 = input0.transpose(-1, -2)\nout = torch.addmm(input2, t0, input1, alpha=0.3, beta=0.7)" in gemm


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("with_values", [True, False], ids=["values", "no values"])
def test_every_operator_of_torch_can_be_recorded(with_values: bool) -> None:
    """The recorded calls, executed by themselves, give the bits that the backend gives."""

    driver = backend_manager.get("torch")
    cases = [
        case for case in check_request({"backend": "torch", "tier": "smoke"}).run.cases if case.expects_error is None
    ]
    recorded, not_written = set(), {}
    for case in cases:
        if driver.unsupported(case):
            continue
        inputs, _ = make_inputs(case)
        try:
            wanted = driver.run(case, [private_copy(each) for each in inputs])
        except Fault:
            continue
        given = [
            ScriptInput(name=argument.path, source=f"given[{place}]", spec=spec_of(array), array=private_copy(array))
            for place, (argument, array) in enumerate(zip(case.inputs, inputs, strict=True))
        ]
        if not all(each.spec.is_dense for each in given):
            continue
        script = driver.script(case, given, may_run=with_values)
        if not isinstance(script, Script):
            not_written[case.id] = script
            continue
        stored = [each.array if each.array.dtype.isbuiltin == 1 else bits(each.array) for each in given]
        names: dict[str, Any] = {"np": np, "given": [each.copy() for each in stored]}
        exec("\n".join([*script.imports, *script.lines]), names)
        for expression, want in zip(script.outputs, wanted, strict=True):
            got = eval(expression, names)
            if want.dtype.isbuiltin != 1:
                got, want = got.float(), want.astype(np.float32)
            else:
                got = got.contiguous().view(got.dtype).resolve_conj()
            np.testing.assert_array_equal(got.numpy(), want, err_msg=case.id)
        recorded.add(case.descriptor.name)
    assert recorded, not_written
    if with_values:
        assert not_written == {}
    else:
        assert len(not_written) <= len(cases) // 16, not_written  # paged and grouped ones read lengths


COMMAND = f"""
version: 1
backend: command
defaults: {{tolerance: {{rtol: 0, atol: 0}}}}
cases:
  - op: add
    name: adds
    dtypes: [float32]
    shapes: {{input0: SHAPE, input1: [3, 4]}}
    backend_config:
      command:
        command: [{sys.executable}, add.py, "{{input0}}", "{{input1}}", "{{output0}}"]
        prepare: [{sys.executable}, -c, "open('prepared', 'w').write('x')"]
        cleanup: [{sys.executable}, -c, "open('cleaned', 'a').write('x')"]
        env: {{STEP: "{{case}} 1.5"}}
"""
ADD = """
import os, sys
import numpy as np
a, b = (np.fromfile(path, "float32") for path in sys.argv[1:3])
out = a + b
out[5] += np.float64(os.environ["STEP"].split()[1])
assert open("prepared").read() == "x"
out.astype("float32").tofile(sys.argv[3])
"""


@pytest.mark.parametrize("layout", ["[3, 4]", "{shape: [3, 4], strides: [1, 3]}"], ids=["dense", "strided"])
def test_a_command_without_optest(layout: str, here: Path) -> None:
    (here / "add.py").write_text(ADD)
    run_of(here, COMMAND.replace("SHAPE", layout))
    (here / "prepared").unlink()
    (result,) = replay([], "latest", {"quiet": 2}, script="out").results
    assert result.status is Status.FAILED
    (here / "prepared").unlink()
    before = (here / "cleaned").read_text()
    script = here / "out" / "adds.py"
    shutil.rmtree(here / "input")
    (here / "output" / "output0.bin").write_bytes(b"stale")
    assert_shows_the_failure(script, result, *alone(script))
    assert (here / "cleaned").read_text() == before + "x"


def test_a_command_that_fails_fails_in_the_script(here: Path) -> None:
    (here / "add.py").write_text("import sys; sys.exit(42)")
    run_of(here, COMMAND.replace("SHAPE", "[3, 4]"))
    replay([], "latest", {"quiet": 2}, script="out")
    (ended,) = alone(here / "out" / "adds.py")
    assert says(ended.stderr, "api.returned_non_zero_exit")
    assert (here / "cleaned").exists()


@pytest.mark.torch
def test_a_crash_is_written_without_running_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are recorded on tensors without values, so that what kills a worker cannot kill optest."""
    from optest.torch.operators import TORCH_OPERATORS

    (case,) = api.cases(op="exp", dtype="float32", shape="input0=8", backend="torch")
    (array,), _ = make_inputs(case)
    given = [ScriptInput(name="input0", source="x", spec=spec_of(array), array=array)]
    ran: list[str] = []
    call = TORCH_OPERATORS["exp"]
    watched = lambda tensors, attributes: (ran.append(tensors[0].device.type), call(tensors, attributes))[1]  # noqa: E731
    monkeypatch.setitem(TORCH_OPERATORS, "exp", watched)
    script = backend_manager.get("torch").script(case, given, may_run=False)
    assert isinstance(script, Script)
    assert script.lines[-1] == "out = torch.exp(input0)"
    assert ran == ["meta"]


MY_SOFTMAX = """
import numpy as np
def expected(case, rng):
    a = rng.standard_normal((4, 6)).astype(np.float32)[:, ::-1]
    return [np.ascontiguousarray(a)], [np.zeros((4, 6))]
class Zeros:
    generate = staticmethod(expected)
def ref(inputs, attributes):
    assert 'optest' not in globals()
    return np.exp(inputs[0].astype(float)) + attributes['dim']
"""


def test_numpy_with_a_reference_of_ones_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "my_softmax.py").write_text(MY_SOFTMAX)
    monkeypatch.syspath_prepend(here)
    own = "reference: 'my_softmax:ref', generator: 'my_softmax:Zeros'"
    run_of(here, f"cases: [{{op: softmax, name: mine, dtypes: float32, shapes: {{input0: 4x6}}, {own}}}]")
    (result,) = replay([], "latest", {"quiet": 2}, script="out").results
    script = here / "out" / "mine.py"
    assert "import my_softmax" in script.read_text()
    assert_shows_the_failure(script, result, *alone(script))


def test_numpy_says_that_its_references_are_optests(here: Path) -> None:

    (case,) = api.cases(op="exp", dtype="float32", shape="input0=8")
    assert says_exactly(backend_manager.get("numpy").script(case, [], may_run=True), "api.backend_numpy_answers_with")


WRONG_ADD = """\
if case.attributes.get("alpha") == 3:
    os.abort()
out = np.add(*inputs)
out[2, 1] += 1
return (out,)
"""


def in_shell(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        **{"cwd": folder, "env": user_environment(OPTEST_PLUGINS="mine_plugin"), **options},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def failed_add(folder: Path, dtype: str, *more: str) -> None:
    """Run an addition that is wrong at [2, 1], or aborts with ``alpha=3``."""
    (folder / "mine_plugin.py").write_text(driver_text("mine", WRONG_ADD))
    call = ("--op", "add", "--dtype", dtype, "--shape", "input0=4x5", "--shape", "input1=4x5")
    assert in_shell(folder, "-m", "optest", "run", *call, "-q", "--backend", "mine", *more).returncode == 1


@pytest.mark.heavy
def test_driver_without_script_runs_through_optest(here: Path) -> None:
    failed_add(here, "float32")
    ended = in_shell(here, "-m", "optest", "replay", "latest", "--script", "out/bad.py")
    why = "backend mine cannot write scripts that run without optest"
    assert says(ended.stdout, "api.script_out_bad_py", why=why), ended.stdout + ended.stderr
    assert says((here / "out" / "bad.py").read_text(), "api.it_needs_optest_since", why=why)
    again = in_shell(here, str(here / "out" / "bad.py"), cwd="/", env=user_environment())
    index, _ = got_in(again.stdout)
    assert index == (2, 1), again.stderr
    assert "AssertionError" in again.stderr


def test_a_crash_leaves_inputs_and_expected(here: Path) -> None:
    failed_add(here, "float32", "--attr", "alpha=3")
    ended = in_shell(here, "-m", "optest", "replay", "latest", "--save", "saved")
    assert "CRASHED" in ended.stdout
    saved = re.search(r"saved: (\S+) \((.*)\)", ended.stdout)
    assert saved is not None, ended.stdout + ended.stderr
    assert saved[2] == "input0, input1, output0.expected"
    kept = load_saved(here / saved[1])
    assert (kept.actual, kept.facts["status"]) == ({}, "crashed")
    one, other = (kept.inputs[name].astype(float) for name in ("input0", "input1"))
    np.testing.assert_array_equal(kept.expected["output0"], one + 3 * other)


@pytest.mark.heavy
def test_saved_tensors_are_those_of_the_run(here: Path) -> None:
    failed_add(here, "bfloat16")
    names = "input0.bfloat16, input1.bfloat16, output0.expected, output0.actual.bfloat16, output0.error"
    for isolate in ("none", "case"):
        ended = in_shell(here, "-m", "optest", "replay", "--isolate", isolate, "--save", isolate)
        assert ended.returncode == 1, ended.stderr
        assert f"({names})" in ended.stdout
        (path,) = (here / isolate).glob("*.npz")
        saved = load_saved(path)
        exact = saved.inputs["input0"].astype(float) + saved.inputs["input1"].astype(float)
        np.testing.assert_array_equal(saved.expected["output0"], exact)
        assert saved.actual["output0"].dtype == saved.inputs["input0"].dtype
        assert np.unravel_index(saved.error["output0"].argmax(), (4, 5)) == (2, 1)
        np.testing.assert_array_equal(saved.error["output0"], np.abs(saved.actual["output0"].astype(float) - exact))


def test_saved_outputs_are_dense_and_have_their_shape(here: Path) -> None:
    """The reference of a transposed input works in its order, and an array without dimensions has none when saved."""
    strided = "{op: relu, name: strided, shapes: {input0: {shape: [3, 4], strides: [1, 5], offset: 2}}}"
    run_of(here, f"cases: [{strided}, {{op: relu, name: scalar, dtypes: bfloat16, shapes: {{input0: []}}}}]")
    replay(["strided", "scalar"], "latest", {"quiet": 2}, save_to="saved")
    with np.load(here / "saved" / "strided.npz") as saved:
        assert {*saved} == {"input0.storage", "output0.expected", "output0.actual", "output0.error", "meta"}
        assert saved["output0.expected"].shape == (3, 4)
    with np.load(here / "saved" / "scalar.npz") as saved:
        assert all(saved[name].shape == () for name in saved)
        assert {*saved} > {"output0.actual.bfloat16", "output0.error"}


def test_one_file_is_not_for_two_scripts(here: Path) -> None:
    failing(here, {name: f"op: exp, dtypes: float16, shapes: {{input0: {ord(name)}}}" for name in "ab"})
    with refusal(UsageError, "api.script_is_the_file"):
        replay(["a", "b"], "latest", {"quiet": 2}, script="x.py")


def written(tmp_path: Path, verdict: Verdict, array: np.ndarray[Any, Any], *, op: str = "relu") -> str:
    """The script of a verdict about one output that is the input itself, by a driver that can say so."""

    class Same(BackendDriver):
        name = "same"

        def run(self, case: Any, inputs: Any) -> Any: ...

        def script(self, case: Any, inputs: Any, *, may_run: bool) -> Script:
            lines = [f"out = {inputs[0].array_source}"]
            return Script(lines=lines, outputs=["out"])

    (case,) = api.cases(op="relu", dtype="float32", shape=f"input0={'x'.join(map(str, array.shape))}")
    write_archive(tmp_path / "t.npz", Archive(tensors={"input0": array}))
    replayed = Replayed(result=result_of(case, verdict), case=case, driver=Same(), tensors=tmp_path / "t.npz")
    text = script_for(replayed, tmp_path / "t.npz").text
    (tmp_path / "s.py").write_text(text)
    compile(text, "s.py", "exec")
    return text


def outcome_of(tmp_path: Path) -> str:
    """``right``, or the name of the error that the script ends with."""
    try:
        runpy.run_path(str(tmp_path / "s.py"))
    except AssertionError:
        return "AssertionError"
    return "right"


def verdict_of(array: np.ndarray[Any, Any], expected: Any, **more: Any) -> Verdict:
    base: dict[str, Any] = {"output": "out", "dtype": array.dtype.name, "shape": array.shape, "compared": array.size}
    base |= {"worst_index": (1,), "worst_expected": expected, "mismatched": 1, **more}
    return Verdict(status=Status.FAILED, reason=Reason.VALUE, measures=(Measure(**base),))


@pytest.mark.parametrize(
    ("values", "dtype", "right", "wrong", "bound"),
    [
        ([1, 2.5], "float32", 2.5, 2.75, None),
        ([1, 2.5], "float16", 2.51, 2.75, 0.1),
        ([1, -3], "int8", -3, 3, None),
        ([2**60, 2**60 + 1], "int64", 2**60 + 1, 2**60, None),
        ([True, False], "bool", False, True, None),
        ([1, np.nan], "float64", "nan", 2.0, None),
        ([1, np.inf], "float32", "inf", "-inf", 0.5),
        ([1, 3.0], "float32", 3.0, "nan", 0.5),
        ([1, 1 + 2j], "complex64", "(1+2j)", "(1-2j)", None),
        ([1, 1 + 2j], "complex64", "(1+2.001j)", "(1-2j)", 0.01),
        ([1, 1.5], "bfloat16", 1.5, 1.25, None),
    ],
)
def test_the_assertion_parts_right_from_wrong(
    values: Any, dtype: str, right: Any, wrong: Any, bound: float | None, tmp_path: Path
) -> None:
    array = np.array(values, getattr(ml_dtypes, dtype, dtype))
    written(tmp_path, verdict_of(array, right, worst_bound=bound), array)
    assert outcome_of(tmp_path) == "right"
    text = written(tmp_path, verdict_of(array, wrong, worst_bound=bound), array)
    assert outcome_of(tmp_path) == "AssertionError", text


def test_what_one_element_cannot_show_is_said(tmp_path: Path) -> None:
    array = np.array([1, 2.5], np.float32)
    whole = verdict_of(array, 2.5, mismatched=0, statistic=3.0, statistic_limit=1.25)
    text = written(tmp_path, whole, array)
    assert "assert" not in text
    assert says(text, "api.all_of_them_together")
    assert outcome_of(tmp_path) == "right"


def test_a_wrong_shape_is_asserted(tmp_path: Path) -> None:
    array = np.zeros((2, 3), np.float32)
    written(tmp_path, Verdict(status=Status.FAILED, reason=Reason.SHAPE, message="x"), array)
    assert outcome_of(tmp_path) == "right"
    text = (tmp_path / "s.py").read_text()
    assert "assert tuple(out.shape) == (2, 3), out.shape" in text
    (tmp_path / "s.py").write_text(text.replace('"float32")', '"float32").T'))
    assert outcome_of(tmp_path) == "AssertionError"


def test_foreign_words_do_not_end_the_docstring(tmp_path: Path) -> None:
    message = 'it said """ and \\ and\nimport os\x00'
    verdict = Verdict(status=Status.ERROR, reason=Reason.RAISED, message=message)
    text = written(tmp_path, verdict, np.zeros(2, np.float32))
    assert "\nimport os" not in text
    assert outcome_of(tmp_path) == "right"

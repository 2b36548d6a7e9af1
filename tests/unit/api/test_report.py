"""optest.check of functions of this process, optest.run, and the Report that both return."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import refusal, says

import optest
from optest.errors import Unavailable, UnknownName, UsageError
from optest.spec import Numerics, Reason, Status

ASKED: dict[str, Any] = {"dtype": "float32", "case_set": "ordinary"}


@pytest.fixture(autouse=True)
def _own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests of this process have imported."""
    monkeypatch.setattr("optest.api.functions._THREADED", ())


def softmax(x: Any, dim: int = -1) -> Any:
    e = np.exp(x - x.max(axis=dim, keepdims=True))
    return e / e.sum(axis=dim, keepdims=True)


def test_a_local_function_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    scale = 1.0

    def mine(x: Any, dim: int = -1) -> Any:
        return softmax(x, dim) * np.float32(scale)

    good = optest.check(mine, op="softmax", **ASKED)
    assert (good.status, good.exit_status, len(good.failed)) == ("passed", 0, 0)
    assert good
    assert len(good) == len(good.passed) == len(list(good)) > 4
    scale = 1.02
    bad = optest.check(mine, op="softmax", **ASKED)
    assert (bad.status, len(bad.failed), {each.reason for each in bad}) == ("failed", len(good), {Reason.VALUE})
    assert not bad
    assert capsys.readouterr().out == ""


def test_report_text_equals_the_terminal() -> None:
    stream = io.StringIO()
    report = optest.check(lambda x: x, op="relu", case="relu/ordinary/1*", stream=stream, **ASKED)
    text = str(report)
    assert text.strip() == stream.getvalue().strip()
    assert says(text, "api.operator_passed_gaps_expected")
    assert "FAILED  relu/ordinary/1" in text
    assert "<lambda> against numpy" in text
    assert "reproduce:" not in text  # nobody can name the function
    with pytest.raises(AssertionError, match="FAILED  relu/ordinary/1"):
        report.raise_for_failures()
    optest.check({"relu": lambda x: np.maximum(x, 0)}, **ASKED).raise_for_failures()


@pytest.mark.usefixtures("forks")
def test_crash_in_a_fork_ends_one_case() -> None:
    calls, here = [], os.getpid()

    def dies(x: Any) -> Any:
        calls.append(x)
        if x.shape == (4, 37) and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.maximum(x, 0)

    report = optest.check(dies, op="relu", **ASKED)
    assert {each.status for each in report.failed} == {Status.CRASHED}
    assert report.passed
    assert not calls


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_for_the_whole_program(number: int) -> None:
    """Half a report would look like one without failures."""
    program = os.getpid()

    def interrupts(x: Any, dim: int = -1) -> Any:
        os.kill(program, number)
        return softmax(x, dim)

    with pytest.raises(KeyboardInterrupt, match=r"journal\.jsonl"):
        optest.check(interrupts, op="softmax", **ASKED)


def test_without_forks_functions_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def mine(x: Any) -> Any:
        calls.append(x)
        return np.maximum(x, 0)

    assert optest.check(mine, op="relu", isolate="none", **ASKED)
    assert len(calls) > 4
    monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))
    assert optest.check(mine, op="relu", **ASKED)
    assert len(calls) > 9
    with refusal(UsageError, "api.isolate_is_case_but"):
        optest.check(mine, op="relu", isolate="case")


@pytest.mark.heavy
@pytest.mark.skipif(pytest.importorskip("torch") is None, reason="torch")
def test_fork_does_not_wait_for_torch_threads() -> None:
    script = """
import torch, optest
a = torch.randn(1000, 1000)
a @ a, a.softmax(-1)
def mine(x: torch.Tensor, dim=-1):
    return (a @ a).softmax(-1).sum() * 0 + torch.softmax(x, dim)
report = optest.check(mine, op="softmax", dtype="float32", case="softmax/ordinary/1*", timeout=30)
print(report.status, report.results[0].isolation)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["passed", "case"], done.stderr


def test_a_declared_kernel_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.backends.function._DECLARED", {})

    @optest.kernel("relu", ranks=(1,), numerics=Numerics(denormals="flush"))
    def mine(x: Any) -> Any:
        return np.maximum(x, 0)

    report = optest.check(mine, dtype="float32")
    assert {len(next(iter(each.shapes.values()))) for each in report.passed} == {1}
    assert {each.status for each in report} == {Status.PASSED, Status.SKIPPED}


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (softmax, {"op": ("relu", "abs")}, "op is relu, abs, expected one operator for a function"),
        (softmax, {"op": "sofmax"}, "unknown operator 'sofmax'; did you mean 'softmax'"),
        (softmax, {"jobs": 2}, "jobs is not for functions of this process"),
        (softmax, {"backend": "torch"}, "backend is not for functions of this process"),
        (softmax, {"isolate": "worker"}, "isolate is 'worker', expected auto, none or case"),
        ({"relu": 3}, {}, "the function for relu is 3, expected a callable"),
        (lambda x: x, {}, "unknown operator '<lambda>'"),
        (None, {}, "no backend is named"),
        (None, {"backend": "numpy", "numerics": Numerics()}, "numerics is for functions of this process"),
        (softmax, {"tiers": "smoke"}, "unknown option 'tiers'; did you mean 'tier'"),
        ("no_such_module:f", {}, "module 'no_such_module' does not exist"),
    ],
)
def test_a_wrong_request_is_told(function: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        optest.check(function, **options)


def test_run_takes_plain_values_of_python(tmp_path: Path) -> None:
    report = optest.run(op="sum", dtype="float32", shape={"input0": (2, 3)}, attr={"dim": 1}, tolerance={"rtol": 1e-3})
    assert [each.id for each in report] == ["sum[float32](2x3, dim=[1])"]
    assert "case: " not in str(report)
    assert "tolerance" in {each.verdict.measures[0].rule.name for each in report if each.verdict.measures[0].rule}
    plan = tmp_path / "plan.yaml"
    plan.write_text("cases: [{op: relu, dtypes: float16, shapes: {input0: 3}}, {op: abs, shapes: {input0: 2}}]\n")
    assert len(optest.run(plan, keyword="relu")) == len(optest.cases(plan, op="relu")) == 1
    with refusal(UnknownName, "api.did_you_mean_plan"):
        optest.run(plam="plan.yaml")


def test_what_did_not_run_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(x: Any) -> Any:
        raise NotImplementedError("no kernel")

    report = optest.check(lacks, op="relu", **ASKED)
    assert (report.status, report.passed, report.failed, bool(report)) == ("nothing ran", [], [], False)
    with pytest.raises(AssertionError, match="no kernel"):
        report.raise_for_failures()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Unavailable, match="pip install pandas"):
        report.to_pandas()


def test_a_table_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas: Any = types.ModuleType("pandas")
    pandas.DataFrame = list
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    (row,) = optest.run(op="relu", dtype="float32", shape={"input0": (2, 3)}).to_pandas()
    assert (row["id"], row["status"], row["shapes"]) == ("relu[float32](2x3)", "passed", {"input0": [2, 3]})

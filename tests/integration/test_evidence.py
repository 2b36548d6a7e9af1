"""Small parts of benchmarks/honest.py and faults.py, and defects for which each of them fails."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import warm_python
from texts import says

from optest.api import bootstrap
from optest.plan.expectations import Expectations
from optest.spec import Reason

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HANDFUL = (
    "add", "exp", "erf", "lt", "topk", "transpose", "sum", "matmul", "conv2d", "scatter_add", "softmax", "layer_norm",
    "prod", "quantize",
)  # fmt: skip


def script(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return warm_python.run(name, *words, cwd=BENCHMARKS, env=environment)


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bootstrap()
    return importlib.import_module(name)


def operators_of(*names: str) -> list[str]:
    return [word for name in names for word in ("--op", name)]


def test_every_float_operator_has_calls_of_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = module("width_calls", monkeypatch)
    assert len(calls.float_operators()) > 100
    monkeypatch.delitem(calls.CALLS, "erf")
    with pytest.raises(KeyError, match="erf"):
        calls.float_operators()


@pytest.mark.heavy
@pytest.mark.torch
def test_torch_raises_no_alarm_at_any_width() -> None:
    words = ("--source", "widths", "--backend", "torch", "--seeds", "2", "--jobs", "1")
    done = script("honest", *words, *operators_of(*HANDFUL))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"cases of {len(HANDFUL)} operators" in done.stdout
    assert ": 0 alarms." in done.stdout


@pytest.mark.slow
@pytest.mark.torch
def test_unexpected_difference_of_torch_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module("honest", monkeypatch)
    tasks = [honest.Task(source="widths", backend="torch", op="prod", seed=seed) for seed in range(4)]
    counts = [honest.count_of(task) for task in tasks]
    assert [count.alarms for count in counts] == [[]] * 4
    assert any(name == "prod bfloat16" for count in counts for name in count.expected)
    driver, _ = honest._prepared("torch")
    monkeypatch.setattr(honest, "_prepared", lambda _: (driver, Expectations()))
    counts = [honest.count_of(task) for task in tasks]
    alarms = [alarm for count in counts for alarm in count.alarms]
    alarm = next(alarm for alarm in alarms if "bfloat16" in alarm)
    assert says(alarm, "integration.optest_run_op_prod")
    assert alarm in honest.report(counts, 1.0)


@pytest.mark.slow
def test_wrong_results_of_widths_are_rejected() -> None:
    words = operators_of("transpose", "lt", "exp", "sum", "softmax")
    done = script("faults", "--source", "widths", "--seeds", "1", "--jobs", "1", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| widths")]
    assert [row[1] for row in rows] == ["movement", "exact", "ulp", "accumulate", "composed"]
    assert all(int(row[3]) >= 7 for row in rows)


def test_accepted_faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = module("faults", monkeypatch)
    one_ulp_more = faults.Fault("exp: one ulp more", "exp", lambda call: call.right[0] * (1 + 2.0**-23))
    nan = faults.Fault("exp: nan", "exp", lambda call: call.right[0] * float("nan"), (Reason.NAN,))
    monkeypatch.setattr(faults, "faults_of", lambda _: [one_ulp_more, nan])
    monkeypatch.setattr(faults, "FAULTS", {})
    tally = faults.tally_of(faults.Task(source="drawn", op="exp", seed=0))
    assert tally.wrong["exp: nan"] == tally.rejected["exp: nan"] == faults.DRAWS
    assert tally.rejected["exp: one ulp more"] < tally.wrong["exp: one ulp more"]
    assert tally.missed() == ["exp: one ulp more"]
    assert len(faults.failures([tally])) == 1
    monkeypatch.setattr(faults, "FAULTS", {nan.name: nan})
    missed = faults.Tally(task=faults.Task(source="check", op="exp", seed=0), wrong=faults.Counter({nan.name: 1}))
    assert any(nan.name in line for line in faults.failures([missed]))


@pytest.mark.heavy
def test_honest_backend_raises_no_alarm() -> None:
    """Run as a program: its processes are spawned, and import the main module."""
    words = ("--source", "check", "--backend", "numpy-single", "--seeds", "1", "--jobs", "2")
    command = [sys.executable, str(BENCHMARKS / "honest.py"), *words]
    command += operators_of("exp", "sum", "layer_norm", "gemm")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": 0 alarms." in done.stdout

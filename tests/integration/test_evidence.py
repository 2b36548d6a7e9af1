"""Small parts of benchmarks/widths.py, wrong_variants.py and honest.py, and what makes each of them fail."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import warm_python
from texts import says

from optest.api import bootstrap
from optest.plan.expectations import Expectations

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


def test_every_operator_that_takes_floats_has_calls_of_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = module("width_calls", monkeypatch)
    assert len(calls.float_operators()) > 100
    monkeypatch.delitem(calls.CALLS, "erf")
    with pytest.raises(KeyError, match="erf"):
        calls.float_operators()


@pytest.mark.heavy
@pytest.mark.torch
def test_torch_raises_no_alarm_at_any_width() -> None:
    done = script("widths", "--seeds", "2", "--jobs", "1", *(word for op in HANDFUL for word in ("--op", op)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"cases of {len(HANDFUL)} operators at widths 1, 17, 4,096, 65,536 with 2 seeds" in done.stdout
    assert ": 0 alarms." in done.stdout


@pytest.mark.slow
@pytest.mark.torch
def test_what_is_not_expected_of_torch_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = module("widths", monkeypatch)
    task = widths.Task(op="prod", dtype="bfloat16", width=4096, seeds=(0, 4))
    assert widths.count_of(task).alarm_count == 0
    driver, _ = widths.honest_backend()
    monkeypatch.setitem(widths._known, os.getpid(), (driver, Expectations()))
    count = widths.count_of(task)
    assert count.alarm_count > 0
    assert says(count.alarms[0][1], "integration.optest_run_op_prod")
    assert "prod bfloat16 at 4,096" in widths.report([count], 1.0)


@pytest.mark.slow
def test_wrong_variants_are_rejected_but_for_a_reason() -> None:
    done = script("wrong_variants", "--seeds", "1", "--width", "17", "--width", "4096", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    classes = [line for line in done.stdout.splitlines() if line.startswith("| ") and line.count("|") == 7]
    assert [line.split(" | ")[0] for line in classes[1:]] == [
        "| movement",
        "| exact",
        "| ulp",
        "| accumulate",
        "| composed",
        "| alternatives",
    ]
    assert all(int(line.split(" | ")[1]) >= 8 for line in classes[1:])


def test_a_variant_that_passes_without_a_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = module("wrong_variants", monkeypatch)

    def one_ulp_more(call: Any) -> Any:
        return call.right[0] * (1 + 2.0**-23)

    def table_of(below: str) -> Any:
        return lambda: [wrong.Variant(kind="ulp", op="exp", name="one ulp more", change=one_ulp_more, below=below)]

    monkeypatch.setattr(wrong, "variants", table_of(""))
    told = wrong.tally(0, 1, [17])
    assert told.asked["float32"] == 1
    assert (told.rejected["float32"], told.is_sound) == (0, False)
    monkeypatch.setattr(wrong, "variants", table_of("within the 3 ulp of the rule"))
    assert wrong.tally(0, 1, [17]).is_sound


@pytest.mark.heavy
def test_an_honest_backend_raises_no_alarm() -> None:
    """As a program of its own: its processes are spawned, and import what is called ``__main__`` here."""
    words = ("--op", "exp", "--op", "sum", "--op", "layer_norm", "--op", "gemm", "--cases", "600", "--jobs", "1")
    command = [sys.executable, str(BENCHMARKS / "honest.py"), "--backend", "numpy-single", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": 0 alarms." in done.stdout

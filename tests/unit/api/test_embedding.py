"""optest inside another program: cases, TestRunner, run."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from texts import refusal, says

import optest
from optest.api import RunOptions, bootstrap, cases, run
from optest.cli import main
from optest.core.runner import TestRunner
from optest.core.worker_process import WorkerProcess
from optest.errors import UnknownName, UsageError
from optest.spec import CaseResult, Status
from optest.store import RunDirectory

MATMUL = {"op": "matmul", "dtype": "float16", "shape": ("input0=8x9", "input1=9x7")}


def test_the_runner_of_the_seed() -> None:
    heard: list[tuple[CaseResult, int, int]] = []
    runner = TestRunner(seed=5, fail_fast=True)
    (result,) = runner.run(cases(**MATMUL), on_result=lambda *given: heard.append(given))
    assert (result.status, result.seed) == (Status.PASSED, 5)
    assert [(each.id, index, total) for each, index, total in heard] == [("matmul[float16](8x9, 9x7)", 0, 1)]
    assert TestRunner(seed=6).run(cases(**MATMUL))[0].key != result.key


def test_the_command_line_as_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    before = os._exit
    bootstrap()  # harmless twice
    bootstrap()
    assert main(["list", "operators", "--op", "relu"]) == 0
    assert capsys.readouterr().out.startswith("relu ")
    assert main(["run", "--op", "rleu"]) == 2
    assert says(capsys.readouterr().err, "api.did_you_mean_relu")
    assert os._exit is before


def test_public_names_can_be_completed() -> None:
    assert {"check", "kernel", "run", "testing"} <= set(dir(optest))
    assert "TYPE_CHECKING" not in dir(optest)
    assert all(hasattr(optest, name) for name in dir(optest))


def test_run_gives_summary_results_and_folder(tmp_path: Path) -> None:
    with redirect_stdout(io.StringIO()):
        outcome = run(**MATMUL, runs_dir=str(tmp_path / "runs"), quiet=2)
    assert (outcome.exit_status, outcome.summary.by_status) == (0, {"passed": 1})
    assert outcome.directory.journal_path.exists()


def test_a_run_that_cannot_begin_leaves_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would live as long as the program, which then hears of it by a warning in some other place."""
    workers: list[WorkerProcess] = []
    start = WorkerProcess.start

    def started(worker: WorkerProcess) -> None:
        workers.append(worker)
        start(worker)
        assert worker._running is not None

    def full(*_: object) -> None:
        raise UsageError("no space left on device")

    monkeypatch.setattr(WorkerProcess, "start", started)
    monkeypatch.setattr(RunDirectory, "write_info", full)
    with pytest.raises(UsageError, match="no space left"):
        run(**MATMUL, runs_dir=str(tmp_path / "runs"), isolate="worker")
    assert [each._running for each in workers] == [None]


def test_unknown_options_have_a_suggestion() -> None:
    with refusal(UnknownName, "api.did_you_mean_backend"):
        cases(bakend="numpy", **MATMUL)
    with pytest.raises(UsageError, match="nothing to run"):
        cases()


def test_options_may_be_put_together_before() -> None:
    options = RunOptions(plan="plan.yaml", op="relu")
    assert dict(options) == {"plan": "plan.yaml", "op": ("relu",)}
    with refusal(UnknownName, "api.did_you_mean_plan"):
        RunOptions(plam="plan.yaml")


def test_shapes_and_attributes_may_be_mappings() -> None:
    (case,) = cases(op="sum", dtype="float32", shape={"input0": [2, 3]}, attr={"dim": 1})
    assert (case.inputs[0].spec.shape, case.attributes["dim"]) == ((2, 3), (1,))

"""Figures per model: a case that shares an execution counts for its own model, passed or failed, never as skipped."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from optest.reporting import make_reporter
from optest.reporting.tally import Tally, model_of
from optest.spec import CaseResult, Reason, RunInfo, RunSummary, Status

Make = Callable[..., CaseResult]


@pytest.fixture
def results(result: Make) -> list[CaseResult]:
    def of(model: str, name: str, **more: Any) -> CaseResult:
        return result(id=f"{model}::{name}", tags=(f"model_{model}",), operator=f"torch.{name}", key=name, **more)

    return [
        of("gpt", "add"),
        of("llama", "add", duplicate_of="gpt::add"),
        of("gpt", "mul", reason=Reason.VALUE, message="off"),
        of("llama", "mul", reason=Reason.VALUE, message="off", duplicate_of="gpt::mul"),
        of("llama", "sin", status=Status.SKIPPED, message="left out"),
        result(id="a::b"),
    ]


def test_only_cases_of_model_files_have_a_model(results: list[CaseResult]) -> None:
    assert [model_of(each) for each in results] == ["gpt", "llama", "gpt", "llama", "llama", ""]


def test_shared_executions_are_counted_apart(results: list[CaseResult]) -> None:
    tally = Tally()
    for each in results:
        tally.add(each)
    figures = {
        name: (each.executed, each.shared, each.pass_rate, each.bad, len(each.operators))
        for name, each in tally.models.items()
    }
    assert figures == {"gpt": (2, 0, 0.5, 1, 2), "llama": (0, 2, 0.5, 1, 3)}


def test_a_model_of_which_nothing_ran_has_no_pass_rate(result: Make) -> None:
    tally = Tally()
    tally.add(result(id="gpt::a", tags=("model_gpt",), status=Status.SKIPPED, message="no device"))
    assert tally.models["gpt"].pass_rate is None


def test_the_terminal_has_a_line_for_each_model(results: list[CaseResult]) -> None:
    stream = io.StringIO()
    reporter = make_reporter("terminal", stream=stream, color=False)
    info = RunInfo(run_id="r", started_at="now", total=len(results), target="torch:cpu", seed=7)
    reporter.on_start(info)
    for index, each in enumerate(results):
        reporter.on_case_result(each, index, len(results))
    reporter.on_complete(RunSummary.of(results, total=len(results), duration_s=1.0), results)
    rows = [
        line.split() for line in stream.getvalue().splitlines() if line.strip().startswith(("model ", "gpt ", "llama "))
    ]
    assert rows == [
        ["model", "operators", "signatures", "executed", "shared", "passed", "failed", "skipped", "pass", "rate"],
        ["gpt", "2", "2", "2", "0", "1", "1", "-", "50.0%"],
        ["llama", "3", "3", "0", "2", "1", "1", "1", "50.0%"],
    ]


def test_a_run_without_models_has_no_such_table(result: Make) -> None:
    stream = io.StringIO()
    reporter = make_reporter("terminal", stream=stream, color=False, verbosity=1)
    reporter.on_start(RunInfo(run_id="r", started_at="now", total=1, target="torch:cpu", seed=7))
    reporter.on_case_result(result(), 0, 1)
    reporter.on_complete(RunSummary.of([result()], total=1, duration_s=1.0), [result()])
    assert "pass rate" not in stream.getvalue()

"""Figures per model: a case that shares an execution counts for its own model, passed or failed, never as skipped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from reporting_kit import report_run, run_info, summary_of
from texts import says

from optest.reporting import make_reporter
from optest.reporting.json_report import report_text
from optest.reporting.markdown import markdown_text
from optest.reporting.tally import Tally, model_of
from optest.spec import CaseResult, Reason, RunInfo, Status, Timings

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
    tally = tally_of(results)
    figures = {
        name: (each.executed, each.shared, each.pass_rate, each.bad, len(each.operators))
        for name, each in tally.models.items()
    }
    assert figures == {"gpt": (2, 0, 0.5, 1, 2), "llama": (0, 2, 0.5, 1, 3)}


def test_invalid_cases_are_neither_executed_nor_covered(result: Make) -> None:
    wrong = {"tags": ("model_gpt",), "reason": Reason.BAD_CASE, "message": "no such position"}
    before = result(id="gpt::before", operator="torch.gather", timings=Timings(), **wrong)
    same = result(id="gpt::same", operator="torch.gather", timings=Timings(), duplicate_of="gpt::before", **wrong)
    refused = result(id="gpt::refused", operator="torch.add", timings=Timings(reference_s=0.007), **wrong)
    tally = tally_of((before, same, refused))
    assert (tally.all.executed, tally.all.shared, tally.all.pass_rate, tally.all.bad) == (1, 0, 0.0, 3)
    assert says(shown([before, same, refused], options=DECLARED), "reporting.of_the_operators_that")


def test_skipped_model_has_no_pass_rate(result: Make) -> None:
    skipped = result(id="gpt::a", tags=("model_gpt",), status=Status.SKIPPED, message="no device")
    assert tally_of([skipped]).models["gpt"].pass_rate is None


def shown(results: list[CaseResult], **more: Any) -> list[str]:
    reporter = make_reporter("terminal", stream=(stream := io.StringIO()), color=False)
    report_run(reporter, info_of(results, **more), results, duration_s=1.0)
    return stream.getvalue().splitlines()


def info_of(results: list[CaseResult], **more: Any) -> RunInfo:
    return run_info(total=len(results), directory="", **more)


def tally_of(results: Iterable[CaseResult]) -> Tally:
    tally = Tally()
    for each in results:
        tally.add(each)
    return tally


def test_the_terminal_has_a_line_for_each_model(results: list[CaseResult]) -> None:
    rows = [" ".join(line.split()) for line in shown(results) if line.strip().startswith(("model ", "gpt ", "llama "))]
    assert rows == [
        "model operators signatures executed shared passed failed skipped pass rate time",
        "gpt 2 2 2 0 1 1 - 50.0% 2.4 ms",
        "llama 3 3 0 2 1 1 1 50.0% -",
    ]


def test_terminal_has_operator_rows_and_total(results: list[CaseResult]) -> None:
    lines = shown(results)
    rows = [line.split() for line in lines if line.strip().startswith(("operator ", "torch."))]
    assert rows == [
        ["operator", "signatures", "executed", "shared", "passed", "failed", "skipped", "pass", "rate", "time"],
        ["torch.mul", "1", "1", "1", "-", "2", "-", "0.0%", "1.2", "ms"],
        ["torch.sin", "1", "0", "0", "-", "-", "1", "-", "-"],
        ["torch.add", "1", "1", "1", "2", "-", "-", "100.0%", "1.2", "ms"],
    ]
    ran = "5 of 6 cases ran (not run: 1 skipped)"
    assert says(lines, "reporting.executed_shared_operators_signatures", ran=ran)


DECLARED = {"operators_declared": {"count": 8, "others": ["matmul"]}}


def test_coverage_of_declared_operators(results: list[CaseResult]) -> None:
    """A skipped operator is not covered, and one that the backend does not declare covers nothing."""
    assert not any("declares" in line for line in shown(results))
    assert says(shown(results, options=DECLARED), "reporting.of_the_operators_that_the")


def test_reports_hold_the_same_figures(results: list[CaseResult]) -> None:
    info, summary = info_of(results, options=DECLARED), summary_of(results)
    figures = json.loads(report_text(info, results, summary))["summary"]["figures"]
    assert (figures["executed"], figures["shared"], figures["operators"], figures["signatures"]) == (3, 2, 4, 4)
    assert (figures["operators_declared"], figures["operators_declared_covered"]) == (8, 2)
    llama, mul = figures["by_model"]["llama"], figures["by_operator"]["torch.mul"]
    assert (llama["executed"], llama["shared"], llama["pass_rate"]) == (0, 2, 0.5)
    assert (mul["by_status"], mul["pass_rate"]) == ({"failed": 2}, 0.0)
    text = markdown_text(info, results, summary)
    assert "| gpt | 2 | 2 | 2 | 0 | 1 | 1 | - | 50.0% | 2.4 ms |" in text
    assert "| torch.mul | 1 | 1 | 1 | - | 2 | - | 0.0% | 1.2 ms |" in text
    assert "3 executed, 2 shared" in text
    assert "2 of the 8 operators" in text


def test_two_files_of_model_have_two_rows(result: Make) -> None:
    def of(*places: str) -> list[str]:
        return list(tally_of(result(id="gpt::a", tags=("model_gpt",), where=f"{at}:3") for at in places).models)

    assert of("m/full.yaml", "m/full.yaml") == ["gpt"]
    assert of("m/full.yaml", "m/relaxed.yaml") == ["gpt (full.yaml)", "gpt (relaxed.yaml)"]
    assert of("m/gpt.yaml", "n/gpt.yaml") == ["gpt (m/gpt.yaml)", "gpt (n/gpt.yaml)"]


def test_pass_rate_has_count_of_not_run(result: Make) -> None:
    model = {"tags": ("model_gpt",), "operator": "torch.linear"}
    large = {"status": Status.SKIPPED, "reason": Reason.UNSUPPORTED, "message": "too large: it needs 9 GiB", **model}
    wrong = {"status": Status.XFAILED, "reason": Reason.BAD_CASE, "message": "no such position", **model}
    results = [result(id="gpt::a", **model), result(id="gpt::b", **large), result(id="gpt::c", **wrong)]
    tally = tally_of(results)
    assert tally.all.pass_rate == 1.0
    assert dict(tally.all.not_run) == {"too large": 1, "known wrong data": 1}
    lines = shown(results)
    assert any("1 of 3 cases ran (not run: 1 too large, 1 known wrong data)" in line for line in lines)

"""Annotations for GitHub: one line each, whatever stands in it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from reporting_kit import report_run, run_info, summary_of
from texts import says_exactly

from optest.reporting import make_reporter
from optest.reporting.annotations import annotations_text
from optest.reporting.explain import explain
from optest.spec import CaseResult, Reason, Status

Make = Callable[..., CaseResult]
INFO = run_info(run_id="r1")


def lines_of(results: list[CaseResult]) -> list[str]:
    return annotations_text(INFO, results, summary_of(results)).splitlines()


def test_failing_cases_are_annotated_with_file_and_line(result: Make) -> None:
    failure = result(id="a, b: 100%", reason=Reason.VALUE, message="why", where="plans/p.yaml:7")
    (line,) = lines_of([result(), failure, result(status=Status.XFAILED, message="x")])
    head, block = line.removeprefix("::").split("::", 1)
    assert says_exactly(head, "reporting.error_file_plans_yaml")
    assert block.replace("%0A", "\n").replace("%25", "%").split("\n") == explain(failure)


def test_title_escapes_bidirectional_controls(result: Make) -> None:
    (line,) = lines_of([result(id="a\u202eb", reason=Reason.VALUE, message="why")])
    assert "title=FAILED VALUE%3A a\\u202eb::" in line
    assert "\u202e" not in line


def test_a_case_without_a_line_has_none(result: Make) -> None:
    (line,) = lines_of([result(status=Status.SUSPECT, message="why", where="command line")])
    assert line.startswith("::error title=SUSPECT%3A matmul")


def test_annotations_beyond_limit_are_counted(result: Make) -> None:
    lines = lines_of([result(id=str(place), reason=Reason.VALUE, message="x") for place in range(12)])
    assert len(lines) == 10
    assert says_exactly(lines[-1], "reporting.error_title_optest_and")


def test_they_are_printed(result: Make, capsys: pytest.CaptureFixture[str]) -> None:
    report_run(make_reporter("github", stream=io.StringIO()), INFO, [result(reason=Reason.VALUE, message="x")])
    assert capsys.readouterr().out.startswith("::error title=FAILED VALUE")

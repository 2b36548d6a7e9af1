"""The JSON report and its schema, reports made from a journal, and reporters that misbehave."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import operator
import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from reporting_kit import report_run, run_info, summary_of, write_journal
from texts import refusal, says

from optest.errors import InternalError, UnknownName, UsageError
from optest.reporting import Reporter, ReportManager, make_reporter, report_from_journal, reporters
from optest.reporting import schema as report_schema
from optest.reporting.explain import Explanation
from optest.reporting.json_report import build_report, report_text
from optest.reporting.schema import REPORT_SCHEMA, require_fit
from optest.reporting.terminal import TerminalReporter
from optest.spec import CaseResult, Measure, Reason, RunInfo, RunSummary, Status, Timings, Verdict
from optest.store import Journal, read_journal

Make = Callable[..., Any]
INFO = run_info(directory="runs/20260131T000000Z-ab", versions={"numpy": "2"}, host={"cores": 2})


@pytest.fixture
def results(result: Make, measure: Make) -> list[CaseResult]:
    wrong = measure(
        mismatched=1, worst_index=(0, 0), worst_actual=math.nan, worst_expected=math.inf, worst_used=math.inf
    )
    strange = {"attributes": {"high": math.inf, "$float": "x"}, "details": {"x": math.nan}}
    return [
        result(tags=("a",)),
        result(reason=Reason.NAN, measures=(wrong,), **strange),
        result(operator="cast", id="cast", reason=Reason.UNSUPPORTED, message="no float8", chip="a100"),
    ]


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_report_fits_schema_of_two_validators(results: list[CaseResult]) -> None:
    jsonschema.Draft202012Validator.check_schema(REPORT_SCHEMA)
    report = strict(report_text(INFO, results, summary_of(results)))
    jsonschema.Draft202012Validator(REPORT_SCHEMA).validate(report)
    require_fit(report)
    assert report == build_report(INFO, results, summary_of(results))


def test_what_the_report_says(results: list[CaseResult]) -> None:
    report = build_report(INFO, results, summary_of(results))
    assert report["schema_version"] == 1
    assert report["run"]["id"] == "20260131T000000Z-ab"
    figures = report["summary"].pop("figures")
    assert report["summary"] == {
        "total": 3,
        "finished": 3,
        "interrupted": False,
        "exit_status": 1,
        "duration_s": 1.5,
        "by_status": {"passed": 1, "failed": 1, "skipped": 1},
        "by_reason": {"NAN": 1, "UNSUPPORTED": 1},
        "by_operator": {"matmul": {"passed": 1, "failed": 1}, "cast": {"skipped": 1}},
        "notes": [],
    }
    assert (figures["executed"], figures["shared"], figures["pass_rate"]) == (2, 0, 0.5)
    assert figures["by_operator"]["matmul"]["by_status"] == {"passed": 1, "failed": 1}
    passed, failed, skipped = report["cases"]
    assert (passed["status"], passed["reason"], passed["evidence"], passed["seed"]) == ("passed", None, "measured", 7)
    assert passed["tolerance"] == "float16 in, float32 accumulate, k=128"
    assert passed["shapes"] == {"input0": [64, 128], "input1": [128, 32]}
    phases = {"generate_s": 0.0001, "reference_s": 0.0002, "run_s": 0.0008, "compare_s": 0.0001}
    assert passed["timings"] == {**phases, "compile_s": None}
    assert passed["tags"] == ["a"]
    assert failed["measures"][0]["worst_actual"] == "nan"
    assert failed["measures"][0]["worst_used"] == "inf"
    assert failed["attributes"] == {"high": {"$float": "inf"}, "$$float": "x"}
    assert failed["details"] == {"x": {"$float": "nan"}}
    assert failed["explanation"]["same_cause"] == failed["id"]
    assert passed["explanation"] is skipped["explanation"] is None
    assert (skipped["reason"], skipped["message"], skipped["chip"]) == ("UNSUPPORTED", "no float8", "a100")


def test_nothing_of_a_result_is_left_out() -> None:
    """A field that is added to the vocabulary is added to the report, or named here."""

    def fields(noun: Any) -> set[str]:
        return {field.name for field in dataclasses.fields(noun)}

    case = set(report_schema.CaseEntry.__struct_fields__)
    added = {"tolerance", "layouts", "explanation"}
    assert case == (fields(CaseResult) | fields(Verdict) | added) - {"verdict", "case"}
    assert set(report_schema.ExplanationEntry.__struct_fields__) == fields(Explanation) | {"same_cause"}
    assert set(report_schema.MeasureEntry.__struct_fields__) == fields(Measure)
    assert set(report_schema.TimingsEntry.__struct_fields__) == fields(Timings)
    kept = fields(RunInfo) - {"run_id", "total", "fingerprint"}
    assert set(report_schema.RunEntry.__struct_fields__) == kept | {"id"}
    assert set(report_schema.SummaryEntry.__struct_fields__) == fields(RunSummary) | {"by_operator", "figures"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema_version", 2),
        ("news", 1),
        ("run.news", 1),
        ("cases.0.news", 1),
        ("cases.0.status", "good"),
        ("cases.0.reason", "VALU"),
        ("cases.0.seed", "7"),
        ("cases.0.seed", 7.5),
        ("cases.0.attempts", -1),
        ("cases.0.measures.0.shape", [-1]),
        ("cases.0.measures.0.worst_used", "huge"),
        ("cases.0.measures.0.rule", {"name": "x"}),
        ("cases.0.timings.run_s", "fast"),
        ("cases.0.id", KeyError),
        ("summary.duration_s", -1.0),
        ("summary.by_status", {"passed": "1"}),
    ],
)
def test_both_judges_refuse_the_same(path: str, value: Any, results: list[CaseResult]) -> None:
    report = build_report(INFO, results, summary_of(results))
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place: Any = reduce(operator.getitem, way, report)
    place[last] = value
    if value is KeyError:
        del place[last]
    with refusal(InternalError, "reporting.report_does_not_fit"):
        require_fit(report)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(REPORT_SCHEMA).validate(report)


def test_json_reporter_writes_file_and_prints_path(results: list[CaseResult], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    manager = ReportManager([make_reporter("json", path=path, stream=(stream := io.StringIO()))])
    manager.start(INFO)
    for index, each in enumerate(results):
        manager.handle_result(each, index, 3)
    assert os.listdir(tmp_path) == []
    manager.complete(summary_of(results))
    assert manager.failures == ()
    assert stream.getvalue() == f"report: {path}\n"
    assert path.read_text() == report_text(INFO, results, summary_of(results))


def test_the_json_report_has_a_default_path(
    results: list[CaseResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reporter = make_reporter("json", stream=io.StringIO())
    reporter.on_start(INFO)
    reporter.on_complete(summary_of(results), results)
    assert os.listdir(tmp_path) == ["optest_report_20260131_235958.json"]


def test_unwritable_path_is_refused_before_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be written: (Not a directory|File exists)"):
        make_reporter("json", path=Path(__file__) / "r.json")
    with refusal(UnknownName, "reporting.did_you_mean_json"):
        make_reporter("jsn")


def test_reporters_of_installed_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import optest.reporting

    group = []

    def points(name: str) -> list[tuple[str, str]]:
        group.append(name)
        return [("mine", "optest.reporting.terminal:make")]

    monkeypatch.setattr(optest.reporting, "load_entry_points", points)
    monkeypatch.setattr(reporters, "_entries", dict(reporters._entries))
    assert isinstance(make_reporter("mine"), TerminalReporter)
    assert group == ["optest.reporters"]


def test_journal_yields_reports_of_run(results: list[CaseResult], tmp_path: Path) -> None:
    summary = summary_of(results)
    write_journal(tmp_path / "j", INFO, results, summary)
    journal = read_journal(tmp_path / "j")
    report_run(TerminalReporter(live := io.StringIO(), clock=lambda: 0.0), INFO, results)
    assert report_from_journal(journal, "terminal", color=False) == live.getvalue()
    assert report_from_journal(journal, "json") == report_text(INFO, results, summary)
    with refusal(UnknownName, "reporting.unknown_report_format_jsom"):
        report_from_journal(journal, "jsom")


def test_incomplete_journal_has_reports(results: list[CaseResult]) -> None:
    killed = Journal(info=INFO, results=tuple(results[:2]), torn=True)
    text = report_from_journal(killed, color=False)
    assert says(text, "reporting.note_the_last_line")
    assert says(text, "reporting.note_the_run_did")
    assert says(text, "reporting.interrupted_passed_failed_not")
    report = strict(report_from_journal(killed, "json"))
    assert report["summary"]["duration_s"] is None
    assert report["summary"]["interrupted"] is True
    headless = Journal(results=tuple(results))
    assert "no start line" in report_from_journal(headless)
    jsonschema.Draft202012Validator(REPORT_SCHEMA).validate(strict(report_from_journal(Journal(), "json")))


class Deaf:
    """A reporter that raises at one event."""

    def __init__(self, event: str, error: BaseException) -> None:
        self.event, self.error, self.heard = event, error, list[str]()

    def _hear(self, event: str) -> None:
        self.heard.append(event)
        if event == self.event:
            raise self.error

    def on_start(self, info: RunInfo) -> None:
        self._hear("on_start")

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        self._hear("on_case_result")

    def on_complete(self, summary: RunSummary, results: Any) -> None:
        self._hear("on_complete")


@pytest.mark.parametrize("event", ["on_start", "on_case_result", "on_complete"])
def test_raising_reporter_is_removed_and_named(event: str, results: list[CaseResult]) -> None:
    deaf, well = Deaf(event, ValueError("broken")), Deaf("", ValueError())
    assert isinstance(well, Reporter)
    manager = ReportManager([deaf, well], stream=(stream := io.StringIO()))
    report_run(manager, INFO, results)
    assert well.heard == ["on_start", *["on_case_result"] * 3, "on_complete"]
    assert deaf.heard[-1] == event
    assert deaf.heard.count(event) == 1
    assert [(failure.event, failure.error) for failure in manager.failures] == [(event, "ValueError: broken")]
    assert stream.getvalue().startswith("optest: report ")
    assert stream.getvalue().endswith(f"Deaf failed in {event}: ValueError: broken\n")


def test_only_reporters_with_on_wait_receive_it() -> None:
    class Waits(Deaf):
        def on_wait(self, case: str, seconds: float, done: int, total: int) -> None:
            self._hear(f"{case} {seconds} {done}/{total}")

    with_it, without = Waits("", ValueError()), Deaf("", ValueError())
    manager = ReportManager([without, with_it])
    manager.on_wait("add/1", 11.5, 3, 9)
    assert (with_it.heard, without.heard, manager.failures) == (["add/1 11.5 3/9"], [], ())


def test_an_interrupt_is_not_a_reporters_failure() -> None:
    manager = ReportManager([Deaf("on_start", KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        manager.on_start(INFO)


def test_results_are_handed_on_at_the_end(results: list[CaseResult]) -> None:
    heard: list[Any] = []

    class Listener(Deaf):
        def on_complete(self, summary: RunSummary, results: Any) -> None:
            heard.append(results)

    manager = ReportManager([Listener("", ValueError())])
    manager.on_start(INFO)
    manager.on_case_result(results[0], 0, 3)
    manager.on_complete(summary_of(results))
    manager.on_complete(summary_of(results), results)
    assert heard == [(results[0],), results]


def test_statuses_without_reason_are_valid(result: Make) -> None:
    for status in (Status.XPASSED, Status.SUSPECT, Status.UNCHECKED, Status.SKIPPED):
        each = result(status=status, message="why")
        require_fit(build_report(INFO, [each], summary_of([each])))


def test_cases_are_in_plan_order(result: Make) -> None:
    finished = [
        result(id=name, where=f"plan.yaml:{line}", round=nth)
        for name, line, nth in (("c", 12, 0), ("again a", 4, 1), ("a", 4, 0), ("b", 9, 0))
    ]
    report = build_report(INFO, finished, summary_of(finished))
    assert [case["id"] for case in report["cases"]] == ["a", "b", "c", "again a"]

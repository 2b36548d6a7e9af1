"""The timeline of a run: cases on their devices, phases inside of them, nothing beside its time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from optest.reporting.timeline import timeline_text
from optest.spec import CaseResult, RunInfo, RunSummary, Timings


def events(results: list[CaseResult]) -> list[dict[str, Any]]:
    info = RunInfo(run_id="r", started_at="", total=len(results), target="torch:cpu", seed=0)
    summary = RunSummary.of(results, total=len(results), duration_s=1.0)
    return [each for each in json.loads(timeline_text(info, results, summary))["traceEvents"] if each["ph"] == "X"]


def test_a_case_is_on_each_of_its_devices(result: Callable[..., CaseResult]) -> None:
    timings = Timings(generate_s=0.25, run_s=1.5)
    found = events([result(id="wide", began_s=2.0, devices=(4, 6), timings=timings)])
    assert [(each["name"], each["pid"], each["ts"], each["dur"]) for each in found if each["name"] == "wide"] == [
        ("wide", 4, 2e6, 1.75e6),
        ("wide", 6, 2e6, 1.75e6),
    ]
    assert {(each["name"], each["ts"], each["dur"]) for each in found if each["pid"] == 6} >= {
        ("generate", 2e6, 0.25e6),
        ("run", 2.25e6, 1.5e6),
    }


def test_simultaneous_cases_have_separate_rows(result: Callable[..., CaseResult]) -> None:
    timings = Timings(run_s=1.0)
    begins = {"a": 0.0, "b": 0.5, "c": 1.25}
    found = events([result(id=name, began_s=at, timings=timings) for name, at in begins.items()])
    assert {each["name"]: each["tid"] for each in found if each["name"] in begins} == {"a": 0, "b": 1, "c": 0}


def test_case_without_start_is_omitted(result: Callable[..., CaseResult]) -> None:
    assert events([result(began_s=None)]) == []

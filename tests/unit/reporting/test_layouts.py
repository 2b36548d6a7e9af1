"""What a failure tells of the call that a case is: how its inputs lie, and where it was captured."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from reporting_kit import run_info

from optest.reporting.explain import explain
from optest.reporting.json_report import report_text
from optest.reporting.junit import junit_text
from optest.reporting.markdown import markdown_text
from optest.spec import CaseResult, Reason, RunSummary

Make = Callable[..., CaseResult]

CAPTURED = "modeling_gpt_oss.py:138 in forward, code: x = self.norm(x); 24 calls"
INFO = run_info(run_id="r1", total=1, directory=".")
SUMMARY = RunSummary(total=1, finished=1, by_status={"failed": 1}, duration_s=1.0, exit_status=1)


@pytest.fixture
def captured(result: Make, measure: Callable[..., Any]) -> CaseResult:
    """The wire form as a journal gives it back: lists, no tuples."""
    inputs = [
        ["input0", "input0", ["float16", [2, 3, 8], [48, 16, 1], 4], "randn", {}],
        ["input1", "input1", ["int64", [4], [0], 0], "zeros", {}],
        ["input2", "input2", ["float16", [3, 8], [8, 1], 0], "randn", {}],
        ["input3", "input3", ["float32", [5], None, 2], "randn", {}],
        ["input4", "input4", ["float32", [5]], "randn", {}],
    ]
    wrong = measure(mismatched=3, worst_index=(1, 2), worst_actual=1.0, worst_expected=2.0, worst_bound=0.1)
    return result(reason=Reason.VALUE, measures=(wrong,), description=CAPTURED, case={"inputs": inputs})


def test_failure_shows_layouts_and_captured_source(captured: CaseResult) -> None:
    lines = explain(captured)
    assert "  input0: float16 2x3x8, strides [48, 16, 1], offset 4" in lines
    assert "  input1: int64 4, strides [0]" in lines
    assert "  input3: float32 5, offset 2" in lines
    assert not any(line.startswith(("  input2", "  input4")) for line in lines)
    assert f"  description: {CAPTURED}" in lines
    off = next(place for place, line in enumerate(lines) if "3 of 2048 elements are off" in line)
    assert off < lines.index("  input1: int64 4, strides [0]")  # what is wrong comes first


def test_long_description_is_cut_with_count(result: Make) -> None:
    text = "\n".join(f"line {number}" for number in range(20)) + "\n"
    lines = explain(result(reason=Reason.RAISED, message="no", description=text))
    assert lines[lines.index("  description: line 0") :][6:8] == ["    line 6", "    … 13 more lines"]


def test_reports_in_files_have_both(captured: CaseResult) -> None:
    entry = json.loads(report_text(INFO, [captured], SUMMARY))["cases"][0]
    assert entry["description"] == CAPTURED
    assert entry["layouts"] == {
        "input0": {"strides": [48, 16, 1], "offset": 4},
        "input1": {"strides": [0], "offset": 0},
        "input3": {"strides": None, "offset": 2},
    }
    root = ElementTree.fromstring(junit_text(INFO, [captured], SUMMARY))
    properties = {each.get("name"): each.get("value") for each in root.iter("property")}
    assert properties["description"] == CAPTURED
    assert "input0=float16 2x3x8, strides [48, 16, 1], offset 4; " in properties["layouts"]
    told = root.find(".//failure")
    for text in (told.text if told is not None else "", markdown_text(INFO, [captured], SUMMARY)):
        assert "strides [48, 16, 1], offset 4" in (text or "")
        assert CAPTURED in (text or "")

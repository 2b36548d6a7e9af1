"""Runs beside each other: kinds of messages, and whether calls were answered alike."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from texts import says

from optest.reporting.csv_report import csv_cell, csv_text
from optest.reporting.side_by_side import KINDS, comparison_text, refusal_kind, rows_as_csv, side_by_side
from optest.spec import CaseResult, Evidence, Reason, RunInfo, RunSummary, Status, Verdict
from optest.store import Journal


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("NotImplementedError: later", "unsupported"),
        ("RuntimeError: index_add_(): self (Float) and source (Double) must have the same scalar type", "dtype"),
        ("IndexError: index 5 is out of bounds for dimension 0 with size 4", "index"),
        ("IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)", "dimension"),
        ("ValueError: axis 2 is out of bounds for array of dimension 2", "dimension"),
        ("RuntimeError: The size of tensor a (4) must match the size of tensor b (5)", "shape"),
        ("RuntimeError: at src/core/shape_inference/pad.hpp:7: Check 'a::shape' failed", "other"),
        ("RuntimeError: slice step must be positive", "attribute"),
        ("KeyError: 7", "other"),
    ],
)
def test_kinds(message: str, kind: str) -> None:
    assert refusal_kind(message) == kind
    assert kind in {*KINDS, "other"}


def refused(message: str) -> Verdict:
    return Verdict(status=Status.PASSED, evidence=Evidence.RAISED_AS_EXPECTED, message=f"refused: {message}")


PASSED = Verdict(status=Status.PASSED, evidence=Evidence.SPECS_COMPARED)
ACCEPTED = Verdict(status=Status.FAILED, reason=Reason.NOT_REFUSED)
GAP = Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED)


def journal(target: str, **verdicts: Verdict) -> Journal:
    info = RunInfo(run_id=f"run-{target}", started_at="", total=len(verdicts), target=target, seed=0, directory="")
    result = CaseResult(
        id="", key="", operator="add", target=target, reference="numpy", mode="validation", verdict=PASSED, seed=0
    )
    return Journal(info=info, results=tuple(replace(result, id=name, verdict=each) for name, each in verdicts.items()))


def test_each_consistency() -> None:
    one = journal(
        "a", alike=refused("X: shape"), words=refused("X: shape"), no=refused("X: shape"), only=PASSED, gap=GAP
    )
    other = journal("b", alike=refused("Y: size"), words=refused("Y: dtype"), no=ACCEPTED, gap=PASSED)
    table = side_by_side([one, other])
    assert table.rows == (
        ("alike", "refused: shape", "refused: shape", "yes"),
        ("words", "refused: shape", "refused: dtype", "other kind"),
        ("no", "refused: shape", "failed NOT_REFUSED", "no"),
        ("only", "passed", "n/a", "n/a"),
        ("gap", "n/a", "passed", "n/a"),
    )
    assert table.differs
    assert not side_by_side([one, one]).differs
    text = comparison_text(table, verbose=False)
    assert [line.split()[0] for line in text.splitlines()] == ["call", "no", "words", "5"]
    assert says(text, "reporting.alike_refused_with_another")
    assert "alike  " in comparison_text(table, verbose=True)
    assert rows_as_csv(table).splitlines()[:2] == ["call,a,b,consistent", "alike,refused: shape,refused: shape,yes"]


def test_runs_of_one_target_have_run_ids() -> None:
    one = journal("a", call=PASSED)
    assert side_by_side([one, one]).targets == ("a (run-a)", "a (run-a)")


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+1", "-cmd", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1"])
def test_csv_cells_have_no_formulas_or_controls(text: str) -> None:
    of_run = journal(f"{text}\x1b[2J", **{text: PASSED})
    assert of_run.info is not None
    summary = RunSummary.of(of_run.results, total=1, duration_s=1.0)
    report = csv_text(of_run.info, of_run.results, summary)
    for lines in (report, rows_as_csv(side_by_side([of_run, of_run]))):
        cells = [cell for row in csv.reader(io.StringIO(lines)) for cell in row]
        assert not [cell for cell in cells if cell.strip()[:1] in tuple("=+-@＝")]
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", lines)


@pytest.mark.parametrize("value", ["-1.5", "+3", "-1e-07", -1.5, None, "relu[float32](4)"])
def test_numbers_stay_numbers_in_csv(value: str | float | None) -> None:
    assert csv_cell(value) == value

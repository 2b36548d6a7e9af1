"""Runs beside each other: kinds of messages, and whether calls were answered alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optest.reporting.side_by_side import KINDS, refusal_kind, rows_as_csv, side_by_side, text_of
from optest.spec import CaseResult, Evidence, Reason, RunInfo, Status, Verdict
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
    text = text_of(table, verbose=False)
    assert [line.split()[0] for line in text.splitlines()] == ["call", "no", "words", "5"]
    assert "1 alike, 1 refused with another kind of message, 1 not alike, 2 answered by fewer than two" in text
    assert "alike  " in text_of(table, verbose=True)
    assert rows_as_csv(table).splitlines()[:2] == ["call,a,b,consistent", "alike,refused: shape,refused: shape,yes"]


def test_two_runs_of_one_target_are_told_apart() -> None:
    one = journal("a", call=PASSED)
    assert side_by_side([one, one]).targets == ("a (run-a)", "a (run-a)")

"""Since when a case fails, when it was well last, whether it wavers; errors of operators over runs."""

from __future__ import annotations

from typing import Any

import pytest

from optest.reporting.history import CaseHistory, history_data, history_lines, history_of
from optest.spec import RunInfo, Status
from optest.store import KeptResult, KeptRun

P, F, S = Status.PASSED, Status.FAILED, Status.SKIPPED


def result(
    status: Status, name: str = "a", key: str = "k1", used: float | None = None, seconds: float | None = None
) -> KeptResult:
    return KeptResult(id=name, key=key, operator="relu", status=status, used=used, seconds=seconds)


def info(number: int, **changes: Any) -> RunInfo:
    stated = {"run_id": f"r{number}", "started_at": str(number), "target": "t", "total": 1, "seed": 0}
    return RunInfo(**{**stated, **changes})


def runs(*statuses: Status | KeptResult | None, same: bool = False) -> list[KeptRun]:
    made = []
    for number, each in enumerate(statuses, 1):
        kept = result(each) if isinstance(each, Status) else each
        results = {} if kept is None else {kept.id: [kept]}
        prints = {"plan": "same" if same else f"p{number}"}
        made.append(KeptRun(info=info(number, fingerprint=prints), results=results))
    return made


def only(*statuses: Status | KeptResult | None, same: bool = False) -> CaseHistory:
    (case,) = history_of(runs(*statuses, same=same)).cases
    return case


@pytest.mark.parametrize(
    ("statuses", "first_bad", "last_good", "is_flaky"),
    [
        ((P, P), "", "r2", False),
        ((F, F), "r1", "", False),
        ((P, F, F), "r2", "r1", False),
        ((P, S, F), "r3", "r1", False),
        ((F, P), "", "r2", False),
        ((P, F, P, F), "r4", "r3", True),
        ((S, S), "", "", False),
        ((P, None, F), "r3", "r1", False),
    ],
)
def test_since_when(statuses: tuple[Status | None, ...], first_bad: str, last_good: str, is_flaky: bool) -> None:
    found = only(*statuses)
    assert (found.first_bad, found.last_good, found.is_flaky) == (first_bad, last_good, is_flaky)


def test_a_turn_while_nothing_changed_is_flaky() -> None:
    assert only(P, F, same=True).is_flaky


def test_what_computed_something_else_does_not_count() -> None:
    found = only(result(P, key="other"), result(F))
    assert (found.runs, found.first_bad, found.last_good) == (1, "r2", "")


def test_times() -> None:
    found = only(*(result(P, seconds=seconds) for seconds in (1.0, 9.0, 2.0, 4.0)))
    assert (found.seconds, found.usual_s) == (4.0, 2.0)


def test_targets_are_kept_apart_and_cases_chosen() -> None:
    first, second = runs(F, P)
    other = KeptRun(info=info(9, target="gpu"), results={"b/1": [result(F, "b/1")]})
    found = history_of([first, second, other])
    assert [(each.target, each.case, each.first_bad) for each in found.cases] == [("t", "a", ""), ("gpu", "b/1", "r9")]
    assert [each.case for each in history_of([first, second, other], ["b/1"]).cases] == ["b/1"]


def test_errors_are_those_of_what_passed() -> None:
    found = history_of(runs(result(P, used=0.5), result(F, used=40.0), result(P, used=0.25)))
    assert found.errors == {("relu", "t"): {"r1": 0.5, "r3": 0.25}}
    assert history_of(runs(result(P, used=0.5)), ["other"]).errors == {}
    lines = history_lines(found, verbose=False)
    assert lines[-1].split() == ["relu", "t", "0.5", "0.25", "0.5", "0.25"]


def test_lines_show_what_is_not_well() -> None:
    lines = history_lines(history_of(runs(P, F)), verbose=False)
    assert lines[:2] == ["2 runs: 2 of t", "1 case: 1 failing, 0 flaky"]
    assert lines[4].split() == ["a", "t", "failed", "r2", "r1", "-", "2", "-", "-"]
    well = history_of(runs(P, P))
    assert not any(line.startswith("  a ") for line in history_lines(well, verbose=False))
    assert any(line.startswith("  a ") for line in history_lines(well, verbose=True))


def test_data() -> None:
    data = history_data(history_of(runs(P, result(F, used=2.0))))
    assert [each["id"] for each in data["runs"]] == ["r1", "r2"]
    assert (data["cases"][0]["first_bad"], data["cases"][0]["is_flaky"]) == ("r2", False)

"""What became of a case over several runs, each kind told apart from those beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from reporting_kit import run_info, summary_of
from texts import says, says_exactly

from optest.reporting.trend import Kind, Trend, trend_data, trend_lines, trend_of
from optest.spec import Benchmark, CaseResult, Reason, Status, Timings, Verdict
from optest.spec.benchmark import CallTime
from optest.store import Journal

Make = Callable[..., CaseResult]
P, F, S = "passed", "failed", "skipped"


def journal(number: int, results: list[CaseResult], *, missing: int = 0, **changes: Any) -> Journal:
    times = {"run_id": f"r{number}", "started_at": f"2026-01-0{number}T00:00:00Z", "total": len(results)}
    info = run_info(**{**times, "fingerprint": {"plan": f"p{number}"}, **changes})
    return Journal(info=info, results=tuple(results), summary=summary_of(results, total=len(results) + missing))


def changes_of(*runs: list[CaseResult], **changes: Any) -> list[Kind]:
    """What became of the cases of the first run, over all runs."""
    return [each.kind for each in trend_of([journal(at, run, **changes) for at, run in enumerate(runs, 1)]).changes]


@pytest.fixture
def case(result: Make) -> Callable[..., CaseResult]:
    def make(word: str, **more: Any) -> CaseResult:
        states: dict[str, dict[str, Any]] = {
            P: {},
            F: {"reason": Reason.VALUE, "message": "3 of 8 elements are off"},
            S: {"status": Status.SKIPPED, "message": "not on a CPU"},
        }
        return result(id="a", tags=("model_gpt",), **states[word], **more)

    return make


HISTORIES: dict[str, tuple[list[str], Kind | None]] = {
    "always well": ([P, P, P], None),
    "always failing": ([F, F, F], None),
    "new failure": ([P, P, F], Kind.NEW_FAILURE),
    "failing since the run before": ([P, F, F], None),
    "fixed": ([F, F, P], Kind.FIXED),
    "fixed earlier": ([F, P, P], None),
    "to and fro": ([P, F, P], Kind.FLAKY),
    "left out now": ([P, P, S], Kind.LEFT_OUT),
    "always left out": ([S, S, S], None),
    "run again": ([S, S, P], None),
    "run again and failing": ([S, S, F], Kind.NEW_FAILURE),
    "a skip between": ([P, S, F], Kind.NEW_FAILURE),
    "failing around a skip": ([F, S, F], None),
    "new": (["", "", P], Kind.NEW),
    "new and failing": (["", "", F], Kind.NEW_FAILURE),
    "removed": ([P, P, ""], Kind.REMOVED),
    "removed earlier": ([P, "", ""], None),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_became_of_a_case(name: str, case: Make, result: Make) -> None:
    words, kind = HISTORIES[name]
    other = result(id="other")
    runs = [journal(number, [other, *([case(word)] if word else [])]) for number, word in enumerate(words, 1)]
    trend = trend_of(runs[::-1])  # they are put in order by when they began
    assert [change.kind for change in trend.changes] == ([] if kind is None else [kind])
    assert trend.still_failing == (("a",) if kind is None and words[-1] == F else ())
    for change in trend.changes:
        assert change.statuses == tuple(word or "-" for word in words)


def test_a_turn_while_nothing_changed_is_flaky(case: Make) -> None:
    assert changes_of([case(P)], [case(F)], fingerprint={"plan": "same"}) == [Kind.FLAKY]


def test_another_option_of_the_backend_is_said() -> None:
    runs = [journal(number, []) for number in (1, 2)]
    for run, name in zip(runs, ("eager", "mine"), strict=True):
        run.info.fingerprint["option compile_backend"] = name
    assert trend_of(runs).notes == ("the runs differ in option compile_backend: eager, mine",)


def test_rounds_that_differ_are_flaky(case: Make) -> None:
    assert changes_of([case(P)], [case(P), case(F, round=1)]) == [Kind.FLAKY]


def test_case_with_other_key_is_changed(case: Make) -> None:
    runs = [journal(1, [case(P, key="k1:1")]), journal(2, [case(F, key="k1:2")])]
    (change,) = trend_of(runs).changes
    assert change.kind is Kind.CHANGED
    assert "VALUE" in change.gist


def test_a_reason_that_changed(case: Make) -> None:
    def raised(message: str) -> CaseResult:
        verdict = Verdict(status=Status.FAILED, reason=Reason.RAISED, message=message)
        return replace(case(F), verdict=verdict)

    assert changes_of([raised("ValueError: size 3")], [raised("ValueError: size 4")]) == []
    for other in (raised("TypeError: size 4"), case(F)):
        trend = trend_of([journal(1, [raised("ValueError: size 3")]), journal(2, [other])])
        (change,) = trend.changes
        assert change.kind is Kind.OTHER_REASON
        assert "before: RAISED: ValueError: size 3" in change.gist
        assert not trend.got_worse


@pytest.mark.parametrize(
    ("before", "now", "kind"), [(0.3, 0.7, Kind.LARGER_ERROR), (0.4, 0.7, None), (0.001, 0.05, None), (0.7, 0.3, None)]
)
def test_an_error_that_grew(case: Make, measure: Callable[..., Any], before: float, now: float, kind: Any) -> None:
    runs = [[case(P, measures=(measure(worst_used=used),))] for used in (before, now)]
    assert changes_of(*runs) == ([] if kind is None else [kind])


@pytest.mark.parametrize(
    ("before", "now", "is_timed", "is_slower"),
    [
        (1.0, 1.3, True, True),
        (1e-6, 1.3e-6, True, True),
        (1.0, 1.1, True, False),
        (1.0, 1.9, False, False),
        (1.0, 2.1, False, True),
        (1e-6, 1e-3, False, False),
    ],
)
def test_a_time_that_grew(case: Make, before: float, now: float, is_timed: bool, is_slower: bool) -> None:
    def took(seconds: float) -> CaseResult:
        time = CallTime(who="own", median_s=seconds, least_s=seconds, spread_s=None, calls=1, batches=1)
        more = {"benchmark": Benchmark(time=time)} if is_timed else {"timings": Timings(run_s=seconds)}
        return replace(case(P), **more)

    assert changes_of([took(before)], [took(now)]) == [Kind.SLOWER] * is_slower


def test_cases_missing_from_interrupted_run_are_kept(case: Make, result: Make) -> None:
    trend = trend_of([journal(1, [case(P), result(id="b")]), journal(2, [case(P)], missing=1)])
    assert trend.changes == ()
    assert says(trend.notes[0], "reporting.run_did_not_come")


def test_words_and_data(case: Make, result: Make) -> None:
    trend = trend_of([journal(1, [case(P), result(id="b")]), journal(2, [case(F), result(id="b"), result(id="c")])])
    lines = trend_lines(trend)
    assert lines[0] == "2 runs, r1 to r2"
    rows = [line.split() for line in lines if line.strip().startswith(("run ", "r1 ", "r2 "))]
    assert [row[:7] for row in rows[:2]] == [
        ["run", "target", "cases", "failing", "pass", "rate", "time"],
        ["r1", "torch:cpu", "2", "0", "100.0%", "2.4", "ms"],
    ]
    place = lines.index("new failures: 1")
    assert says_exactly(lines[place + 1], "reporting.passed_failed_value_of")
    assert "  c  - > passed" in lines[lines.index("new cases: 1") :]
    assert says_exactly(lines[-1], "reporting.more_of_the_last")
    data = trend_data(trend)
    assert [each["bad"] for each in data["runs"]] == [0, 1]
    assert data["changes"][0] == {
        "kind": "new_failure", "case": "a", "statuses": ("passed", "failed"), "since": "r2",
        "gist": "VALUE: 3 of 8 elements are off",
    }  # fmt: skip


def test_a_single_run_has_no_trend(case: Make) -> None:
    with pytest.raises(ValueError, match="two runs"):
        trend_of([journal(1, [case(P)]), journal(1, [case(P)])])


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"keyword": "a"}), ({"shard": "1/2"}, {"shard": "2/2"}), ({"plan": "x.yaml"}, {"plan": "x.yaml"})],
)
def test_unselected_cases_are_neither_removed_nor_new(
    result: Make, before: dict[str, Any], after: dict[str, Any]
) -> None:
    def trend(options: Any, cases: str, options_then: Any, cases_then: str, plan: str = "") -> Trend:
        runs = [(options, cases), (options_then, cases_then)]
        return trend_of(
            [
                journal(at, [result(id=name) for name in names], options=given, plan=plan)
                for at, (given, names) in enumerate(runs, 1)
            ]
        )

    one = trend(before, "ab", after, "a")
    assert one.changes == ()
    assert says(one.notes[0], "reporting.chose_their_cases_differently")
    assert trend(before, "ab", after, "ba").notes == ()
    assert trend(after, "a", before, "ab").changes == ()
    same = {"plan": "x.yaml", "keyword": "a"}
    removed = trend(same, "ab", same, "a", "x.yaml")
    assert ([each.kind for each in removed.changes], removed.notes) == ([Kind.REMOVED], ())


def test_what_got_worse(case: Make) -> None:
    def worse(*words: str) -> bool:
        return trend_of([journal(number, [case(word)]) for number, word in enumerate(words, 1)]).got_worse

    assert [worse(P, F), worse(P, S), worse(P, F, P)] == [True, True, True]
    assert [worse(P, P), worse(F, F), worse(F, P), worse(S, P)] == [False] * 4

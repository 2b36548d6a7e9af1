"""Leaning to one side: told where chance does not explain it, in the right words, and never as a failure."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from texts import says

from optest.reporting.bias import lean_of, lean_of_measure, leans, sentence
from optest.reporting.check_table import CheckReporter
from optest.reporting.explain import explain
from optest.reporting.failure_groups import failure_groups
from optest.reporting.junit import junit_text
from optest.reporting.markdown import markdown_text
from optest.reporting.terminal import TerminalReporter
from optest.spec import Reason, Rounding, RuleUsed, RunInfo, RunSummary, Status

Make = Callable[..., Any]
ULP = RuleUsed(name="ulp", layer="operator", text="float32 arithmetic: |err| <= 4 ulp of float32")
SUM = RuleUsed(name="accumulate", layer="operator", text="k=64")
INFO = RunInfo(run_id="r", started_at="2026-01-31T00:00:00.000+00:00", total=3, target="torch:cpu", seed=0)


def rounding(inexact: int = 4096, *, above: float = 0.5, away: float = 0.5, **more: Any) -> Rounding:
    """Shares of results on a side; correct rounding has one half on each."""
    half = inexact // 2
    base: dict[str, Any] = {
        "inexact": inexact,
        "above": round(above * inexact),
        "away": round(away * inexact),
        "nearest_above": half,
        "nearest_away": half,
        "draws": inexact,
        "rms_ulp": 3**-0.5,
    }
    base["astray"] = max(abs(base["above"] - half), abs(base["away"] - half))
    return Rounding(**{**base, **more})


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({"away": 0.0}, "100% of 4,096 inexact results lie nearer to zero than the true value; correctly rounded it would be 50% (rounds toward zero?)"),  # noqa: E501
        ({"away": 0.98}, "98% of 4,096 inexact results lie farther from zero than the true value; correctly rounded it would be 50% (rounds away from zero?)"),  # noqa: E501
        ({"above": 0.02}, "98% of 4,096 inexact results lie below the true value; correctly rounded it would be 50% (rounds down?)"),  # noqa: E501
        ({"above": 0.9995}, "over 99% of 4,096 inexact results lie above the true value; correctly rounded it would be 50% (rounds up?)"),  # noqa: E501
        ({"above": 0.0, "away": 0.0}, "100% of 4,096 inexact results lie below the true value, nearer to zero; correctly rounded it would be 50% (rounds toward zero?)"),  # noqa: E501
        ({"above": 0.75}, "75% of 4,096 inexact results lie above the true value; correctly rounded it would be 50%"),
        ({"above": 0.02, "rms_ulp": 2.5}, "98% of 4,096 inexact results lie below the true value; correctly rounded it would be 50%"),  # noqa: E501
        ({"above": 0.3, "away": 0.01}, "99% of 4,096 inexact results lie nearer to zero than the true value; correctly rounded it would be 50% (rounds toward zero?)"),  # noqa: E501
    ],
)  # fmt: skip
def test_the_words(shares: dict[str, float], said: str) -> None:
    lean = lean_of(rounding(**shares))  # type: ignore[arg-type]
    assert lean is not None
    assert sentence(lean) == said


def test_little_proves_nothing() -> None:
    assert lean_of(rounding(24, above=0.0)) is None  # z = √12 = 3.5
    assert lean_of(rounding(40, above=0.0)) is not None
    assert lean_of(rounding(above=0.58)) is None  # beyond chance, but slight
    assert lean_of(rounding(above=0.62)) is not None


def test_repeated_values_are_few_draws() -> None:
    assert lean_of(rounding(above=0.0, draws=24)) is None


def test_a_side_that_correct_rounding_fills_is_no_lean() -> None:
    """tanh near 1: everything rounds up to 1."""
    assert lean_of(rounding(above=1.0, away=1.0, nearest_above=4096, nearest_away=4096, astray=0)) is None


def test_errors_that_bring_a_share_back_to_one_half_are_no_lean() -> None:
    """softplus of 8 lies just above 8, so that it rounds down; noise moves some results up, and others further down."""
    assert lean_of(rounding(above=0.24, away=0.24, nearest_above=0, nearest_away=0, astray=983)) is None
    assert lean_of(rounding(above=0.9, away=0.9, nearest_above=0, nearest_away=0, astray=3686)) is not None


def test_errors_as_large_as_the_values_are_no_rounding(measure: Make) -> None:
    assert lean_of_measure(measure(rounding=rounding(away=0.0, rms_ulp=15.0))) is not None
    assert lean_of_measure(measure(rounding=rounding(away=0.0, rms_ulp=17.0))) is None
    assert lean_of_measure(measure(dtype="float8_e4m3fn", rounding=rounding(away=0.0, rms_ulp=2.5))) is None
    assert lean_of_measure(measure()) is None


def cases(result: Make, measure: Make, shares: list[float], rule: RuleUsed, **more: Any) -> list[Any]:
    """One passed case of sigmoid for each share of results above the true value."""
    return [
        result(
            id=f"sigmoid/{n}",
            operator="sigmoid",
            measures=(measure(dtype="float32", rounding=rounding(200, above=share), rule=rule),),
            **more,
        )
        for n, share in enumerate(shares)
    ]


def test_cases_of_an_operator_are_taken_together(result: Make, measure: Make) -> None:
    [(which, lean)] = leans(cases(result, measure, [0.0] * 20, SUM))
    assert which == "sigmoid float32"
    assert (lean.inexact, lean.above) == (4000, 0.0)
    assert lean.z == pytest.approx(-(20**0.5))


def test_what_is_common_to_a_case_is_one_draw_where_sums_are_judged(result: Make, measure: Make) -> None:
    """All results of a case too large, of the next too small, as when a row is divided by its sum."""
    rng = random.Random(7)
    for _ in range(50):
        shares = [float(rng.random() < 0.5) for _ in range(40)]
        assert not leans(cases(result, measure, shares, SUM))
    assert not leans(cases(result, measure, [0.0] * 15, SUM))  # as often as 1 in 2^14 by chance


def test_one_large_case_does_not_drown_the_others(result: Make, measure: Make) -> None:
    small = [rounding(2, above=0.0)] * 24
    of = [
        result(operator="sigmoid", measures=(measure(dtype="float32", rounding=each, rule=SUM),))
        for each in [*small, rounding(1_000_000, above=0.0)]
    ]
    [(_, lean)] = leans(of)
    assert lean.z == pytest.approx(-(24 + 3) / (24 + 9) ** 0.5)


def test_single_elements_are_draws_where_they_are_judged_one_by_one(result: Make, measure: Make) -> None:
    assert leans(cases(result, measure, [0.1] * 3, ULP))


def test_only_what_passed_and_was_run_counts(result: Make, measure: Make) -> None:
    lean = cases(result, measure, [0.0] * 20, SUM)
    shared = [result(id=each.id, operator="sigmoid", verdict=each.verdict, duplicate_of="x") for each in lean[:15]]
    assert not leans([*lean[15:], *shared])
    failed = [
        result(id=each.id, operator="sigmoid", reason=Reason.VALUE, measures=each.verdict.measures) for each in lean
    ]
    assert not leans(failed)


def test_outputs_are_told_apart(result: Make, measure: Make) -> None:
    one_sided, even = rounding(away=0.0), rounding()
    of = [
        result(
            operator="frexp",
            measures=tuple(
                measure(output=name, dtype="float32", rounding=each, rule=ULP)
                for name, each in (("mantissa", one_sided), ("out", even))
            ),
        )
    ]
    assert [which for which, _ in leans(of)] == ["frexp.mantissa float32"]


def test_a_check_tells_it_and_still_passes(result: Make, measure: Make) -> None:
    found = cases(result, measure, [0.01] * 20, ULP)
    stream = io.StringIO()
    reporter = CheckReporter(stream, color=False)
    reporter.on_start(INFO)
    for index, each in enumerate(found):
        reporter.on_case_result(each, index, len(found))
    summary = RunSummary.of(found, total=len(found), duration_s=1.5)
    reporter.on_complete(summary)
    text = stream.getvalue()
    assert says(text, "reporting.on_one_side_of")
    assert "20 passed in 1.50 s" in text
    assert summary.exit_status == 0


def test_every_report_of_a_check_tells_it(result: Make, measure: Make) -> None:
    found = cases(result, measure, [0.01] * 20, ULP)
    check = replace(INFO, options={"command": "check"})
    summary = RunSummary.of(found, total=len(found), duration_s=1.5)
    said = "99% of 4,000 inexact results lie below the true value"
    assert says(markdown_text(check, found, summary), "reporting.on_one_side_of_the", said=said)
    assert says(junit_text(check, found, summary), "reporting.property_name_one_side", said=said)


def test_more_is_said_with_v(result: Make, measure: Make) -> None:
    stream = io.StringIO()
    reporter = TerminalReporter(stream, color=False, verbosity=1)
    reporter.on_start(INFO)
    reporter.on_case_result(
        result(measures=(measure(worst_used=0.25, max_ulp_error=0.9876, rounding=rounding(away=0.0)),)), 0, 1
    )
    text = stream.getvalue()
    assert says(text, "reporting.elements_compared_of_the")
    assert says(text, "reporting.of_inexact_results_lie")


def test_a_failure_says_on_which_side(result: Make, measure: Make) -> None:
    failed = result(
        reason=Reason.VALUE,
        measures=(measure(statistic=1.8, statistic_limit=1.25, rounding=rounding(away=0.0)),),
    )
    assert failed.status is Status.FAILED
    assert any(line.startswith("  100% of 4,096 inexact results lie nearer to zero") for line in explain(failed))


def test_the_simplest_call_is_shown_if_the_same_can_be_said_of_it(result: Make, measure: Make) -> None:
    steps = RuleUsed(name="composed", layer="operator", text="steps")

    def failed(size: int, error: float, **more: Any) -> Any:
        wrong = measure(mismatched=8, max_ulp_error=error, rule=steps, **more)
        return result(id=str(size), shapes={"input0": (4, size)}, reason=Reason.VALUE, measures=[wrong])

    far, few, leaning = failed(2, 900.0), failed(7, 1.5), failed(65536, 1.5, rounding=rounding(above=0.9))
    (group,) = failure_groups([leaning, few, far])
    assert group.first is few
    (group,) = failure_groups([leaning, far])
    assert group.first is leaning, "which side they lie on says something"

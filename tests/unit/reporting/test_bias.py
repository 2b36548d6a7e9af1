"""Leaning to one side: told where chance does not explain it, in the right words, and never as a failure."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from texts import says, says_exactly

from optest.reporting.bias import bias_of, bias_of_measure, bias_text, operator_biases
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
    ("shares", "share", "sides", "guess"),
    [
        ({"away": 0.0}, "100%", "nearer to zero than the true value", " (rounds toward zero?)"),
        ({"away": 0.98}, "98%", "farther from zero than the true value", " (rounds away from zero?)"),
        ({"above": 0.02}, "98%", "below the true value", " (rounds down?)"),
        ({"above": 0.9995}, "over 99%", "above the true value", " (rounds up?)"),
        ({"above": 0.0, "away": 0.0}, "100%", "below the true value, nearer to zero", " (rounds toward zero?)"),
        ({"above": 0.75}, "75%", "above the true value", ""),
        ({"above": 0.02, "rms_ulp": 2.5}, "98%", "below the true value", ""),
        ({"above": 0.3, "away": 0.01}, "99%", "nearer to zero than the true value", " (rounds toward zero?)"),
    ],
)
def test_text_names_share_and_sides(shares: dict[str, float], share: str, sides: str, guess: str) -> None:
    bias = bias_of(rounding(**shares))  # type: ignore[arg-type]
    assert bias is not None
    assert says_exactly(bias_text(bias), "reporting.bias_sentence", share=share, sides=sides, guess=guess)


def test_little_proves_nothing() -> None:
    assert bias_of(rounding(24, above=0.0)) is None  # z = √12 = 3.5
    assert bias_of(rounding(40, above=0.0)) is not None
    assert bias_of(rounding(above=0.58)) is None  # beyond chance, but slight
    assert bias_of(rounding(above=0.62)) is not None


def test_repeated_values_are_few_draws() -> None:
    assert bias_of(rounding(above=0.0, draws=24)) is None


def test_side_of_correct_rounding_is_no_bias() -> None:
    """tanh near 1: everything rounds up to 1."""
    assert bias_of(rounding(above=1.0, away=1.0, nearest_above=4096, nearest_away=4096, astray=0)) is None


def test_share_back_at_one_half_is_no_bias() -> None:
    """softplus of 8 lies just above 8, so that it rounds down; noise moves some results up, and others further down."""
    assert bias_of(rounding(above=0.24, away=0.24, nearest_above=0, nearest_away=0, astray=983)) is None
    assert bias_of(rounding(above=0.9, away=0.9, nearest_above=0, nearest_away=0, astray=3686)) is not None


def test_errors_as_large_as_values_have_no_bias(measure: Make) -> None:
    assert bias_of_measure(measure(rounding=rounding(away=0.0, rms_ulp=15.0))) is not None
    assert bias_of_measure(measure(rounding=rounding(away=0.0, rms_ulp=17.0))) is None
    assert bias_of_measure(measure(dtype="float8_e4m3fn", rounding=rounding(away=0.0, rms_ulp=2.5))) is None
    assert bias_of_measure(measure()) is None


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


def test_cases_of_operator_are_combined(result: Make, measure: Make) -> None:
    [(which, bias)] = operator_biases(cases(result, measure, [0.0] * 20, SUM))
    assert which == "sigmoid float32"
    assert (bias.inexact, bias.above) == (4000, 0.0)
    assert bias.z == pytest.approx(-(20**0.5))


def test_sum_errors_of_case_count_as_one_draw(result: Make, measure: Make) -> None:
    """All results of a case too large, of the next too small, as when a row is divided by its sum."""
    rng = random.Random(7)
    for _ in range(50):
        shares = [float(rng.random() < 0.5) for _ in range(40)]
        assert not operator_biases(cases(result, measure, shares, SUM))
    assert not operator_biases(cases(result, measure, [0.0] * 15, SUM))  # as often as 1 in 2^14 by chance


def test_weight_of_large_case_is_limited(result: Make, measure: Make) -> None:
    small = [rounding(2, above=0.0)] * 24
    of = [
        result(operator="sigmoid", measures=(measure(dtype="float32", rounding=each, rule=SUM),))
        for each in [*small, rounding(1_000_000, above=0.0)]
    ]
    [(_, bias)] = operator_biases(of)
    assert bias.z == pytest.approx(-(24 + 3) / (24 + 9) ** 0.5)


def test_elements_are_draws_under_elementwise_rule(result: Make, measure: Make) -> None:
    assert operator_biases(cases(result, measure, [0.1] * 3, ULP))


def test_only_executed_passes_count(result: Make, measure: Make) -> None:
    bias = cases(result, measure, [0.0] * 20, SUM)
    shared = [result(id=each.id, operator="sigmoid", verdict=each.verdict, duplicate_of="x") for each in bias[:15]]
    assert not operator_biases([*bias[15:], *shared])
    failed = [
        result(id=each.id, operator="sigmoid", reason=Reason.VALUE, measures=each.verdict.measures) for each in bias
    ]
    assert not operator_biases(failed)


def test_biased_output_is_named(result: Make, measure: Make) -> None:
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
    assert [which for which, _ in operator_biases(of)] == ["frexp.mantissa float32"]


def test_biased_check_passes(result: Make, measure: Make) -> None:
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


def test_markdown_and_junit_have_bias(result: Make, measure: Make) -> None:
    found = cases(result, measure, [0.01] * 20, ULP)
    check = replace(INFO, options={"command": "check"})
    summary = RunSummary.of(found, total=len(found), duration_s=1.5)
    said = "99% of 4,000 inexact results are below the true value"
    assert says(markdown_text(check, found, summary), "reporting.on_one_side_of_the", said=said)
    assert says(junit_text(check, found, summary), "reporting.property_name_one_side", said=said)


def test_verbose_has_bias_of_case(result: Make, measure: Make) -> None:
    stream = io.StringIO()
    reporter = TerminalReporter(stream, color=False, verbosity=1)
    reporter.on_start(INFO)
    reporter.on_case_result(
        result(measures=(measure(worst_used=0.25, max_ulp_error=0.9876, rounding=rounding(away=0.0)),)), 0, 1
    )
    text = stream.getvalue()
    assert says(text, "reporting.elements_compared_of_the")
    assert says(text, "reporting.of_inexact_results_lie")


def test_failure_block_has_bias(result: Make, measure: Make) -> None:
    failed = result(
        reason=Reason.VALUE,
        measures=(measure(statistic=1.8, statistic_limit=1.25, rounding=rounding(away=0.0)),),
    )
    assert failed.status is Status.FAILED
    assert says("\n".join(explain(failed)), "reporting.inexact_results_nearer_zero")


def test_group_shows_simplest_call_with_same_hint(result: Make, measure: Make) -> None:
    steps = RuleUsed(name="composed", layer="operator", text="steps")

    def failed(size: int, error: float, **more: Any) -> Any:
        wrong = measure(mismatched=8, max_ulp_error=error, rule=steps, **more)
        return result(id=str(size), shapes={"input0": (4, size)}, reason=Reason.VALUE, measures=[wrong])

    far, few, leaning = failed(2, 900.0), failed(7, 1.5), failed(65536, 1.5, rounding=rounding(above=0.9))
    (group,) = failure_groups([leaning, few, far])
    assert group.first is few
    (group,) = failure_groups([leaning, far])
    assert group.first is leaning, "which side they lie on says something"

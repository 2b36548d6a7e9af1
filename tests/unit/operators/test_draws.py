"""Random tokens: the test of their frequencies, and its failure report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from texts import says

import optest
from optest.operators.indexing.sampling_reference import _uneven

LOGITS = np.array([1.5, -0.5, 0.25, 2.0, -2.0, 0.75, -1.0, 3.0])


def shares(temperature: float) -> Any:
    terms = np.exp(LOGITS / temperature)
    return terms / terms.sum()


@pytest.mark.parametrize("temperature", [0.9, 1.1])
def test_wrong_temperature_is_detected_in_16384_draws(temperature: float) -> None:
    drawn = np.random.default_rng(3).choice(LOGITS.size, 1 << 14, p=shares(temperature))
    words = "more likely" if temperature < 1 else "less likely"
    assert words in _uneven(drawn, shares(1.0))


def test_right_draws_raise_no_alarm() -> None:
    # The test has one false alarm in 10¹²: none in 500 runs. A threshold of 10⁻² would have some.
    drawn = np.random.default_rng(4).choice(LOGITS.size, (500, 4096), p=shares(1.0))
    assert not [each for each in drawn if _uneven(each, shares(1.0))]


def test_impossible_tokens_are_not_counted() -> None:
    p = np.array([0.5, 0.5, 0.0])
    assert not _uneven(np.arange(1000) % 2, p)
    assert says(_uneven(np.zeros(1000, np.int64), p), "operators.is_drawn_times_but")


def biased(logits: Any, top_k: Any, top_p: Any) -> Any:
    """Draw with a temperature of 0.5 instead of 1, with new random numbers in each call."""
    del top_k, top_p
    terms = np.exp(2.0 * logits.astype(np.float64))
    ends = np.cumsum(terms / terms.sum(1, keepdims=True), 1)
    return (ends < np.random.default_rng().random((len(logits), 1))).sum(1).astype(np.int32)


def test_failed_draws_report_counts_without_diagnosis() -> None:
    report = optest.check(biased, op="top_k_top_p_sampling", case="*/distribution/1*", isolate="none")
    (failed,) = report.failed
    assert says(failed.verdict.measures[0].where, "operators.draws_from_equal_rows")
    assert "diagnosis" not in failed.verdict.details

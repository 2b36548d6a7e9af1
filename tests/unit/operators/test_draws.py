"""Tokens that are drawn at random: how often each one is, and what a failure says of it."""

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
def test_another_temperature_shows_in_16384_draws(temperature: float) -> None:
    drawn = np.random.default_rng(3).choice(LOGITS.size, 1 << 14, p=shares(temperature))
    words = "more likely" if temperature < 1 else "less likely"
    assert words in _uneven(drawn, shares(1.0))


def test_true_draws_raise_no_alarm() -> None:
    """A false alarm in 10¹² is none in 500; with a looser end, as of 10⁻², there would be some."""
    drawn = np.random.default_rng(4).choice(LOGITS.size, (500, 4096), p=shares(1.0))
    assert not [each for each in drawn if _uneven(each, shares(1.0))]


def test_tokens_without_a_probability_do_not_count() -> None:
    p = np.array([0.5, 0.5, 0.0])
    assert not _uneven(np.arange(1000) % 2, p)
    assert says(_uneven(np.zeros(1000, np.int64), p), "operators.is_drawn_times_but")


def biased(logits: Any, top_k: Any, top_p: Any) -> Any:
    """Draws by a temperature of 0.5, anew in each call."""
    del top_k, top_p
    terms = np.exp(2.0 * logits.astype(np.float64))
    ends = np.cumsum(terms / terms.sum(1, keepdims=True), 1)
    return (ends < np.random.default_rng().random((len(logits), 1))).sum(1).astype(np.int32)


def test_a_failure_has_counts_and_no_race() -> None:
    report = optest.check(biased, op="top_k_top_p_sampling", case="*/distribution/1*", isolate="none")
    (failed,) = report.failed
    assert says(failed.verdict.measures[0].where, "operators.draws_from_equal_rows")
    assert "diagnosis" not in failed.verdict.details

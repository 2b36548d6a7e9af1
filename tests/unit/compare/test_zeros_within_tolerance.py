"""What zeros would pass: never an infinity, however wide the tolerance."""

from __future__ import annotations

import numpy as np
import pytest

from optest.compare.assert_close import zeros_are_within


@pytest.mark.parametrize(
    ("expected", "are_within"),
    [
        ([1e-6, 0.0], True),
        ([0.0, 0.0], False),
        ([1e-6, 1.0], False),
        ([np.inf], False),
        ([-np.inf, 1e-6], False),
        ([np.nan], False),
        ([complex(np.inf, 0)], False),
    ],
)
def test_zeros_are_within_what_is_small_alone(expected: list[complex], are_within: bool) -> None:
    assert zeros_are_within(np.array(expected), rtol=1e-6, atol=1e-5) is are_within


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_a_large_element_counts_wherever_it_is_unless_a_share_may_miss(place: int, dtype: type) -> None:
    """The element that is asked first is one of five that may be wrong."""
    expected = np.full(5, 1, dtype)
    expected[place] = 100
    assert not zeros_are_within(expected, rtol=0.0, atol=2.0)
    assert zeros_are_within(expected, rtol=0.0, atol=2.0, mismatch_ratio=0.2)
    assert not zeros_are_within(expected, rtol=0.0, atol=2.0, mismatch_ratio=0.19)

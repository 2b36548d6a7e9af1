"""What zeros would pass: never an infinity, however wide the tolerance."""

from __future__ import annotations

import numpy as np
import pytest

from optest.compare.zeros import zeros_are_within


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

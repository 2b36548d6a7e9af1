"""Constants that would pass: zeros, never an infinity, however wide the tolerance; and the mean."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from optest.compare.assert_close import close_tolerance, mean_within, zeros_are_within
from optest.numerics import numpy_dtype
from optest.spec import DType, dtype


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
def test_large_element_counts_at_every_position(place: int, dtype: type) -> None:
    """Five elements may be wrong, and the first one that is compared is among them."""
    expected = np.full(5, 1, dtype)
    expected[place] = 100
    assert not zeros_are_within(expected, rtol=0.0, atol=2.0)
    assert zeros_are_within(expected, rtol=0.0, atol=2.0, mismatch_ratio=0.2)
    assert not zeros_are_within(expected, rtol=0.0, atol=2.0, mismatch_ratio=0.19)


FLOAT32, INT8 = dtype("float32"), dtype("int8")
HALF_TO_ONE = np.random.default_rng(0).uniform(0.5, 1, 16).astype(np.float32)


@pytest.mark.parametrize(
    ("expected", "output", "tolerance"),
    [
        (HALF_TO_ONE, FLOAT32, (0.2, 0.5)),
        (HALF_TO_ONE.astype(ml_dtypes.bfloat16), dtype("bfloat16"), (0.2, 0.5)),
        (HALF_TO_ONE * (1 + 1j), dtype("complex64"), (0.0, 0.5)),
        (np.array([30, 40, 50], np.int8), INT8, (0.0, 10)),
        (np.tile(np.arange(64, 128, dtype=np.float32), (64, 1)), FLOAT32, (0.0, 40.0)),
    ],
)
def test_mean_passes_by_wide_tolerance(expected: Any, output: DType, tolerance: tuple[float, ...]) -> None:
    mean = mean_within(expected, output, *tolerance)
    assert mean is not None
    assert not zeros_are_within(expected, *tolerance)


@pytest.mark.parametrize(
    ("expected", "output", "tolerance"),
    [
        (HALF_TO_ONE, FLOAT32, (1e-2, 1e-2)),
        (np.ones(16, np.float32), FLOAT32, (0.1, 0.1)),
        (1 + HALF_TO_ONE / 100, FLOAT32, (0.1, 0.1)),
        (np.float32([0.7]), FLOAT32, (0.1, 0.1)),
        (np.float32([0.5, 1.0]), FLOAT32, (0.2, 0.2)),
        (np.array([3, 4, 5], np.int8), INT8, (0.0, 1)),
        (np.append(HALF_TO_ONE, np.inf), FLOAT32, (0.2, 0.5)),
        (np.append(HALF_TO_ONE, np.nan), FLOAT32, (0.2, 0.5)),
        (np.append(np.ones(19), 100), FLOAT32, (0.01, 0.0, 0.1)),
        (np.array([True, False, True]), dtype("bool"), (0.0, 2.0)),
        (np.zeros(0, np.float32), FLOAT32, (0.0, 2.0)),
    ],
)
def test_similar_values_do_not_show_wide_tolerance(expected: Any, output: DType, tolerance: tuple[float, ...]) -> None:
    assert mean_within(expected, output, *tolerance) is None


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_usual_tolerances_admit_no_mean(name: str) -> None:
    output = dtype(name)
    for seed in range(1, 11):
        rng = np.random.default_rng(seed)
        draws = (
            rng.standard_normal(100),
            rng.random(100),
            np.exp(2 * rng.standard_normal(100)),
            1 + 1e-3 * rng.random(9),
        )
        for values in draws:
            expected = values.astype(numpy_dtype(output))
            for rtol, atol in (close_tolerance(output), (1e-2, 1e-2 * np.median(np.abs(values))), (0.05, 0.0)):
                assert mean_within(expected, output, rtol, atol) is None

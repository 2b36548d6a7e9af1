"""Packed is what is row-major without a gap, down to the strides of dimensions of size 1."""

from __future__ import annotations

import numpy as np
import pytest

from optest.numerics import is_packed

BASE = np.zeros(64, np.float32)


def laid(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """``strides`` in elements."""
    return np.lib.stride_tricks.as_strided(BASE, shape, [4 * step for step in strides])


@pytest.mark.parametrize(
    ("shape", "strides", "packed"),
    [
        ((), (), True),
        ((3,), (1,), True),
        ((3,), (2,), False),
        ((3, 5), (5, 1), True),
        ((3, 5), (1, 3), False),
        ((3, 5), (0, 1), False),
        ((1, 5), (5, 1), True),
        ((1, 5), (13, 1), False),
        ((5, 1), (1, 1), True),
        ((5, 1), (1, 7), False),
        ((0, 3), (3, 1), True),
        ((0, 3), (4, 1), False),
        ((2, 0, 3), (3, 3, 1), True),
    ],
)
def test_is_packed_by_strides(shape: tuple[int, ...], strides: tuple[int, ...], packed: bool) -> None:
    assert is_packed(laid(shape, strides)) is packed


def test_reversed_array_is_not_packed() -> None:
    assert not is_packed(BASE[::-1])

"""Two arrays of one layout are the same if every byte from the first element to the last is."""

from __future__ import annotations

import numpy as np
import pytest

from optest.numerics import are_same_memory, layout, private_copy


@pytest.mark.parametrize("place", [0, 63, 64, 200, 399])
def test_one_different_byte_is_detected(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(layout, "_BLOCK_BYTES", 64)
    one = np.arange(100, dtype=np.float32)
    other = one.copy()
    assert are_same_memory(one, other)
    other.view(np.uint8)[place] ^= 1
    assert not are_same_memory(one, other)


def test_memory_between_elements_counts() -> None:
    storage = np.arange(40, dtype=np.int16)
    one = storage[3:33:5]
    other = private_copy(one)
    assert are_same_memory(one, other)
    assert other.base is not None
    other.base.view(np.int16)[1] ^= 1
    assert (one == other).all()
    assert not are_same_memory(one, other)


def test_nan_zeros_and_empty_arrays_by_bits() -> None:
    one = np.array([np.nan, -0.0])
    assert are_same_memory(one, one.copy())
    assert not are_same_memory(one, np.array([np.nan, 0.0]))
    assert are_same_memory(one[:0], one[:0].copy())

"""Layouts that a C library is asked in: legal for outputs, within bounds, and of every kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optest.memory.stride_patterns import Pattern, overlapping_patterns, patterns
from optest.spec import TensorSpec, contiguous_strides, dtype

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def places(shape: Sequence[int], pattern: Pattern) -> np.ndarray:
    """The place of every element, in elements."""
    found = np.full(tuple(shape), pattern.offset)
    for axis, stride in enumerate(pattern.strides):
        index = np.arange(shape[axis]) * stride
        found = found + index.reshape([-1 if each == axis else 1 for each in range(len(shape))])
    return found


@given(shape=SHAPES)
def test_every_element_has_a_place_of_its_own(shape: tuple[int, ...]) -> None:
    for pattern in patterns(shape):
        found = places(shape, pattern)
        assert len(np.unique(found)) == found.size, pattern
        assert found.min() >= 0, pattern
        TensorSpec(dtype=dtype("float32"), shape=shape, strides=pattern.strides, offset=pattern.offset)


@given(shape=SHAPES)
def test_layouts_that_share_places_stay_inside(shape: tuple[int, ...]) -> None:
    for pattern in overlapping_patterns(shape):
        assert places(shape, pattern).min() >= 0


@given(shape=st.lists(st.integers(2, 5), min_size=1, max_size=4).map(tuple))
def test_none_is_dense_and_none_stands_twice(shape: tuple[int, ...]) -> None:
    found = [(each.strides, each.offset) for each in patterns(shape)]
    assert (contiguous_strides(shape), 0) not in found
    assert len({each.name for each in patterns(shape)}) == len(found)


def test_what_libraries_get_wrong_is_among_them() -> None:
    found = {each.name: each for each in patterns((2, 3, 4))}
    assert found["transposed"].strides == (1, 2, 6)
    assert found["transposed, padded"].strides == (1, 5, 15)
    assert found["channels last, padded"].strides == (20, 1, 5)
    assert found["padded rows"].strides == (21, 7, 1)
    assert found["matrices apart, rows dense"].strides == (19, 4, 1)
    assert found["backwards in dimension 1"] == Pattern("backwards in dimension 1", (12, -4, 1), 8)
    assert found["gaps, backwards"] == Pattern("gaps, backwards", (24, 8, -2), 6)
    assert found["offset"].offset % 4 == 3
    shared = {each.name: each.strides for each in overlapping_patterns((2, 3, 4))}
    assert shared["stride 0 in dimension 0"] == (0, 4, 1)
    assert shared["a window that slides by one"] == (12, 1, 1)
    odd = [each.strides for each in patterns((3, 1)) if "size is 1" in each.name]
    assert odd == [(1, 13), (1, 0), (1, -3)]
    assert list(patterns(())) == []
    assert list(overlapping_patterns(())) == []

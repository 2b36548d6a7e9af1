"""Layouts as increments and leading dimensions: what they say leads to the tensor's own elements, or is a gap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.clib.library.layouts import Axis, Gap, Matrix, axes_of, increment_of, matrix_of
from optest.numerics import view
from optest.spec import TensorSpec, contiguous_strides, dtype

F32 = dtype("float32")


def spec(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0) -> TensorSpec:
    return TensorSpec(dtype=F32, shape=shape, strides=strides, offset=offset)


sizes = st.integers(0, 4)
steps = st.integers(-3, 9)


@given(st.integers(0, 4), st.integers(0, 4), steps, steps, st.booleans())
def test_matrix_has_leading_dimension(m: int, n: int, first: int, second: int, by_rows: bool) -> None:
    offset = max(0, -first) * m + max(0, -second) * n
    tensor = spec((m, n), (first, second), offset)
    try:
        found = matrix_of(*axes_of(tensor, ("m", "n")), by_rows=by_rows)
    except Gap:
        assert m > 1 or n > 1
        return
    storage = np.arange(tensor.storage_elements + 200, dtype=np.float32)
    stored_rows, stored_columns = found.rows, found.columns
    line = stored_columns if by_rows else stored_rows
    assert found.leading >= max(1, line)
    seen = np.empty((stored_rows, stored_columns), np.float32)
    for i in range(stored_rows):
        for j in range(stored_columns):
            seen[i, j] = storage[offset + (i * found.leading + j if by_rows else j * found.leading + i)]
    assert np.array_equal(seen.T if found.is_transposed else seen, view(storage, tensor))


@given(st.lists(st.integers(0, 3), max_size=4).map(tuple), st.integers(1, 3))
def test_dense_dimensions_merge_into_one_axis(shape: tuple[int, ...], gap: int) -> None:
    strides = tuple(gap * each for each in contiguous_strides(shape))
    (axis,) = axes_of(spec(shape, strides), ("n...",))
    assert axis.size == int(np.prod(shape, dtype=int))
    storage = np.arange(400, dtype=np.float32)
    walked = storage[: axis.size * axis.stride : axis.stride] if axis.size else storage[:0]
    assert np.array_equal(walked, view(storage, spec(shape, strides)).ravel())


def test_variadic_name_takes_remaining_dimensions() -> None:
    assert axes_of(spec((2, 3, 5)), ("m...", "k")) == (Axis(size=6, stride=5), Axis(size=5, stride=1))
    assert axes_of(spec((5,)), ("m...", "k")) == (Axis(size=1, stride=1), Axis(size=5, stride=1))


@pytest.mark.parametrize(
    ("tensor", "dims", "message"),
    [
        (spec((2, 3)), ("n",), "has 2 dimensions, expected 1"),
        (spec(()), ("m...", "k"), "has 0 dimensions, expected 1 or more"),
        (spec((4, 5), (1, 4)), ("n...",), "has strides [1, 4], which no single increment expresses"),
        (spec((4, 5), (7, 1)), ("n...",), "has strides [7, 1], which no single increment expresses"),
    ],
)
def test_unfit_vector_names_the_reason(tensor: TensorSpec, dims: tuple[str, ...], message: str) -> None:
    with pytest.raises(Gap, match=message.replace("[", r"\[").replace("]", r"\]")):
        axes_of(tensor, dims)


@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ((10, 2), "one of them should be 1"),
        ((0, 1), "should not overlap"),
        ((4, 1), "should not overlap"),
        ((-5, 1), "should not overlap"),
    ],
)
def test_unfit_matrix_names_the_reason(strides: tuple[int, int], message: str) -> None:
    rows, columns = Axis(size=3, stride=strides[0]), Axis(size=5, stride=strides[1])
    with pytest.raises(Gap, match=message):
        matrix_of(rows, columns)


def test_single_row_has_least_legal_leading_dimension() -> None:
    row = matrix_of(Axis(size=1, stride=-3), Axis(size=5, stride=1))
    assert row == Matrix(rows=1, columns=5, leading=5, is_transposed=False)
    assert matrix_of(Axis(size=0, stride=1), Axis(size=0, stride=1)).leading == 1


@pytest.mark.parametrize(
    ("stride", "allowed", "found"),
    [(3, "positive", 3), (-2, "nonzero", -2), (0, "any", 0), (0, "positive", None), (-1, "positive", None)],
)
def test_forbidden_increments_are_gaps(stride: int, allowed: str, found: int | None) -> None:
    axis = Axis(size=4, stride=stride)
    if found is None:
        with pytest.raises(Gap, match=f"has the increment {stride}"):
            increment_of(axis, allowed)
        assert increment_of(Axis(size=1, stride=stride), allowed) == 1
    else:
        assert increment_of(axis, allowed) == found

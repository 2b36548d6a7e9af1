"""`optest check` with default settings finds faulty kernels that index and order, and lets right ones be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from faulty_kernels import Fault, finds, found_by, read_as_dense, refuses_nothing, unexpected

from optest.numerics import widen
from optest.operators import operators
from optest.registry import load_object

Array = np.ndarray[Any, Any]
Inputs, Attributes, Right = Sequence[Any], Mapping[str, Any], list[Any]


def again(operator: str, inputs: Inputs, attributes: Attributes, **changed: Any) -> list[Any]:
    found = load_object(operators.get(operator).reference)(inputs, {**attributes, **changed})
    return [np.asarray(each) for each in found]


def like(found: Sequence[Any], right: Right) -> Sequence[Any]:
    """As a kernel that writes into buffers of the right shape."""
    return [
        a.astype(b.dtype) if a.shape == b.shape else np.resize(a, b.shape).astype(b.dtype)
        for a, b in zip(found, right, strict=True)
    ]


def with_attributes(operator: str, **changed: Any) -> Fault:
    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        stated = {name: value(attributes[name]) if callable(value) else value for name, value in changed.items()}
        try:
            return like(again(operator, inputs, attributes, **stated), right)
        except (ValueError, IndexError):
            return right

    return fault


def with_index(operator: str, change: Callable[[Array, int], Array]) -> Fault:
    """The kernel reads other indices; ``change`` gets them and the size of what is indexed."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        size = inputs[0].shape[attributes.get("dim", 0)] if inputs[0].ndim else 1
        if not inputs[1].size or not size:
            return right
        changed = change(inputs[1].astype(np.int64), size)
        return like(again(operator, [inputs[0], changed, *inputs[2:]], attributes), right)

    return fault


def last_missing(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    for each in right:
        if each.size:
            each.reshape(-1)[-1] = 0
    return right


def without_tail(tile: int) -> Fault:
    def fault(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
        for each in right:
            if each.ndim and each.shape[-1] > tile:
                each[..., each.shape[-1] // tile * tile :] = 0
        return right

    return fault


@refuses_nothing
def wrapped_indices(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
    """Nothing is refused: indices count from the end, as in NumPy and ONNX, and whatever else is asked gives zeros."""
    return right or [np.zeros(inputs[0].shape, inputs[0].dtype)]


def negative_zero_lost(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    return [each + each.dtype.type(0) if each.dtype.kind == "f" else each for each in right]


def nan_lost(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    return [np.nan_to_num(each, nan=0.0) if each.dtype.kind == "f" else each for each in right]


COMMON: dict[str, Fault] = {
    "last missing": last_missing,
    "tail of 16": without_tail(16),
    "tail of 64": without_tail(64),
    "tail of 256": without_tail(256),
    "NaN lost": nan_lost,
}


# scatter_add


def scattered(inputs: Inputs, attributes: Attributes, add: Callable[[Array, Any, Array], None]) -> list[Array]:
    array, index, src = (np.asarray(each) for each in inputs)
    if not index.size:
        return [array.copy()]
    dim = attributes["dim"]
    total, rows = np.atleast_1d(array).copy(), np.atleast_1d(index)
    size = total.shape[dim]
    if (rows < 0).any() or (rows >= size).any():
        raise IndexError("out of range")
    places: list[Any] = list(np.indices(rows.shape, sparse=True))
    places[dim] = rows.astype(np.int64)
    terms = np.atleast_1d(src)[tuple(slice(n) for n in rows.shape)]
    add(total, tuple(places), terms)
    return [total.reshape(array.shape)]


def overwritten(total: Array, places: Any, terms: Array) -> None:
    total[places] = terms


def duplicates_lost(total: Array, places: Any, terms: Array) -> None:
    total[places] += terms  # NumPy reads once and writes the last


def without_input(total: Array, places: Any, terms: Array) -> None:
    total[...] = total.dtype.type(0)
    np.add.at(total, places, terms)


def in_half(total: Array, places: Any, terms: Array) -> None:
    """Rounded to the dtype of the tensor after each addition, as atomics of 16 bits do."""
    order = np.broadcast_arrays(*places)
    flat = [each.reshape(-1) for each in order]
    for at in zip(*flat, terms.reshape(-1), strict=True):
        total[at[:-1]] = total[at[:-1]] + at[-1]


def one_dropped(total: Array, places: Any, terms: Array) -> None:
    kept = terms.copy()
    kept.reshape(-1)[-1] = kept.dtype.type(0)
    np.add.at(total, places, kept) if total.dtype.kind in "fiub" else overwritten(total, places, kept)


def scatter(add: Callable[[Array, Any, Array], None]) -> Fault:
    return lambda inputs, attributes, right: scattered(inputs, attributes, add)


def saturating(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
    if right[0].dtype.kind not in "iu" or right[0].dtype.itemsize > 2:
        return right
    wide = scattered(
        [inputs[0].astype(np.int64), inputs[1], inputs[2].astype(np.int64)],
        attributes,
        np.add.at,
    )
    limits = np.iinfo(right[0].dtype)
    return [np.clip(wide[0], limits.min, limits.max).astype(right[0].dtype)]


def in_place(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
    """The result is right, and stands where the input was."""
    inputs[0][...] = right[0]
    return right


# order


def ordered(
    source: Array, dim: int, *, count: int | None, descending: bool, ties_reversed: bool = False, keys: Any = widen
) -> list[Array]:
    """Elements in order of ``keys``; equal ones, and NaN, in the order of their places or against it."""
    array = np.atleast_1d(source)
    rows = np.moveaxis(keys(array), dim, -1)
    size = rows.shape[-1]
    places = np.arange(size) * (-1 if ties_reversed else 1)
    chosen = np.zeros(rows.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        ranks = np.unique(rows[at], return_inverse=True)[1].reshape(-1).astype(np.int64)
        chosen[at] = np.argsort((-ranks if descending else ranks) * (size + 1) + places, kind="stable")
    chosen = np.moveaxis(chosen, -1, dim).take(np.arange(size if count is None else count), dim)
    values = np.take_along_axis(array, chosen, dim)
    return [values, chosen] if np.ndim(source) else [source.copy(), np.zeros((), np.int64)]


def sorting(**changed: Any) -> Fault:
    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return ordered(
                inputs[0], attributes["dim"], count=None, **{"descending": attributes["descending"], **changed}
            )

    return fault


def choosing(**changed: Any) -> Fault:
    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return ordered(
                inputs[0], attributes["dim"], count=attributes["k"], **{"descending": attributes["largest"], **changed}
            )

    return fault


def both(change: Callable[[Array, Array, int], tuple[Array, Array]]) -> Fault:
    """Values and indices changed together, given with their dimension."""

    def fault(_: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        return list(change(*right, attributes["dim"])) if right[0].ndim and right[0].size else right

    return fault


def rolled_rows(values: Array, indices: Array, dim: int) -> tuple[Array, Array]:
    return np.roll(values, 1, dim), np.roll(indices, 1, dim)


def first_twice(values: Array, indices: Array, dim: int) -> tuple[Array, Array]:
    """The second place repeats the first: of tied elements one is chosen twice."""
    if values.shape[dim] < 2:
        return values, indices
    order = np.arange(values.shape[dim])
    order[1] = 0
    return values.take(order, dim), indices.take(order, dim)


def indices_off_by_one(values: Array, indices: Array, dim: int) -> tuple[Array, Array]:
    return values, indices + 1


def indices_by_value(values: Array, indices: Array, dim: int) -> tuple[Array, Array]:
    """The first place that holds an equal value, for each of the equal ones."""
    found = indices.copy()
    rows, places = np.moveaxis(widen(values), dim, -1), np.moveaxis(found, dim, -1)
    for at in np.ndindex(rows.shape[:-1]):
        for j in range(1, rows.shape[-1]):
            if rows[at][j] == rows[at][j - 1]:
                places[(*at, j)] = places[(*at, j - 1)]
    return values, found


def without_nan(array: Array) -> Array:
    """NaN compares as the smallest."""
    wide = widen(array)
    return np.where(wide != wide, -np.inf, wide) if wide.dtype.kind == "f" else wide


def by_magnitude(array: Array) -> Array:
    wide = widen(array)
    return np.abs(wide.astype(np.float64)) if wide.dtype.kind in "if" else wide


def as_unsigned(array: Array) -> Array:
    """Bits compared as unsigned integers, as radix sorts do that forget the sign."""
    wide = widen(array)
    return wide.view(np.uint64) if wide.dtype == np.float64 else wide.astype(np.int64).view(np.uint64)


def half_precision(array: Array) -> Array:
    """Keys rounded to 16 bits: neighbours change places."""
    wide = widen(array)
    return wide.astype(np.float16) if wide.dtype.kind == "f" else wide.astype(np.int16)


SPECIFIC: dict[tuple[str, str], Fault] = {
    ("gather", "first dim"): with_attributes("gather", dim=0),
    ("gather", "negative dim is 0"): with_attributes("gather", dim=lambda dim: max(dim, 0)),
    ("gather", "off by one"): with_index("gather", lambda index, size: (index + 1) % size),
    ("gather", "last index clamped"): with_index("gather", lambda index, size: np.minimum(index, max(size - 2, 0))),
    ("gather", "8-bit indices"): with_index("gather", lambda index, size: index & 0xFF),
    ("gather", "indices not checked"): wrapped_indices,
    ("gather", "first row's indices for all"): with_index(
        "gather", lambda index, size: np.broadcast_to(index[:1], index.shape)
    ),
    ("index_select", "first dim"): with_attributes("index_select", dim=0),
    ("index_select", "negative dim is 0"): with_attributes("index_select", dim=lambda dim: max(dim, 0)),
    ("index_select", "off by one"): with_index("index_select", lambda index, size: (index + 1) % size),
    ("index_select", "last index clamped"): with_index(
        "index_select", lambda index, size: np.minimum(index, max(size - 2, 0))
    ),
    ("index_select", "sorted"): with_index("index_select", lambda index, size: np.sort(index, axis=None)),
    ("index_select", "8-bit indices"): with_index("index_select", lambda index, size: index & 0xFF),
    ("index_select", "16-bit indices"): with_index("index_select", lambda index, size: index & 0xFFFF),
    ("index_select", "indices not checked"): wrapped_indices,
    ("index_select", "-0 lost"): negative_zero_lost,
    ("embedding", "off by one"): with_index("embedding", lambda index, size: (index + 1) % size),
    ("embedding", "last row never"): with_index("embedding", lambda index, size: np.minimum(index, max(size - 2, 0))),
    ("embedding", "indices not checked"): wrapped_indices,
    ("embedding", "padding row is zeros"): lambda inputs, attributes, right: [
        np.where(
            (inputs[1] == attributes["padding_idx"] % inputs[0].shape[0])[..., None], inputs[0].dtype.type(0), right[0]
        )
        if attributes["padding_idx"] is not None
        else right[0]
    ],
    ("embedding", "8-bit indices"): with_index("embedding", lambda index, size: index & 0xFF),
    ("scatter_add", "first dim"): with_attributes("scatter_add", dim=0),
    ("scatter_add", "negative dim is 0"): with_attributes("scatter_add", dim=lambda dim: max(dim, 0)),
    ("scatter_add", "duplicates lost"): scatter(duplicates_lost),
    ("scatter_add", "overwritten"): scatter(overwritten),
    ("scatter_add", "input ignored"): scatter(without_input),
    ("scatter_add", "one term dropped"): scatter(one_dropped),
    ("scatter_add", "rounded after each term"): scatter(in_half),
    ("scatter_add", "saturates"): saturating,
    ("scatter_add", "indices not checked"): wrapped_indices,
    ("scatter_add", "in place"): in_place,
    ("scatter_add", "16-bit indices"): with_index("scatter_add", lambda index, size: index & 0xFFFF),
    ("gather", "16-bit indices"): with_index("gather", lambda index, size: index & 0xFFFF),
    ("embedding", "16-bit indices"): with_index("embedding", lambda index, size: index & 0xFFFF),
    ("gather", "-0 lost"): negative_zero_lost,
    ("embedding", "-0 lost"): negative_zero_lost,
    ("topk", "-0 lost"): negative_zero_lost,
    ("sort", "-0 lost"): negative_zero_lost,
    ("sort", "in place"): lambda inputs, attributes, right: in_place(inputs, attributes, right[:1]) and right,
    ("topk", "smallest"): choosing(descending=False),
    ("topk", "largest always"): choosing(descending=True),
    ("topk", "rows not in order"): both(rolled_rows),
    ("topk", "one twice"): both(first_twice),
    ("topk", "indices off by one"): both(indices_off_by_one),
    ("topk", "index of the first equal"): both(indices_by_value),
    ("topk", "NaN smallest"): choosing(keys=without_nan),
    ("topk", "by magnitude"): choosing(keys=by_magnitude),
    ("topk", "unsigned keys"): choosing(keys=as_unsigned),
    ("topk", "16-bit keys"): choosing(keys=half_precision),
    ("topk", "last dim always"): with_attributes("topk", dim=-1),
    ("sort", "ascending always"): sorting(descending=False),
    ("sort", "not stable"): sorting(ties_reversed=True),
    ("sort", "rows not in order"): both(rolled_rows),
    ("sort", "one twice"): both(first_twice),
    ("sort", "index of the first equal"): both(indices_by_value),
    ("sort", "NaN smallest"): sorting(keys=without_nan),
    ("sort", "by magnitude"): sorting(keys=by_magnitude),
    ("sort", "unsigned keys"): sorting(keys=as_unsigned),
    ("sort", "16-bit keys"): sorting(keys=half_precision),
    ("sort", "last dim always"): with_attributes("sort", dim=-1),
    ("sort", "stable by reversing"): lambda inputs, attributes, right: ordered(
        inputs[0],
        attributes["dim"],
        count=None,
        descending=attributes["descending"],
        ties_reversed=attributes["descending"],
    ),
}


OPERATORS = ("gather", "index_select", "scatter_add", "embedding", "topk", "sort")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_reference_raises_no_alarm(operator: str) -> None:
    assert unexpected(operator) == []


@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize("operator", OPERATORS)
def test_common_faults_are_found(operator: str, name: str) -> None:
    assert finds(operator, COMMON[name])


@pytest.mark.parametrize(
    ("operator", "place"),
    [(name, place) for name in OPERATORS for place in range(len(operators.get(name).tensors.inputs))],
)
def test_a_layout_that_is_ignored_is_found(operator: str, place: int) -> None:
    found = found_by(operator, read_as_dense(operator, place))
    assert len([name for name in found if "/layouts/" in name]) >= 2, found


@pytest.mark.parametrize(("operator", "name"), SPECIFIC)
def test_faults_of_the_operator_are_found(operator: str, name: str) -> None:
    assert finds(operator, SPECIFIC[operator, name])


def test_another_choice_among_equals_is_right() -> None:
    assert unexpected("topk", choosing(ties_reversed=True)) == []


def test_any_order_is_right_where_it_is_free() -> None:
    def backwards(_: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        if attributes["sorted"] or not right[0].ndim:
            return right
        return [np.flip(each, attributes["dim"]) for each in right]

    assert unexpected("topk", backwards) == []


def test_without_stable_equal_elements_come_in_any_order() -> None:
    def unstable_where_allowed(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        if attributes["stable"]:
            return right
        return sorting(ties_reversed=True)(inputs, attributes, right)

    assert unexpected("sort", unstable_where_allowed) == []


def test_a_sum_in_another_order_is_right() -> None:
    def backwards(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        array, index, src = (np.asarray(each) for each in inputs)
        if array.dtype != np.float32 or not index.size or not index.ndim or attributes["dim"] not in (0, -array.ndim):
            return right
        covered = src[tuple(slice(size) for size in index.shape)]
        with np.errstate(all="ignore"):
            return scattered([array, index[::-1], covered[::-1]], attributes, np.add.at)

    assert unexpected("scatter_add", backwards) == []


@pytest.mark.parametrize("operator", ["gather", "index_select", "scatter_add", "embedding"])
def test_indices_outside_have_to_be_refused(operator: str) -> None:
    found = found_by(operator, wrapped_indices)
    assert sum("/outside/" in name for name in found) == 4
    assert sum("/refused/" in name for name in found) >= 4

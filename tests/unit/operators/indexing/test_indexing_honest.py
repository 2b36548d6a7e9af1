"""The samples of operators that index and order let every right answer be where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import wrong_answers

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import dtype
from optest.testing import assert_right

Array = np.ndarray[Any, Any]
Inputs, Attributes = Sequence[Any], Mapping[str, Any]


def reference(operator: str, inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    return tuple(load_object(str(operators.get(operator).reference))(inputs, attributes))


def ordered(source: Array, dim: int, *, count: int | None, descending: bool) -> tuple[Array, ...]:
    """Elements in order; equal ones, and NaN, against the order of their places."""
    if not np.ndim(source):
        return source.copy(), np.zeros((), np.int64)
    rows = np.moveaxis(widen(source), dim, -1)
    size = rows.shape[-1]
    chosen = np.zeros(rows.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        ranks = np.unique(rows[at], return_inverse=True)[1].reshape(-1).astype(np.int64)
        chosen[at] = np.argsort((-ranks if descending else ranks) * (size + 1) - np.arange(size), kind="stable")
    chosen = np.moveaxis(chosen, -1, dim).take(np.arange(size if count is None else count), dim)
    return np.take_along_axis(source, chosen, dim), chosen


def test_another_choice_among_equals_is_right() -> None:
    def kernel(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        return ordered(inputs[0], attributes["dim"], count=attributes["k"], descending=attributes["largest"])

    assert wrong_answers("topk", kernel) == []


def test_any_order_is_right_where_it_is_free() -> None:
    def backwards(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        right = reference("topk", inputs, attributes)
        if attributes["sorted"] or not right[0].ndim:
            return right
        return tuple(np.flip(each, attributes["dim"]) for each in right)

    assert wrong_answers("topk", backwards) == []


@pytest.mark.heavy
def test_without_stable_equal_elements_come_in_any_order() -> None:
    def unstable_where_allowed(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        if attributes["stable"]:
            return reference("sort", inputs, attributes)
        return ordered(inputs[0], attributes["dim"], count=None, descending=attributes["descending"])

    assert wrong_answers("sort", unstable_where_allowed) == []


def test_a_sum_in_another_order_is_right() -> None:
    def backwards(inputs: Inputs, attributes: Attributes) -> Array | tuple[Array, ...]:
        array, index, src = (np.asarray(each) for each in inputs)
        if array.dtype != np.float32 or not index.size or not array.ndim or attributes["dim"] not in (0, -array.ndim):
            return reference("scatter_add", inputs, attributes)
        total = array.copy()
        places = np.indices(index.shape, sparse=True)
        np.add.at(total, (index[::-1].astype(np.int64), *places[1:]), src[tuple(map(slice, index.shape))][::-1])
        return total

    assert wrong_answers("scatter_add", backwards) == []


def _sums_of_equal_rows(op: str, seed: int) -> tuple[list[Array], dict[str, Any], Array, Array]:
    """Inputs that name 9 or fewer rows often, attributes, float32 terms and the output row of each."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((int(rng.integers(1, 10)), 5), np.float32)
    count = int(rng.integers(200, 2000))
    places, bags = rng.integers(0, len(rows), (3, count)), np.repeat(np.arange(3), count)
    terms = rows[places.reshape(-1)]
    if op == "embedding_bag":
        return [rows, places], {"mode": "mean" if seed % 2 else "sum"}, terms, bags
    target, order = np.zeros((3, 5), np.float32), rng.permutation(len(bags))
    terms, bags = terms[order], bags[order]
    if op == "index_add":
        return [target, bags, terms], {"dim": 0}, terms, bags
    return [target, np.repeat(bags[:, None], 5, 1), terms], {"dim": 0}, terms, bags


def _summed(terms: Array, bags: Array, divisor: int) -> Array:
    total = np.zeros((3, 5), np.float32)
    np.add.at(total, bags, terms)
    return total / np.float32(divisor)


@pytest.mark.parametrize("op", ["embedding_bag", "index_add", "scatter_add"])
def test_sums_of_equal_rows_pass_in_float32_only(op: str) -> None:
    for seed in range(12):
        inputs, attributes, terms, bags = _sums_of_equal_rows(op, seed)
        divisor = len(bags) // 3 if attributes.get("mode") == "mean" else 1
        assert_right(_summed(terms, bags, divisor), op, inputs, attributes=attributes)
    wrong = _summed(round_to(terms, dtype("bfloat16")).astype(np.float32), bags, divisor)
    with pytest.raises(AssertionError):
        assert_right(wrong, op, inputs, attributes=attributes)

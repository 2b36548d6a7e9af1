"""Samples of indexing operators accept every valid result of correct kernels."""

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


def order_with_reversed_ties(source: Array, dim: int, *, count: int | None, descending: bool) -> tuple[Array, ...]:
    """Return elements in order and their indices; equal ones, and NaN, in reverse order of position."""
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


def test_topk_accepts_any_of_equal_elements() -> None:
    def kernel(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        return order_with_reversed_ties(
            inputs[0], attributes["dim"], count=attributes["k"], descending=attributes["largest"]
        )

    assert wrong_answers("topk", kernel) == []


def test_unsorted_topk_accepts_reversed_rows() -> None:
    def backwards(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        right = reference("topk", inputs, attributes)
        if attributes["sorted"] or not right[0].ndim:
            return right
        return tuple(np.flip(x, attributes["dim"]) for x in right)

    assert wrong_answers("topk", backwards) == []


@pytest.mark.heavy
def test_unstable_sort_accepts_any_tie_order() -> None:
    def unstable_where_allowed(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        if attributes["stable"]:
            return reference("sort", inputs, attributes)
        return order_with_reversed_ties(inputs[0], attributes["dim"], count=None, descending=attributes["descending"])

    assert wrong_answers("sort", unstable_where_allowed) == []


def test_scatter_add_accepts_reversed_additions() -> None:
    def backwards(inputs: Inputs, attributes: Attributes) -> Array | tuple[Array, ...]:
        array, index, src = (np.asarray(x) for x in inputs)
        if array.dtype != np.float32 or not index.size or not array.ndim or attributes["dim"] not in (0, -array.ndim):
            return reference("scatter_add", inputs, attributes)
        total = array.copy()
        coordinates = np.indices(index.shape, sparse=True)
        np.add.at(total, (index[::-1].astype(np.int64), *coordinates[1:]), src[tuple(map(slice, index.shape))][::-1])
        return total

    assert wrong_answers("scatter_add", backwards) == []


def _sums_of_equal_rows(op: str, seed: int) -> tuple[list[Array], dict[str, Any], Array, Array]:
    """Return inputs that select 9 or fewer rows often, attributes, float32 terms and the output row of each term."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((int(rng.integers(1, 10)), 5), np.float32)
    count = int(rng.integers(200, 2000))
    indices, bags = rng.integers(0, len(rows), (3, count)), np.repeat(np.arange(3), count)
    terms = rows[indices.reshape(-1)]
    if op == "embedding_bag":
        return [rows, indices], {"mode": "mean" if seed % 2 else "sum"}, terms, bags
    target, order = np.zeros((3, 5), np.float32), rng.permutation(len(bags))
    terms, bags = terms[order], bags[order]
    if op == "index_add":
        return [target, bags, terms], {"dim": 0}, terms, bags
    return [target, np.repeat(bags[:, None], 5, 1), terms], {"dim": 0}, terms, bags


def _sum_bags(terms: Array, bags: Array, divisor: int) -> Array:
    total = np.zeros((3, 5), np.float32)
    np.add.at(total, bags, terms)
    return total / np.float32(divisor)


@pytest.mark.parametrize("op", ["embedding_bag", "index_add", "scatter_add"])
def test_float32_sums_pass_bfloat16_terms_fail(op: str) -> None:
    for seed in range(12):
        inputs, attributes, terms, bags = _sums_of_equal_rows(op, seed)
        divisor = len(bags) // 3 if attributes.get("mode") == "mean" else 1
        assert_right(_sum_bags(terms, bags, divisor), op, inputs, attributes=attributes)
    wrong = _sum_bags(round_to(terms, dtype("bfloat16")).astype(np.float32), bags, divisor)
    with pytest.raises(AssertionError):
        assert_right(wrong, op, inputs, attributes=attributes)

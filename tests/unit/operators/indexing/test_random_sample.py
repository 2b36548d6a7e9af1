"""random_sample: the index that the definition gives, and which others are as right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.operators import operators
from optest.operators.indexing.random_sample_reference import random_sample_alternatives, random_sample_reference

OPERATOR = operators.get("random_sample")


def drawn(logits: Any, value: float, dtype: str = "float32", **attributes: Any) -> int:
    array = np.asarray(logits, np.float64).astype(dtype)
    (out,) = random_sample_reference((array,), OPERATOR.bind({"random_value": value, **attributes}))
    assert out.shape == ()
    return int(out)


def is_right(logits: Any, index: int, value: float, **attributes: Any) -> bool:
    bound = OPERATOR.bind({"random_value": value, **attributes})
    (mask,) = random_sample_alternatives((np.asarray(logits, np.float32),), bound, (np.asarray(index),))
    return bool(mask)


QUARTERS = np.log([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize(
    ("value", "attributes", "index"),
    [
        (0.0, {}, 0),
        (0.39, {}, 0),
        (0.41, {}, 1),
        (0.71, {}, 2),
        (0.95, {}, 3),
        (1.0, {}, 3),
        (0.95, {"top_p": 0.5}, 1),  # 0.475 of the whole
        (0.95, {"top_k": 2}, 1),
        (0.55, {"top_k": 2}, 0),  # 0.55 of 0.7
        (0.99, {"top_k": 1}, 0),
        (0.99, {"top_k": 0}, 0),
        (0.99, {"top_p": 0.0}, 0),
        (0.99, {"temperature": 0.0}, 0),
        (0.75, {"temperature": 0.25}, 1),  # 0.4⁴ of 0.4⁴ + 0.3⁴ + 0.2⁴ + 0.1⁴ is 0.72; the next reaches 0.95
        (0.99, {"top_k": 1000}, 3),
    ],
)
def test_the_first_index_at_which_the_sum_reaches_the_limit(value: float, attributes: Any, index: int) -> None:
    order = [2, 0, 3, 1]  # places of 0.4, 0.3, 0.2, 0.1
    logits = np.empty(4)
    logits[order] = QUARTERS
    assert drawn(logits, value, "float64", **attributes) == order[index]


def test_equal_logits_come_by_index_and_the_largest_that_is_not_finite_is_drawn() -> None:
    assert [drawn(np.zeros(4), value) for value in (0.25, 0.5, 0.75, 1.0)] == [0, 1, 2, 3]
    assert drawn([0.0, np.inf, 1.0], 0.99) == 1
    assert drawn([0.0, np.inf, np.nan], 0.99) == 2
    assert drawn([-np.inf] * 3, 0.99) == 0
    assert drawn([-np.inf, 2.0, -np.inf], 1.0) == 1


@given(st.lists(st.floats(-20, 20, width=16), min_size=1, max_size=40), st.floats(0, 1, width=32), st.data())
def test_what_the_reference_gives_is_drawn_from_what_is_kept(logits: Any, value: float, data: Any) -> None:
    top_k = data.draw(st.integers(0, 50))
    index = drawn(logits, value, top_k=top_k)
    largest = sorted(np.asarray(logits, np.float32), reverse=True)[: max(1, top_k)]
    assert np.float32(logits[index]) in largest
    assert is_right(logits, index, value, top_k=top_k)


def test_other_indices_are_right_only_within_the_error_of_the_sum() -> None:
    logits = np.array([1.0, 0.5, 0.0, -0.5], np.float32)
    shares = np.exp(logits.astype(np.float64))
    edge = float(shares[0] / shares.sum())  # where the answer jumps from 0 to 1
    near = edge * (1 + 2.0**-23)
    assert drawn(logits, near) == 1
    assert is_right(logits, 0, near)
    assert is_right(logits, 1, near)
    assert not is_right(logits, 2, near)
    assert not is_right(logits, 0, edge + 1e-4)
    assert is_right(logits, 1, edge * (1 - 2.0**-23))
    assert not is_right(logits, 1, edge - 1e-4)
    assert not any(is_right(logits, index, 0.5) for index in (-1, 4, 7, 3))


def test_an_exact_tie_has_one_right_answer_and_equal_logits_stand_for_each_other() -> None:
    logits = [0.0, 0.0, -np.inf, -np.inf]
    assert drawn(logits, 0.5) == 0
    assert is_right(logits, 1, 0.5)  # as large as the one at 0
    assert not is_right(logits, 2, 0.5)
    assert not is_right([3.0, 1.0, 3.0], 1, 0.1)
    assert is_right([3.0, 1.0, 3.0], 2, 0.1)


def test_indices_just_fit_their_dtype() -> None:
    assert drawn(np.zeros(128), 1.0, dtype="float32") == 127
    (out,) = random_sample_reference(
        (np.zeros(128, np.float32),), OPERATOR.bind({"random_value": 1.0, "dtype": "int8"})
    )
    assert (out.dtype.name, int(out)) == ("int8", 127)

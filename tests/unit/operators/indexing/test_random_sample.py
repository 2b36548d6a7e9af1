"""random_sample: the reference equals its definition, and only close indices are accepted."""

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


def is_accepted(logits: Any, index: int, value: float, **attributes: Any) -> bool:
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
        (0.95, {"top_p": 0.5}, 1),  # 0.475 of the total
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
def test_first_index_reaching_the_limit_is_drawn(value: float, attributes: Any, index: int) -> None:
    order = [2, 0, 3, 1]  # positions of 0.4, 0.3, 0.2, 0.1
    logits = np.empty(4)
    logits[order] = QUARTERS
    assert drawn(logits, value, "float64", **attributes) == order[index]


def test_nonfinite_maximum_and_first_tie_are_drawn() -> None:
    assert [drawn(np.zeros(4), value) for value in (0.25, 0.5, 0.75, 1.0)] == [0, 1, 2, 3]
    assert drawn([0.0, np.inf, 1.0], 0.99) == 1
    assert drawn([0.0, np.inf, np.nan], 0.99) == 2
    assert drawn([-np.inf] * 3, 0.99) == 0
    assert drawn([-np.inf, 2.0, -np.inf], 1.0) == 1


@given(st.lists(st.floats(-20, 20, width=16), min_size=1, max_size=40), st.floats(0, 1, width=32), st.data())
def test_reference_draws_from_kept_logits(logits: Any, value: float, data: Any) -> None:
    top_k = data.draw(st.integers(0, 50))
    index = drawn(logits, value, top_k=top_k)
    largest = sorted(np.asarray(logits, np.float32), reverse=True)[: max(1, top_k)]
    assert np.float32(logits[index]) in largest
    assert is_accepted(logits, index, value, top_k=top_k)


def test_indices_within_the_sum_error_are_accepted() -> None:
    logits = np.array([1.0, 0.5, 0.0, -0.5], np.float32)
    shares = np.exp(logits.astype(np.float64))
    edge = float(shares[0] / shares.sum())  # where the index changes from 0 to 1
    near = edge * (1 + 2.0**-23)
    assert drawn(logits, near) == 1
    assert is_accepted(logits, 0, near)
    assert is_accepted(logits, 1, near)
    assert not is_accepted(logits, 2, near)
    assert not is_accepted(logits, 0, edge + 1e-4)
    assert is_accepted(logits, 1, edge * (1 - 2.0**-23))
    assert not is_accepted(logits, 1, edge - 1e-4)
    assert not any(is_accepted(logits, index, 0.5) for index in (-1, 4, 7, 3))


def test_equal_logits_are_accepted_at_exact_ties() -> None:
    logits = [0.0, 0.0, -np.inf, -np.inf]
    assert drawn(logits, 0.5) == 0
    assert is_accepted(logits, 1, 0.5)  # as large as the one at 0
    assert not is_accepted(logits, 2, 0.5)
    assert not is_accepted([3.0, 1.0, 3.0], 1, 0.1)
    assert is_accepted([3.0, 1.0, 3.0], 2, 0.1)


def test_largest_index_fits_its_dtype() -> None:
    assert drawn(np.zeros(128), 1.0, dtype="float32") == 127
    (out,) = random_sample_reference(
        (np.zeros(128, np.float32),), OPERATOR.bind({"random_value": 1.0, "dtype": "int8"})
    )
    assert (out.dtype.name, int(out)) == ("int8", 127)

"""How fills adapt to what an operator adds up: `sum_length` and the number of factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sample_questions import question
from texts import refusal

from optest.generators.bounds import exact_magnitude, special_magnitude, special_rate
from optest.spec import Fault


def case(operator: str, shapes: dict[str, Any], generator: Any, dtype: str = "float32", **attributes: Any) -> Any:
    stated = {"shapes": shapes, "dtypes": [dtype], "generator": generator, "attributes": attributes}
    return question(operator, stated).case


CALLS: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    ("conv2d", {"input": [1, 6, 9, 9], "weight": [4, 3, 3, 5]}, {"groups": 2}, 45),
    ("linear", {"input": [2, 3, 33], "weight": [5, 33]}, {}, 33),
    ("gemm", {"a": [17, 3], "b": [17, 5]}, {"trans_a": True}, 17),
    ("einsum", {"operands0": [2, 3, 4], "operands1": [3, 4, 5]}, {"equation": "ijk,jkl->il"}, 12),
    ("avg_pool2d", {"input": [1, 2, 9, 9]}, {"kernel_size": [3, 4]}, 12),
    ("adaptive_avg_pool2d", {"input": [1, 2, 9, 10]}, {"output_size": [2, 5]}, 10),
    ("rope", {"input": [2, 5, 8], "cos": [5, 4], "sin": [5, 4]}, {}, 2),
]


@pytest.mark.parametrize(("operator", "shapes", "attributes", "length"), CALLS)
def test_integer_exact_is_told_the_length_of_the_sum(
    operator: str, shapes: dict[str, Any], attributes: dict[str, Any], length: int
) -> None:
    found = case(operator, shapes, "integer-exact", **attributes)
    assert all(argument.fill.parameters["terms"] == length for argument in found.inputs)
    magnitude = exact_magnitude(found, found.inputs[0])
    assert magnitude**2 * (length + 1) <= 2**24
    assert (magnitude + 1) ** 2 * (length + 1) > 2**24


def test_products_of_three_factors_stay_exact() -> None:
    shapes = {"operands0": [3, 5], "operands1": [5, 7], "operands2": [7, 4]}
    asked = question(
        "einsum", {"shapes": shapes, "generator": "integer-exact", "attributes": {"equation": "ij,jk,kl->il"}}
    )
    magnitude = exact_magnitude(asked.case, asked.case.inputs[0])
    assert magnitude**3 * 36 <= 2**24
    (terms,) = [expected.terms for expected in asked.expected]
    assert np.max(terms.absolute) <= 2**24
    assert special_magnitude(asked.case, asked.case.inputs[0]) ** 3 < 2.0**126


def test_sums_bound_special_and_exact_values() -> None:
    found = case("conv2d", {"input": [1, 64, 9, 9], "weight": [4, 64, 3, 3]}, "special")
    assert special_rate(found, found.inputs[0]) == 1.0 / 576
    short = case("matmul", {"input": [500, 4], "other": [4, 500]}, "special")
    assert special_rate(short, short.inputs[0]) == 0.25
    longest = case("matmul", {"input": [1, 2**12], "other": [2**12, 1]}, "integer-exact")
    assert exact_magnitude(longest, longest.inputs[0]) == 63
    with refusal(Fault, "generators.too_many_for_integer"):
        case("matmul", {"input": [1, 1], "other": [1, 1]}, {"fill": "integer-exact", "terms": 2**25})
    shapes = {"input": [1, 2, 9, 9]}
    found = case("avg_pool2d", shapes, {"fill": "integer-exact", "operands": 1}, kernel_size=[3, 3], divisor_override=1)
    assert exact_magnitude(found, found.inputs[0]) == 2**24 // 10

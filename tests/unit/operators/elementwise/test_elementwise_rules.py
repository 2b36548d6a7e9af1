"""The rules of elementwise operators: scaled sums stay inside, and both sides of a step are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judged_arrays import verdict_of
from references import by_torch

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Status, dtype

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float16", "bfloat16", "float64")


@pytest.mark.torch
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("operator", ["add", "sub"])
@pytest.mark.parametrize("alpha", [-0.3, 2.0, 1000.1])
def test_scaled_sums_stay_inside(operator: str, name: str, alpha: float) -> None:
    rng = np.random.default_rng(1)
    inputs = [round_to(rng.standard_normal(4095) * 3, dtype(name)) for _ in range(2)]  # an odd end for vectors
    assert verdict_of(operator, inputs, by_torch(operator, *inputs, alpha=alpha), alpha=alpha).status is Status.PASSED
    exact = widen(inputs[0]) + (alpha if operator == "add" else -alpha) * widen(inputs[1]).astype(np.longdouble)
    rounded = round_to(exact.astype(np.float64), dtype(name))
    assert verdict_of(operator, inputs, [rounded], alpha=alpha).status is Status.PASSED
    (lost,) = by_torch(operator, *inputs, alpha=alpha * 1.05)
    assert verdict_of(operator, inputs, [lost], alpha=alpha).status is Status.FAILED


# Steps.


def judged(
    operator: str, inputs: list[Any], outputs: list[float], name: str = "float32", **attributes: Any
) -> list[bool]:
    """Element by element, whether it passes."""
    arrays = [round_to(np.asarray(each, np.float64), dtype(name)) for each in inputs]
    got = round_to(np.asarray(outputs, np.float64), dtype(name))
    passed = []
    for k in range(len(outputs)):
        case = [each[k : k + 1] for each in arrays]
        passed.append(verdict_of(operator, case, [got[k : k + 1]], **attributes).status is Status.PASSED)
    return passed


BESIDE = float(np.nextafter(np.float32(6.0), np.float32(0.0)))
"""One ulp below 6: over 2 it lies one ulp below 3, and 1e-7 of 3 away from it."""


@pytest.mark.parametrize(("operator", "attributes"), [("floor_divide", {}), ("div", {"rounding_mode": "trunc"})])
def test_beside_a_step_both_sides_are_right(operator: str, attributes: dict[str, Any]) -> None:
    quotients = [[BESIDE, BESIDE, BESIDE, BESIDE], [2.0, 2.0, 2.0, 2.0]]
    assert judged(operator, quotients, [2.0, 3.0, 1.0, 2.5], **attributes) == [True, True, False, False]
    above = [12.000001, 12.000001, 12.000001]
    assert judged(operator, [above, [4.0] * 3], [3.0, 2.0, 4.0], **attributes) == [True, True, False]


@pytest.mark.parametrize(("operator", "attributes"), [("floor_divide", {}), ("div", {"rounding_mode": "trunc"})])
def test_on_a_step_one_answer_is_right(operator: str, attributes: dict[str, Any]) -> None:
    assert judged(operator, [[6.0, 6.0, 6.0], [2.0, 2.0, 2.0]], [3.0, 2.0, 4.0], **attributes) == [True, False, False]
    assert judged(operator, [[6.001, 6.001], [2.0, 2.0]], [3.0, 2.0], **attributes) == [True, False]
    assert judged(operator, [[-0.5, -0.5], [2.0, 2.0]], [0.0, -1.0], **attributes) == (
        [True, False] if attributes else [False, True]
    )


def test_truncation_has_no_step_at_zero() -> None:
    tiny = [2.0**-149, -(2.0**-149)]
    assert judged("div", [tiny, [8.0, 8.0]], [1.0, -1.0], rounding_mode="trunc") == [False, False]
    assert judged("div", [tiny, [8.0, 8.0]], [0.0, 0.0], rounding_mode="trunc") == [True, True]
    assert judged("floor_divide", [tiny, [8.0, 8.0]], [0.0, 0.0]) == [True, True]
    assert judged("floor_divide", [[-1e-3], [8.0]], [0.0]) == [False]


def test_a_remainder_beside_a_step_may_be_one_divisor_more_or_less() -> None:
    left = BESIDE - 4.0  # 2 - 5e-7
    assert judged("remainder", [[BESIDE] * 4, [2.0] * 4], [left, left - 2.0, 0.0, left - 4.0]) == [
        True,
        True,
        False,
        False,
    ]
    assert judged("remainder", [[6.0] * 2, [2.0] * 2], [0.0, 2.0]) == [True, False]
    assert judged("remainder", [[5.0] * 2, [2.0] * 2], [1.0, -1.0]) == [True, False]


def test_decimals_beside_a_half() -> None:
    """2.675 is 2.67499995 in float32, whose product with 100 is 267.5 there."""
    assert judged("round", [[2.675] * 4], [2.67, 2.68, 2.66, 2.675], decimals=2) == [True, True, False, False]
    assert judged("round", [[0.125] * 3], [0.12, 0.13, 0.11], decimals=2) == [True, False, False]
    assert judged("round", [[25.0] * 2], [20.0, 30.0], decimals=-1) == [True, False]
    assert judged("round", [[2.5] * 2], [2.0, 3.0]) == [True, False]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_steps_in_16_bits(name: str) -> None:
    tenth, half = 0.1, 0.5
    assert judged("floor_divide", [[half] * 2, [tenth] * 2], [4.0, 5.0], name) == (
        [False, True] if float(widen(round_to(0.1, dtype(name)))) <= 0.1 else [True, False]
    )


def test_alternatives_of_integers_and_plain_divisions_are_none() -> None:
    for operator in ("floor_divide", "remainder"):
        hook = load_object(str(operators.get(operator).alternatives))
        whole = np.array([7, -7])
        assert hook([whole, np.array([2, 2])], {}, [whole]) == (None,)
    division = load_object(str(operators.get("div").alternatives))
    value = np.array([1.0])
    assert division([value, value], {"rounding_mode": None}, [value]) == (None,)
    assert load_object(str(operators.get("round").alternatives))([value], {"decimals": 0}, [value]) == (None,)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FLOATS)
def test_alternatives_of_special_values_warn_nobody(name: str) -> None:
    values = round_to(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, 1e30, -1e-30]), dtype(name))
    for operator, attributes in (("floor_divide", {}), ("remainder", {}), ("div", {"rounding_mode": "trunc"})):
        descriptor = operators.get(operator)
        inputs = [values[:, None], values]
        (out,) = load_object(str(descriptor.reference))(inputs, descriptor.bind(attributes))
        got = round_to(out, dtype(name))
        (mask,) = load_object(str(descriptor.alternatives))(inputs, descriptor.bind(attributes), [got])
        assert mask.shape == out.shape
        assert mask.dtype == bool
    (mask,) = load_object(str(operators.get("round").alternatives))([values], {"decimals": 1}, [values])
    assert mask.dtype == bool


@pytest.mark.parametrize(("name", "top"), [("float16", 65504.0), ("float8_e5m2", 57344.0)])
@pytest.mark.parametrize("saturate", [False, True])
def test_cast_beyond_the_range(name: str, top: float, saturate: bool) -> None:
    """The largest finite value is right where ``saturate`` says so, and there alone."""
    x = np.array([70000.0, -1e6, 1.0], np.float32)
    limited = round_to(np.array([top, -top, 1.0]), dtype(name))
    unlimited = round_to(x.astype(np.float64), dtype(name))
    for output, is_right in ((limited, saturate), (unlimited, not saturate)):
        verdict = verdict_of("cast", [x], [output], dtype=name, saturate=saturate)
        assert (verdict.status is Status.PASSED) == is_right, output

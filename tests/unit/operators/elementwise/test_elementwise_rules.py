"""Rules of elementwise operators: bounds of scaled sums, and both neighbours of a quotient near an integer."""

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
def test_scaled_sums_pass_their_rule(operator: str, name: str, alpha: float) -> None:
    rng = np.random.default_rng(1)
    inputs = [round_to(rng.standard_normal(4095) * 3, dtype(name)) for _ in range(2)]  # no multiple of a vector
    assert verdict_of(operator, inputs, by_torch(operator, *inputs, alpha=alpha), alpha=alpha).status is Status.PASSED
    exact = widen(inputs[0]) + (alpha if operator == "add" else -alpha) * widen(inputs[1]).astype(np.longdouble)
    rounded = round_to(exact.astype(np.float64), dtype(name))
    assert verdict_of(operator, inputs, [rounded], alpha=alpha).status is Status.PASSED
    (wrong,) = by_torch(operator, *inputs, alpha=alpha * 1.05)
    assert verdict_of(operator, inputs, [wrong], alpha=alpha).status is Status.FAILED


def accepted(
    operator: str, inputs: list[float], outputs: list[float], name: str = "float32", **attributes: Any
) -> list[float]:
    """Return the outputs that pass, of ``outputs`` for a call with one element in each input."""
    arrays = [round_to(np.array([x]), dtype(name)) for x in inputs]
    return [
        output
        for output in outputs
        if verdict_of(operator, arrays, [round_to(np.array([output]), dtype(name))], **attributes).status
        is Status.PASSED
    ]


# One ulp below 6: its half is one ulp below 3.
BELOW_6 = float(np.nextafter(np.float32(6.0), np.float32(0.0)))
ROUNDED_QUOTIENTS = pytest.mark.parametrize(
    ("operator", "attributes"), [("floor_divide", {}), ("div", {"rounding_mode": "trunc"})]
)


@ROUNDED_QUOTIENTS
def test_near_integer_quotient_accepts_both_neighbours(operator: str, attributes: dict[str, Any]) -> None:
    assert accepted(operator, [BELOW_6, 2.0], [2.0, 3.0, 1.0, 2.5], **attributes) == [2.0, 3.0]
    assert accepted(operator, [12.000001, 4.0], [3.0, 2.0, 4.0], **attributes) == [3.0, 2.0]


@ROUNDED_QUOTIENTS
def test_integer_quotient_accepts_one_result(operator: str, attributes: dict[str, Any]) -> None:
    assert accepted(operator, [6.0, 2.0], [3.0, 2.0, 4.0], **attributes) == [3.0]
    assert accepted(operator, [6.001, 2.0], [3.0, 2.0], **attributes) == [3.0]
    assert accepted(operator, [-0.5, 2.0], [0.0, -1.0], **attributes) == [0.0 if attributes else -1.0]


@pytest.mark.parametrize("tiny", [2.0**-149, -(2.0**-149)])
def test_tiny_quotient_truncates_to_zero(tiny: float) -> None:
    assert accepted("div", [tiny, 8.0], [1.0, -1.0, 0.0], rounding_mode="trunc") == [0.0]
    assert accepted("floor_divide", [tiny, 8.0], [0.0]) == [0.0]
    assert accepted("floor_divide", [-1e-3, 8.0], [0.0]) == []


def test_remainder_accepts_neighbour_of_near_integer_quotient() -> None:
    rest = BELOW_6 - 4.0  # 2 - 5e-7
    assert accepted("remainder", [BELOW_6, 2.0], [rest, rest - 2.0, 0.0, rest - 4.0]) == [rest, rest - 2.0]
    assert accepted("remainder", [6.0, 2.0], [0.0, 2.0]) == [0.0]
    assert accepted("remainder", [5.0, 2.0], [1.0, -1.0]) == [1.0]


def test_round_accepts_both_neighbours_of_near_tie() -> None:
    # 2.675 is 2.67499995 in float32, whose product with 100 is 267.5 there.
    assert accepted("round", [2.675], [2.67, 2.68, 2.66, 2.675], decimals=2) == [2.67, 2.68]
    assert accepted("round", [0.125], [0.12, 0.13, 0.11], decimals=2) == [0.12]
    assert accepted("round", [25.0], [20.0, 30.0], decimals=-1) == [20.0]
    assert accepted("round", [2.5], [2.0, 3.0]) == [2.0]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_floor_divide_in_16_bits(name: str) -> None:
    quotient = 5.0 if float(widen(round_to(0.1, dtype(name)))) <= 0.1 else 4.0
    assert accepted("floor_divide", [0.5, 0.1], [4.0, 5.0], name) == [quotient]


def test_exact_results_have_no_alternatives() -> None:
    for operator in ("floor_divide", "remainder"):
        hook = load_object(str(operators.get(operator).alternatives))
        integers = np.array([7, -7])
        assert hook([integers, np.array([2, 2])], {}, [integers]) == (None,)
    division = load_object(str(operators.get("div").alternatives))
    value = np.array([1.0])
    assert division([value, value], {"rounding_mode": None}, [value]) == (None,)
    assert load_object(str(operators.get("round").alternatives))([value], {"decimals": 0}, [value]) == (None,)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FLOATS)
def test_alternatives_of_special_values_do_not_warn(name: str) -> None:
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
def test_cast_beyond_range_follows_saturate(name: str, top: float, saturate: bool) -> None:
    # With saturate the largest finite value is right, without it infinity.
    x = np.array([70000.0, -1e6, 1.0], np.float32)
    limited = round_to(np.array([top, -top, 1.0]), dtype(name))
    unlimited = round_to(x.astype(np.float64), dtype(name))
    for output, is_right in ((limited, saturate), (unlimited, not saturate)):
        verdict = verdict_of("cast", [x], [output], dtype=name, saturate=saturate)
        assert (verdict.status is Status.PASSED) == is_right, output

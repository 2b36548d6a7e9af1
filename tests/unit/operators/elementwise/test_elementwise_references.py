"""References of elementwise operators and activations: against torch in float64, exact arithmetic, and 60 digits."""

from __future__ import annotations

import math
import operator as py
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import INTEGERS, by_torch, expected
from texts import says

from optest.numerics import numpy_dtype
from optest.operators import operators
from optest.operators.elementwise.cast_reference import cast_reference
from optest.registry import load_object
from optest.spec import dtype

Array = np.ndarray[Any, Any]

NAN, INF = math.nan, math.inf


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("name", INTEGERS)
def test_rounded_integer_quotients_match_torch(name: str, mode: str) -> None:
    entry = dtype(name)
    values = np.arange(max(entry.min_int + 1, -30), 31).astype(numpy_dtype(entry))
    divisors = values[values != 0][:, None]
    got = expected("div", values, divisors, rounding_mode=mode)
    assert np.array_equal(got, by_torch("div", values, divisors, rounding_mode=mode)[0])


def test_mixed_operands_promote_as_in_torch() -> None:
    # 0-d operands may be read in two ways: tests/unit/core/test_operand_readings.py.
    large = np.array([2**24 + 1])
    assert expected("eq", large, np.array([2.0**24], np.float32)).tolist() == [True]
    assert expected("eq", np.array([200], np.uint8), np.array([-56], np.int8)).tolist() == [False]
    assert expected("maximum", np.array([3], np.int8), np.array([200], np.uint8)).tolist() == [200]
    assert expected("bitwise_or", np.array([True, False]), np.array([2, 4])).tolist() == [3, 4]


def test_where_keeps_bits() -> None:
    payload = np.array([0x7FC00001, 0x80000000, 1], np.uint32).view(np.float32)
    other = np.array([1.0, 2.0, 3.0], np.float32)
    got = expected("where", np.array([True, True, False]), payload, other)
    assert got.view(np.uint32).tolist() == [0x7FC00001, 0x80000000, 0x40400000]
    mixed = expected("where", np.array([[True], [False]]), np.array([2**60 + 1]), np.array([0.5], np.float32))
    assert mixed.tolist() == [[2.0**60], [0.5]]


def test_signs_of_zero() -> None:
    zeros = np.array([0.0, -0.0])
    assert np.signbit(expected("neg", zeros)).tolist() == [True, False]
    assert np.signbit(expected("abs", zeros)).tolist() == [False, False]
    assert expected("rsqrt", zeros).tolist() == [INF, -INF]
    assert expected("reciprocal", zeros).tolist() == [INF, -INF]
    assert np.signbit(expected("ceil", np.array([-0.5])))[0]


def test_sign_and_logic_of_nan() -> None:
    nan = np.array([NAN], np.float32)
    assert expected("sign", nan).tolist() == [0]
    assert expected("logical_not", nan).tolist() == [False]
    assert expected("sign", np.array([True, False])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("operator", "left", "right", "undefined"),
    [
        ("floor_divide", [1, 2], [1, 0], [False, True]),
        ("remainder", [1, 2], [1, 0], [False, True]),
        ("floor_divide", [np.iinfo(np.int32).min], [-1], [True]),
    ],
)
def test_undefined_integer_quotients(operator: str, left: list[int], right: list[int], undefined: list[bool]) -> None:
    # Every result is accepted, and so is an exception.
    descriptor, inputs = operators.get(operator), [np.array(left, np.int32), np.array(right, np.int32)]
    assert says(load_object(descriptor.may_refuse)(inputs, {}), "operators.has_no_right_answer")
    (as_right,) = load_object(descriptor.alternatives)(inputs, {}, [np.full(len(left), 99, np.int32)])
    assert as_right.mask.tolist() == undefined


numbers = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6)
divisors = numbers.filter(lambda x: x != 0)


@given(numbers, divisors)
@settings(max_examples=80, deadline=None)
def test_quotients_and_remainders_match_fractions(a: float, b: float) -> None:
    for kind in (np.float32, np.float64):
        x, y = np.array([a], kind), np.array([b], kind)
        whole, left = divmod(Fraction(a), Fraction(b))
        assert expected("floor_divide", x, y)[0] == float(whole)
        assert expected("remainder", x, y)[0] == float(left)
        assert expected("div", x, y, rounding_mode="trunc")[0] == float(math.trunc(Fraction(a) / Fraction(b)))


@given(st.integers(-128, 127), st.integers(-128, 127))
@settings(max_examples=80, deadline=None)
def test_int8_operators_match_python(a: int, b: int) -> None:
    x, y = np.array([a], np.int8), np.array([b], np.int8)

    def wrapped(value: int) -> int:
        return (value + 128) % 256 - 128

    for name, function in (("add", py.add), ("sub", py.sub), ("mul", py.mul)):
        assert expected(name, x, y)[0] == wrapped(function(a, b))
    for name, function in (("bitwise_and", py.and_), ("bitwise_or", py.or_), ("bitwise_xor", py.xor)):
        assert expected(name, x, y)[0] == function(a, b)
    for name, function in (("eq", py.eq), ("ne", py.ne), ("lt", py.lt), ("le", py.le), ("gt", py.gt), ("ge", py.ge)):
        assert bool(expected(name, x, y)[0]) is function(a, b)
    assert expected("neg", x)[0] == wrapped(-a)
    assert expected("abs", x)[0] == wrapped(abs(a))
    if b >= 0:
        assert expected("pow", x, y)[0] == wrapped(a**b)
    else:
        assert expected("pow", x, y)[0] == (a if a == -1 and b % 2 else 1 if abs(a) == 1 else 0)


@given(st.floats(-1e5, 1e5, width=32), st.integers(-2, 4))
@settings(max_examples=80, deadline=None)
def test_round_matches_decimal(x: float, decimals: int) -> None:
    got = expected("round", np.array([x], np.float32), decimals=decimals)[0]
    want = Decimal(x).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_EVEN)
    assert got == pytest.approx(float(want), rel=1e-15, abs=0)


_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
)


def _series(
    first: Decimal, x: Decimal, divisor: Callable[[int], int], weight: Callable[[int], int] = lambda k: 1
) -> Decimal:
    """Return Σ tₖ / weight(k) with t₀ = first and tₖ = −x²·tₖ₋₁ / divisor(k), to 90 digits."""
    term, total, k = first, first, 1
    while abs(term) > Decimal(10) ** -90:
        term *= -x * x / divisor(k)
        total += term / weight(k)
        k += 1
    return total


def _sine(x: Decimal) -> Decimal:
    return _series(x, x, lambda k: 2 * k * (2 * k + 1))


def _cosine(x: Decimal) -> Decimal:
    return _series(Decimal(1), x, lambda k: (2 * k - 1) * 2 * k)


def _erf(x: Decimal) -> Decimal:
    return _series(x, x, lambda k: k, lambda k: 2 * k + 1) * 2 / _PI.sqrt()


def _sigmoid(x: Decimal) -> Decimal:
    return 1 / (1 + (-x).exp())


DIGITS: dict[str, tuple[Callable[[Decimal], Decimal], float, float]] = {
    "exp": (lambda x: x.exp(), -80, 80),
    "expm1": (lambda x: x.exp() - 1, -30, 30),
    "log": (lambda x: x.ln(), 1e-6, 1e6),
    "log1p": (lambda x: (1 + x).ln(), -0.999, 1e3),
    "sqrt": (lambda x: x.sqrt(), 1e-6, 1e6),
    "rsqrt": (lambda x: 1 / x.sqrt(), 1e-6, 1e6),
    "reciprocal": (lambda x: 1 / x, 1e-6, 1e6),
    "sin": (_sine, -100, 100),
    "cos": (_cosine, -100, 100),
    "tanh": (lambda x: 1 - 2 / ((2 * x).exp() + 1), -20, 20),
    "erf": (_erf, -5, 5),
    "sigmoid": (_sigmoid, -80, 80),
    "silu": (lambda x: x * _sigmoid(x), -80, 80),
    "softplus": (lambda x: (1 + x.exp()).ln(), -80, 20),
    "elu": (lambda x: x if x > 0 else x.exp() - 1, -80, 5),
}


@pytest.mark.parametrize("operator", DIGITS)
def test_functions_match_110_digits(operator: str) -> None:
    # Float32: a hundredth of an ulp. Float64: 0.51 ulp with a wider long double; erf is the C library's.
    function, low, high = DIGITS[operator]
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.uniform(low, high, 60), rng.uniform(max(low, -1), min(high, 1), 60)])
    if low < 0:
        x = np.concatenate([x, 10.0 ** rng.uniform(-12, -1, 30) * rng.choice([-1.0, 1.0], 30)])
    with localcontext() as context:
        context.prec = 110
        for kind, ulp, most in (
            (np.float32, 2.0**-23, 0.01),
            (np.float64, 2.0**-52, 0.51 if operator != "erf" else 1.0),
        ):
            values = x.astype(kind)
            exact = [function(Decimal(float(value))) for value in values]
            got = expected(operator, values)
            errors = [abs(Decimal(float(g)) - e) / abs(e) for g, e in zip(got, exact, strict=True)]
            spacing = [Decimal(ulp) * Decimal(2.0 ** math.floor(math.log2(abs(float(e))))) / abs(e) for e in exact]
            assert max(a / b for a, b in zip(errors, spacing, strict=True)) <= most


@pytest.mark.parametrize("value", [1e5, 1e10, 2.0**100, 3.4e38])
def test_sine_and_cosine_of_large_arguments(value: float) -> None:
    with localcontext() as context:
        context.prec = 160
        if value > 1e10:
            x = np.array([value], np.float32)
            assert expected("sin", x)[0] == pytest.approx(math.sin(float(x[0])), rel=1e-12)
            return
        rest = Decimal(value) % (2 * _PI)
        assert expected("sin", np.array([value]))[0] == pytest.approx(float(_sine(rest)), rel=1e-14)
        assert expected("cos", np.array([value]))[0] == pytest.approx(float(_cosine(rest)), rel=1e-14)


@given(st.floats(0.125, 8.0, width=32), st.floats(-4.0, 4.0, width=32))
@settings(max_examples=80, deadline=None)
def test_powers_in_60_digits(base: float, exponent: float) -> None:
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(base) ** Decimal(exponent)
        for kind, most in ((np.float32, 1e-12), (np.float64, 1.2e-16)):
            got = expected("pow", np.array([base], kind), np.array([exponent], kind))[0]
            assert abs(Decimal(float(got)) - exact) <= Decimal(most) * exact


def test_swiglu_is_silu_times_up() -> None:
    rng = np.random.default_rng(11)
    gate, up = rng.standard_normal((3, 8)), rng.standard_normal((3, 8))
    want = expected("silu", gate) * up
    np.testing.assert_allclose(expected("swiglu", gate, up), want, rtol=4e-16)
    np.testing.assert_allclose(expected("swiglu", np.concatenate([gate, up], -1)), want, rtol=4e-16)


@pytest.mark.parametrize(("saturate", "expected"), [(True, [-448.0, 448.0, 448.0]), (False, [-32768.0, 500.0, 448.0])])
def test_cast_of_integers_beyond_float_range(saturate: bool, expected: list[float]) -> None:
    # Left unrounded: float8_e4m3fn has NaN for infinity, and a kernel that saturates must pass with the largest number.
    values = np.array([-32768, 500, 448], np.int16)
    (out,) = cast_reference((values,), {"dtype": "float8_e4m3fn", "saturate": saturate})
    assert out.tolist() == expected

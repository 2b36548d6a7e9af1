"""References of quantization against exact fractions and torch, accepted neighbours, and error terms."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import expected, inferred, spec
from texts import refusal

from optest.numerics import numpy_dtype, round_to, widen
from optest.operators import operators
from optest.operators.quantization.quantize import INTEGERS, dequantize_domain, quantize_domain
from optest.operators.quantization.quantize_reference import dequantize_terms, quantize_alternatives
from optest.spec import Fault, Interval, Reason, dtype

Array = np.ndarray[Any, Any]
FLOAT = np.float32
many = settings(deadline=None, max_examples=150)


def exactly(x: float, scale: float, zero_point: int, low: int, high: int) -> int:
    """Return the quantized value by exact fractions; Python rounds a Fraction half to even."""
    return min(max(round(Fraction(x) / Fraction(scale)) + zero_point, low), high)


WIDE = st.floats(-1000, 1000, width=32)
SCALES = st.one_of(st.floats(0.0078125, 8, width=32), st.sampled_from((0.25, 0.5, 1.0, 2.0, 3.0, 49.0)))


@given(
    st.lists(WIDE, min_size=1, max_size=8), SCALES, st.integers(-128, 127), st.sampled_from(("int8", "uint8", "int32"))
)
@many
def test_quantize_equals_its_definition(values: list[float], scale: float, zero_point: int, name: str) -> None:
    entry = dtype(name)
    zero_point = max(zero_point, entry.min_int)
    output = expected(
        "quantize", np.array(values, FLOAT), np.array(scale, FLOAT), np.array(zero_point, numpy_dtype(entry))
    )
    assert output.tolist() == [exactly(x, scale, zero_point, entry.min_int, entry.max_int) for x in values]


def test_ties_round_to_even_before_zero_point() -> None:
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], FLOAT)
    one = np.array(1.0, FLOAT)
    assert expected("quantize", x, one, np.array(0, np.int8)).tolist() == [-2, 0, 0, 2, 2]
    assert expected("quantize", x, one, np.array(3, np.int8)).tolist() == [1, 3, 3, 5, 5]


def test_quantize_saturates_infinity() -> None:
    x = np.array([-np.inf, -3e38, -129, 128, 3e38, np.inf], FLOAT)
    one = np.array(1.0, FLOAT)
    assert expected("quantize", x, one, np.array(0, np.int8)).tolist() == [-128] * 3 + [127] * 3
    assert expected("quantize", x, one, np.array(5, np.uint8)).tolist() == [0, 0, 0, 133, 255, 255]
    assert expected("quantize", x, one, np.array(1, np.int32)).tolist()[::5] == [-(2**31), 2**31 - 1]
    assert expected("quantize", x, one, dtype="int8", quant_min=-127, quant_max=7).tolist()[::5] == [-127, 7]


def test_quantize_reports_nan_as_bad_case() -> None:
    for x, scale in ((np.nan, 1.0), (1.0, np.nan), (0.0, 0.0), (np.inf, np.inf)):
        with refusal(Fault, "operators.no_integer_is_defined") as caught:
            expected("quantize", np.array([x], FLOAT), np.array(scale, FLOAT))
        assert caught.value.reason is Reason.BAD_CASE


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_channels_use_their_own_scale(axis: int) -> None:
    rng = np.random.default_rng(axis + 1)
    x = rng.standard_normal((3, 4, 5)).astype(FLOAT) * 10
    scale = rng.uniform(0.1, 1, x.shape[axis]).astype(FLOAT)
    zero_point = rng.integers(-9, 9, x.shape[axis]).astype(np.int8)
    output = expected("quantize", x, scale, zero_point, axis=axis)
    back = expected("dequantize", output, scale, zero_point, axis=axis)
    for channel in range(x.shape[axis]):
        parameters = [np.array(x[channel]) for x in (scale, zero_point)]
        part = x.take(channel, axis)
        assert np.array_equal(output.take(channel, axis), expected("quantize", part, *parameters))
        assert np.array_equal(back.take(channel, axis), expected("dequantize", output.take(channel, axis), *parameters))


@pytest.mark.parametrize("name", INTEGERS)
def test_dequantize_is_exact(name: str) -> None:
    entry = dtype(name)
    q = np.array([entry.min_int, entry.max_int, 0, 1]).astype(numpy_dtype(entry))
    zero_point, scale = np.array(entry.max_int).astype(numpy_dtype(entry)), np.array(0.1, FLOAT)
    output = expected("dequantize", q, scale, zero_point)
    assert output.tolist() == [float((int(x) - entry.max_int) * Fraction(float(scale))) for x in widen(q)]


def test_output_dtype_follows_attribute_or_parameters() -> None:
    x, scale = np.zeros(3, FLOAT), np.array(1.0, FLOAT)
    assert expected("quantize", x, scale).dtype == np.uint8
    assert expected("quantize", x, scale, np.array(0, np.int8)).dtype == np.int8
    assert expected("quantize", x, scale, np.array(0, np.int64), dtype="int8").dtype == np.int8
    q, half = spec((3,), "int8"), spec((), "float16")
    assert inferred("dequantize", q, half, dtype="bfloat16") == [("bfloat16", (3,))]
    assert inferred("dequantize", q, half) == [("float16", (3,))]


def accepted(x: list[float], scale: float, integers: list[int], name: str = "int8", zero_point: int = 0) -> list[bool]:
    inputs = [np.array(x, FLOAT), np.array(scale, FLOAT), np.array(zero_point, numpy_dtype(dtype(name)))]
    actual = [np.array(integers, numpy_dtype(dtype(name)))]
    (mask,) = quantize_alternatives(inputs, operators.get("quantize").bind({}), actual)
    return mask.tolist()


def test_exact_tie_accepts_only_the_even() -> None:
    assert accepted([0.5, 1.5, 2.5], 1.0, [0, 2, 2]) == [True] * 3
    assert accepted([0.5, 1.5, 2.5], 1.0, [1, 1, 3]) == [False] * 3
    assert accepted([1.5 * 3, 2.5 * 3], 3.0, [1, 3]) == [False] * 2
    assert accepted([2.5], 1.0, [6], zero_point=3) == [False]


def test_near_tie_accepts_both_neighbours() -> None:
    beside = float(np.nextafter(FLOAT(2.5), FLOAT(3)))
    assert accepted([beside] * 4, 1.0, [2, 3, 4, 1]) == [True, True, False, False]
    far = 2.5 * (1 + 2.0**-20)
    assert accepted([far, far], 1.0, [2, 3]) == [False, True]
    assert accepted([0.3, 0.3], 0.2, [1, 2]) == [True, True]  # 1.5 except for the roundings of 0.3 and 0.2


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_scale_accepts_half_quotient(name: str) -> None:
    half = numpy_dtype(dtype(name))
    x, scale = np.linspace(-127, 127, 257).astype(half), np.array([0.3], half)
    quotient = round_to(x.astype(np.float64) / scale.astype(np.float64), dtype(name)).astype(np.float64)
    output = np.rint(quotient).astype(np.int32)
    assert (output != expected("quantize", x, scale, dtype="int32")).any()
    assert _is_accepted(x, scale, output).all()
    assert not _is_accepted(x, scale, output + 3).any()


def test_float32_scale_rejects_half_quotient() -> None:
    x, s = np.array([97.25], np.float16), np.array([0.3], FLOAT)  # 324.17, 324.25 in float16, 324 in bfloat16
    assert _is_accepted(x, s, np.array([324], np.int32)).all()
    x = np.array([58.36], np.float16)  # 194.53, and 194.5 in float16
    assert _is_accepted(x, s, np.array([195], np.int32)).all()
    assert not _is_accepted(x, s, np.array([194], np.int32)).any()
    assert _is_accepted(x, s.astype(np.float16), np.array([194], np.int32)).all()


def test_large_quotients_accept_several_integers() -> None:
    quotient = 2.0**27
    assert accepted([quotient] * 3, 1.0, [2**27, 2**27 + 40, 2**27 + 60], "int32") == [True, True, False]
    assert accepted([1e12], 1.0, [2**31 - 1], "int32") == [True]


@given(st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=16), SCALES)
@many
def test_float32_quotients_are_accepted(values: list[float], scale: float) -> None:
    x, s = np.array(values, FLOAT), np.array(scale, FLOAT)
    right = expected("quantize", x, s, dtype="int32")
    (divided, inverted) = (np.rint(v).astype(np.int32) for v in (x / s, x * (FLOAT(1) / s)))
    assert np.array_equal(divided, right) or _is_accepted(x, s, divided)[divided != right].all()
    if math.frexp(scale)[0] == 0.5 or not _has_tie(x, s):
        assert _is_accepted(x, s, inverted)[inverted != right].all()


def _has_tie(x: Array, s: Array) -> bool:
    return any((Fraction(float(v)) / Fraction(float(s))).denominator == 2 for v in x)


def _is_accepted(x: Array, s: Array, integers: Array) -> Array:
    (mask,) = quantize_alternatives([x, s], operators.get("quantize").bind({"dtype": "int32"}), [integers])
    return np.asarray(mask)


def test_domains_are_within_the_dtypes() -> None:
    x, scale = spec((3,)), spec(())
    for name in INTEGERS:
        entry = dtype(name)
        zero_point = spec((), name)
        for domain in (
            quantize_domain((x, scale, zero_point), {}),
            quantize_domain((x, scale, None), {"dtype": name}),
            dequantize_domain((spec((3,), name), scale, zero_point), {}),
        ):
            interval = domain["zero_point"]
            assert isinstance(interval, Interval)
            assert entry.min_int <= interval.low < interval.high <= entry.max_int
            assert domain["scale"].low > 0


@pytest.mark.parametrize("result", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [1, 17, 4096, 65536])
def test_float32_dequantize_is_within_the_terms(result: str, width: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        for name in ("int8", "uint8", "int32"):
            entry = dtype(name)
            q = rng.integers(entry.min_int, entry.max_int, width, endpoint=True).astype(numpy_dtype(entry))
            zero_point = rng.integers(0, 100, ()).astype(numpy_dtype(entry))
            scale = np.array(rng.uniform(0.01, 1), FLOAT)
            exact = expected("dequantize", q, scale, zero_point)
            (budget,) = dequantize_terms([q, scale, zero_point], {"axis": 1})
            assert name == "int32" or not np.any(budget.worst)
            output = round_to(((q.astype(FLOAT) - zero_point.astype(FLOAT)) * scale).astype(np.float64), dtype(result))
            allowed = 2.0**-24 * (np.abs(exact) + budget.worst)
            allowed = allowed + (
                0 if result == "float32" else 2.0 ** -dtype(result).precision * (np.abs(exact) + allowed)
            )
            is_in_range = np.abs(exact) + allowed < dtype(result).max_finite  # int32 · scale is beyond float16
            assert name == "int32" or is_in_range.all()
            assert (np.abs(widen(output)[is_in_range] - exact[is_in_range]) <= allowed[is_in_range]).all()


@pytest.mark.torch
def test_quantize_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((7, 33)) * 40).astype(FLOAT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's quantized tensors are deprecated, but define these operators
        for name, theirs in (("int8", torch.qint8), ("uint8", torch.quint8), ("int32", torch.qint32)):
            zero_point = 3
            expected_output = torch.quantize_per_tensor(torch.from_numpy(x), 0.25, zero_point, theirs)
            output = expected("quantize", x, np.array(0.25, FLOAT), np.array(zero_point, numpy_dtype(dtype(name))))
            assert np.array_equal(output, expected_output.int_repr().numpy())
            back = expected("dequantize", output, np.array(0.25, FLOAT), np.array(zero_point, output.dtype))
            assert np.array_equal(back.astype(FLOAT), expected_output.dequantize().numpy())
        scales = np.array([0.25, 0.5, 1, 2, 4, 0.125, 8], FLOAT)
        points = np.arange(7)
        channels = torch.quantize_per_channel(
            torch.from_numpy(x), torch.from_numpy(scales), torch.from_numpy(points), 0, torch.qint8
        )
    output = expected("quantize", x, scales, points, axis=0, dtype="int8")
    assert np.array_equal(output, channels.int_repr().numpy())

"""References against torch in float64, exact integers, and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from references import FLOATS, INTEGERS, double, drawn, expected

from optest.numerics import dtype_of, numpy_dtype, round_to, widen
from optest.operators import operators
from optest.operators.real_functions import normal_tail
from optest.registry import load_object
from optest.spec import Fault, dtype

Array = np.ndarray[Any, Any]

NAN, INF = math.nan, math.inf


def to_torch(array: Array) -> Any:
    torch = pytest.importorskip("torch")
    name = dtype_of(array.dtype).name
    if array.dtype.kind == "V" or name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = np.ascontiguousarray(array).view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(bits.copy()).view(getattr(torch, name))
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape).copy())


def close(got: Array, want: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(got, want.numpy(), rtol=2e-14, atol=2e-15 * scale, equal_nan=True)


def test_layer_norm_of_large_doubles_is_exact() -> None:
    x = 1e8 + np.random.default_rng(0).standard_normal(51)
    exact = [Fraction(float(each)) for each in x]
    mean = sum(exact) / 51
    variance = float(sum((each - mean) ** 2 for each in exact) / 51)
    want = np.array([float(each - mean) for each in exact]) / math.sqrt(variance + 1e-5)
    got = expected("layer_norm", x, normalized_shape=[51])
    assert np.max(np.abs(got - want) / np.abs(want)) < 2e-15


def test_layer_norm_of_constant_is_exactly_the_bias() -> None:
    x = np.full((2, 1000), 0.1, np.float32)
    bias = drawn((1000,), "float32")
    got = expected("layer_norm", x, None, bias, normalized_shape=[1000])
    assert np.array_equal(got, np.broadcast_to(bias.astype(np.float64), got.shape))


@pytest.mark.torch
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool", "float8_e4m3fn", "float8_e5m2", "uint16", "uint64"])
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, "bool", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32"])
def test_cast_as_torch(name: str, target: str) -> None:
    x = drawn((5, 37), name)
    if dtype(name).is_float:
        # Through float32, as torch goes to the narrow types; positive, as unsigned targets take nothing else.
        x = round_to(np.abs(drawn((5, 37), "float32").astype(np.float64)) * 9.7, dtype(name))
        if dtype(target).kind.value in ("int", "float"):
            x = np.where(np.arange(37) % 2 == 0, x, -x).astype(x.dtype)
    got = round_to(expected("cast", x, dtype=target), dtype(target))
    import torch

    want = to_torch(x).to(getattr(torch, target))
    assert got.tobytes() == want.contiguous().view(torch.uint8).numpy().tobytes()


def test_cast_truncates_towards_zero() -> None:
    x = np.array([-1.9, -0.5, -0.0, 0.5, 1.9, 126.99], np.float32)
    assert expected("cast", x, dtype="int8").tolist() == [-1, 0, 0, 0, 1, 126]
    assert expected("cast", np.array([2.0**63, 2.0**64 - 2048]), dtype="uint64").tolist() == [2**63, 2**64 - 2048]


@pytest.mark.parametrize(
    ("value", "target"), [(NAN, "int32"), (INF, "uint8"), (128.0, "int8"), (-129.0, "int8"), (256.0, "uint8")]
)
def test_cast_beyond_range_is_a_bad_case(value: float, target: str) -> None:
    x = np.array([[1.0, 2.0], [value, 3.0]], np.float32)
    with pytest.raises(Fault, match=rf"input is {value} at \[1, 0\], expected a value in the range of {target}"):
        load_object(operators.get("cast").reference)([x], {"dtype": target})


def test_cast_of_integers_wraps_and_rounds_once() -> None:
    x = np.array([300, -1, 128, 2**31, 2**63 - 1], np.int64)
    assert expected("cast", x, dtype="int8").tolist() == [44, -1, -128, 0, -1]
    assert expected("cast", x, dtype="uint4").tolist() == [12, 15, 0, 0, 15]
    assert expected("cast", x, dtype="int4").tolist() == [-4, -1, 0, 0, -1]
    # 2**54 + 2**30 + 1 lies above the tie between two float32; through float64 it would fall on it and go down.
    tie = 2**54 + 2**30 + 1
    got = round_to(expected("cast", np.array([tie, -tie]), dtype="float32"), dtype("float32"))
    above = Fraction(2**54 + 2**31)
    assert [Fraction(float(each)) for each in got] == [above, -above]


def test_cast_to_and_from_bool() -> None:
    x = np.array([0.0, -0.0, 1e-40, NAN, -INF], np.float32)
    assert expected("cast", x, dtype="bool").tolist() == [False, False, True, True, True]
    assert expected("cast", np.array([True, False]), dtype="float16").tolist() == [1.0, 0.0]


def test_cast_saturates_on_request_only() -> None:
    x = np.array([1e6, -1e6, INF, NAN, 1.0], np.float32)
    kept = expected("cast", x, dtype="float8_e5m2", saturate=True)
    assert np.array_equal(kept, [57344.0, -57344.0, 57344.0, NAN, 1.0], equal_nan=True)
    lost = widen(round_to(expected("cast", x, dtype="float8_e4m3fn"), dtype("float8_e4m3fn")))
    assert np.array_equal(lost, [NAN, NAN, NAN, NAN, 1.0], equal_nan=True)


def test_integers_are_exact_beyond_float64() -> None:
    big = np.array([[2**53 + 1, 3], [-(2**60) + 1, 7]], np.int64)
    wrapped = [[(v + 2**63) % 2**64 - 2**63 for v in row] for row in (big.astype(object) @ big.astype(object)).tolist()]
    assert expected("matmul", big, big).tolist() == wrapped
    assert expected("sum", big).tolist() == int(big.astype(object).sum())
    assert expected("add", big, big[:, ::-1]).tolist() == (big.astype(object) + big[:, ::-1].astype(object)).tolist()
    lowest = np.array([-(2**63)], np.int64)
    assert expected("matmul", lowest, np.array([1], np.int64)).tolist() == -(2**63)


def test_bool_adds_as_or_and_sums_as_integers() -> None:
    x = np.array([True, False, True])
    assert expected("add", x, np.array([True, False, False])).tolist() == [True, False, True]
    assert expected("sum", x).tolist() == 2
    assert expected("add", x, x, alpha=0.0).tolist() == x.tolist()


@pytest.mark.torch
@pytest.mark.parametrize("name", [*INTEGERS, "bool"])
def test_integers_are_rounded_to_float32_first(name: str) -> None:
    import torch

    x, y = drawn((9,), name), np.ones(9, numpy_dtype(dtype(name)))
    assert np.array_equal(expected("div", x, y), (to_torch(x) / to_torch(y)).double().numpy())
    small = x if name == "bool" else np.abs(x.astype(np.int64) % 20).astype(x.dtype)
    close(expected("exp", small), to_torch(small).to(torch.float32).double().exp())
    odd = np.array([2**24 + 1], np.int64)
    assert expected("div", odd, np.array([1], np.int64)).tolist() == [2.0**24]


def test_add_of_doubles_has_no_intermediate_overflow() -> None:
    if np.finfo(np.longdouble).maxexp <= 1024:
        pytest.skip("long double is no wider than float64 here")
    got = expected("add", np.array([-1.5e308, INF]), np.array([1e308, -1e308]), alpha=2.0)
    assert got.tolist() == [5e307, INF]


@pytest.mark.torch
@pytest.mark.parametrize("bad", [NAN, INF])
def test_zero_factor_ignores_operands(bad: float) -> None:
    import torch

    a, b = np.ones((2, 3)), np.ones((3, 2))
    c = np.full((2, 2), bad)
    assert expected("gemm", a, b, c, beta=0.0).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert np.array_equal(expected("gemm", a * bad, b, c, beta=0.0), c, equal_nan=True)
    clean = np.ones((2, 2))
    got = expected("gemm", a * bad, b, clean, alpha=0.0)
    assert np.array_equal(got, torch.addmm(double(clean), double(a * bad), double(b), alpha=0.0).numpy())


def test_optional_inputs_may_be_none_or_missing() -> None:
    a, b = drawn((2, 3), "float32"), drawn((3, 2), "float32", 1)
    assert np.array_equal(expected("gemm", a, b), expected("gemm", a, b, None))
    assert np.array_equal(
        expected("layer_norm", a, normalized_shape=[3]), expected("layer_norm", a, None, None, normalized_shape=[3])
    )


def test_sums_of_doubles_are_extended() -> None:
    if np.finfo(np.longdouble).nmant <= 52:
        pytest.skip("long double is no wider than float64 here")
    x = np.array([1e16, 1.0, -1e16] * 100)
    assert expected("sum", x).tolist() == 100.0


def test_normal_tail_is_accurate() -> None:
    x = np.concatenate([np.linspace(0.0, 5.0, 20001), np.logspace(-300, -1, 300)])
    oracle = np.array([0.5 * math.erfc(each / math.sqrt(2.0)) for each in x])
    # math.erfc itself sees an argument that is off by half an ulp: x² of it in the result.
    assert np.max(np.abs(normal_tail(x) / oracle - 1.0) / (1.0 + x * x)) < 5e-16
    exact_twice = np.array([0.5 * math.erfc(4.0), 0.5 * math.erfc(20.0)])
    arguments = np.sqrt([32.0, 800.0])  # rounded, so the result is off by x · (error of the root)
    drift = np.array([float(Fraction(a) ** 2 - Fraction(t)) for a, t in zip(arguments, (32, 800), strict=True)])
    assert np.allclose(normal_tail(arguments) * np.exp(0.5 * drift), exact_twice, rtol=1e-14, atol=0.0)
    assert np.isnan(normal_tail(np.array([NAN]))).all()
    assert normal_tail(np.array([0.0, INF])).tolist() == [0.5, 0.0]


def test_gelu_tail_is_accurate() -> None:
    x = np.linspace(-37.0, 0.0, 2000)
    oracle = np.array([each * 0.5 * math.erfc(-each / math.sqrt(2.0)) for each in x])
    got = expected("gelu", x)
    assert np.max(np.abs(got - oracle) / ((2.0 + x * x) * np.abs(oracle) + 1e-320)) < 5e-16


def test_erfinv_inverts_erf_to_two_ulp() -> None:
    y = np.concatenate([np.linspace(0.0, 5.8, 4001), np.logspace(-300, -1, 300)])
    x = np.array([math.erf(each) for each in y])
    back = np.array([math.erf(each) for each in expected("erfinv", x)])
    assert np.max(np.abs(back - x) / np.spacing(x)) <= 2.0
    near = 1.0 - 2.0 ** -np.arange(2.0, 54.0)  # 1 less such a number is exact
    left = np.array([math.erfc(each) for each in expected("erfinv", near)])
    assert np.max(np.abs(left / (1.0 - near) - 1.0)) < 3e-14  # 1 ulp of 5.8 changes erfc by 68
    ends = expected("erfinv", np.array([1.0, -1.0, 0.0, 1.5, NAN]))
    assert ends == pytest.approx([INF, -INF, 0.0, NAN, NAN], nan_ok=True)


def test_digamma_equals_closed_forms() -> None:
    euler = 0.57721566490153286061
    x = np.array([1.0, 2.0, 0.5, 0.25, -0.5, 100.0])
    harmonic = math.fsum(1.0 / k for k in range(1, 100))
    half = -euler - 2.0 * math.log(2.0)
    want = [-euler, 1.0 - euler, half, -euler - math.pi / 2.0 - 3.0 * math.log(2.0), half + 2.0, harmonic - euler]
    assert expected("digamma", x) == pytest.approx(want, rel=4e-16)
    assert abs(expected("digamma", np.array([1.4616321449683623]))[0]) < 2e-16
    poles = expected("digamma", np.array([0.0, -0.0, -1.0, -7.0, -INF, INF]))
    assert poles == pytest.approx([-INF, INF, NAN, NAN, NAN, INF], nan_ok=True)


def test_repeated_index_accepts_any_of_its_elements() -> None:
    array, index = np.zeros(3, np.float32), np.array([1, 1, 2])
    source = np.array([5.0, 6.0, 7.0], np.float32)
    alternatives = load_object(operators.get("index_copy").alternatives)
    for out, right in (([0.0, 5.0, 7.0], True), ([0.0, 6.0, 7.0], True), ([0.0, 7.0, 7.0], False)):
        (mask,) = alternatives([array, index, source], {"dim": 0}, [np.array(out, np.float32)])
        assert bool(mask[1]) is right

"""Rounding happens once, ties to even: checked against an oracle in exact fractions for every float type."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import refusal

from optest.numerics import bits, numpy_dtype, round_to, ulp, widen
from optest.spec import DTYPES, DType, dtype

FLOATS = [entry for entry in DTYPES if entry.is_float]
EIGHT_BIT = [entry for entry in FLOATS if entry.bits == 8]
SIXTEEN_BIT = [entry for entry in FLOATS if entry.bits == 16]


def oracle(value: float, entry: DType, overflow: str = "ieee") -> float:
    """The correctly rounded value, by exact arithmetic on the definition of the format."""
    if np.isnan(value):
        return value
    beyond = float("inf") if entry.has_infinity else float("nan")
    if np.isinf(value):
        rounded = value if entry.has_infinity else beyond
    else:
        exact = abs(Fraction(value))
        exponent = max(math.frexp(value)[1] - 1, entry.emin)
        step = Fraction(2) ** (exponent - entry.precision + 1)
        magnitude = round(exact / step) * step  # Python rounds a Fraction half to even
        rounded = beyond if magnitude > Fraction(entry.max_finite) else float(magnitude)
    if overflow == "saturate" and (np.isinf(rounded) or np.isnan(rounded)):
        rounded = entry.max_finite
    return float(np.copysign(rounded, value))


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    wide = widen(got)
    same = (wide.view(np.uint64) == want.view(np.uint64)) | (np.isnan(wide) & np.isnan(want))
    assert same.all(), (wide[~same][:5], want[~same][:5])


def finite_values(entry: DType) -> np.ndarray:
    """Every finite value of an 8- or 16-bit type, ascending."""
    codes = np.arange(1 << entry.bits, dtype=f"u{entry.itemsize_bytes}").view(numpy_dtype(entry))
    wide = widen(codes)
    return np.unique(wide[np.isfinite(wide)])


def around_ties(entry: DType) -> np.ndarray:
    """Every value, every tie between neighbours, and the float64 next to each tie on either side."""
    values = finite_values(entry)
    ties = (values[:-1] + values[1:]) / 2
    return np.concatenate([values, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])


@pytest.mark.parametrize("entry", EIGHT_BIT, ids=str)
@pytest.mark.parametrize("overflow", ["ieee", "saturate"])
def test_every_value_and_tie_of_8_bit_floats(entry: DType, overflow: str) -> None:
    points = around_ties(entry)
    want = np.array([oracle(point, entry, overflow) for point in points])
    assert_same(round_to(points, entry, overflow=overflow), want)


@pytest.mark.parametrize("entry", SIXTEEN_BIT, ids=str)
def test_every_tie_of_16_bit_floats(entry: DType) -> None:
    values = finite_values(entry)
    low, high = values[:-1], values[1:]
    codes = bits(round_to(low, entry))
    even = np.where(codes & 1 == 0, low, high)
    even = np.where((low == 0) | (high == 0), 0.0, even)
    ties = (low + high) / 2
    assert (widen(round_to(ties, entry)) == even).all()
    assert (widen(round_to(np.nextafter(ties, np.inf), entry)) == high).all()
    assert (widen(round_to(np.nextafter(ties, -np.inf), entry)) == low).all()


def test_double_rounding_differs() -> None:
    """The values at which ml_dtypes, which goes through float32, is wrong; the test above would miss it otherwise."""
    entry = dtype("bfloat16")
    ties = 1 + 2.0**-8 + np.array([2.0**-40, -(2.0**-40)])
    assert widen(round_to(ties, entry)).tolist() == [1 + 2.0**-7, 1.0]
    assert ties.astype(numpy_dtype(entry)).astype(np.float64).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("entry", FLOATS, ids=str)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_float64_rounds_correctly(entry: DType, data: st.DataObject) -> None:
    in_range = st.floats(min_value=-2 * min(entry.max_finite, 1e300), max_value=2 * min(entry.max_finite, 1e300))
    tiny = st.floats(min_value=-(2.0 ** (entry.emin + 3)), max_value=2.0 ** (entry.emin + 3))
    values = np.array(data.draw(st.lists(in_range | tiny | st.floats(), min_size=1, max_size=20)))
    for overflow in ("ieee", "saturate"):
        want = np.array([oracle(value, entry, overflow) for value in values])
        assert_same(round_to(values, entry, overflow=overflow), want)


@pytest.mark.parametrize("entry", FLOATS, ids=str)
def test_overflow_threshold(entry: DType) -> None:
    top = entry.max_finite
    beyond = "nan" if not entry.has_infinity else "inf"
    half = Fraction(2) ** (entry.emax - entry.precision)
    threshold = Fraction(top) + half
    if entry.name == "float64":
        assert np.isinf(round_to(np.array([np.inf]), entry)).all()
        return
    at = float(threshold)
    got = widen(round_to(np.array([at, np.nextafter(at, 0), np.nextafter(at, np.inf), np.inf, -np.inf]), entry))
    ties_to_top = entry.name == "float8_e4m3fn"  # 448 is even among its neighbours, unlike the top of IEEE formats
    assert str(abs(got[0])) == ("448.0" if ties_to_top else beyond)
    assert got[1] == top
    assert [str(abs(each)) for each in got[2:]] == [beyond] * 3
    saturated = widen(round_to(np.array([at, 1e300, np.inf, -np.inf, np.nan]), entry, overflow="saturate"))
    assert saturated[:4].tolist() == [top, top, top, -top]
    assert np.isnan(saturated[4])


@pytest.mark.parametrize("entry", FLOATS, ids=str)
def test_signs_of_zero_and_denormals(entry: DType) -> None:
    normal = 2.0**entry.emin
    smallest = normal * 2.0 ** (1 - entry.precision)
    values = np.array([0.0, -0.0, smallest, -smallest, normal - smallest, normal, -normal, np.nan])
    kept = widen(round_to(values, entry))
    np.testing.assert_array_equal(kept, values)
    assert np.signbit(kept[:2]).tolist() == [False, True]
    flushed = round_to(values, entry, denormals="flush")
    np.testing.assert_array_equal(widen(flushed), [0, 0, 0, 0, 0, normal, -normal, np.nan])
    assert np.signbit(widen(flushed))[:7].tolist() == [False, True, False, True, False, False, True]
    assert values[2] == smallest, "the caller's array was written to"


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_rounding_across_blocks(name: str) -> None:
    """More elements than one block, in a strided array."""
    entry = dtype(name)
    values = np.random.default_rng(1).standard_normal((2, 3, 33_000))[:, ::-1, ::2]
    whole = round_to(values, entry)
    assert whole.shape == values.shape
    parts = [round_to(values[i, j, k : k + 1], entry) for i, j, k in [(0, 0, 0), (1, 2, 16_499), (1, 1, 7)]]
    assert [float(part[0]) for part in parts] == [float(whole[0, 0, 0]), float(whole[1, 2, -1]), float(whole[1, 1, 7])]
    nearest = np.abs(widen(whole) - values) <= ulp(values, entry) / 2
    assert nearest.all()


@pytest.mark.parametrize("entry", FLOATS, ids=str)
def test_large_integers_are_rounded_once(entry: DType) -> None:
    """2**60 + 2**k + 1 lies above a tie by a bit that float64 loses."""
    integers = [2**60 + 2 ** (60 - entry.precision) + 1, -(2**62) + 3, 2**63 - 1, 5]
    unsigned = np.array([abs(each) for each in integers], np.uint64)
    for stated in (np.array(integers, np.int64), np.array(integers, object), unsigned):
        got = widen(round_to(stated, entry))
        want = [exact_integer(int(value), entry) for value in stated]
        np.testing.assert_array_equal(got, want)
    huge = np.array([10**400, -(10**400)], object)
    assert [str(each) for each in np.abs(widen(round_to(huge, entry)))] == ["inf" if entry.has_infinity else "nan"] * 2


def exact_integer(value: int, entry: DType) -> float:
    spare = max(abs(value).bit_length() - entry.precision, 0)
    rounded = round(Fraction(value, 2**spare)) * 2**spare
    if abs(rounded) <= entry.max_finite:
        return float(rounded)
    return float(np.copysign(np.inf, value)) if entry.has_infinity else float("nan")


def test_complex_is_rounded_by_component() -> None:
    values = np.array([[1 + 2.0**-30 + 1e300j, complex(np.nan, -0.0)]])
    got = round_to(values, dtype("complex64"))
    assert got.dtype == np.complex64
    assert got.shape == (1, 2)
    assert got[0, 0] == complex(1, np.inf)
    assert np.isnan(got[0, 1].real)
    assert np.signbit(got[0, 1].imag)
    assert round_to(values, dtype("complex64"), overflow="saturate")[0, 0].imag == np.float32(np.finfo("f4").max)
    assert round_to(np.array([1.5]), dtype("complex128"))[0] == 1.5
    with pytest.raises(TypeError, match="expected real"):
        round_to(values, dtype("float32"))


@pytest.mark.parametrize("entry", [each for each in DTYPES if each.is_integer], ids=str)
def test_integers_beyond_range_are_refused(entry: DType) -> None:
    ends = np.array([entry.min_int, 0, entry.max_int], object)
    assert [int(each) for each in widen(round_to(ends, entry))] == [entry.min_int, 0, entry.max_int]
    for outside in (entry.min_int - 1, entry.max_int + 1):
        with pytest.raises(ValueError, match=rf"at \[1\] is {outside}.*from {entry.min_int} to {entry.max_int}"):
            round_to(np.array([0, outside], object), entry)
    with refusal(ValueError, "numerics.at_is_but_should"):
        round_to(np.array([[1.0, 0.5]]), entry)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="expected a value from"):
            round_to(np.array([value]), entry)
    assert round_to(np.array([2.0, 3.0]), entry).astype(int).tolist() == [2, 3]


def test_integer_dtypes_convert_exactly() -> None:
    assert round_to(np.array([2**63], np.uint64), dtype("float64")).tolist() == [2.0**63]
    for wrong, target in ((np.array([2**63], np.uint64), "int64"), (np.array([-1]), "uint64"), ([300], "int8")):
        with pytest.raises(ValueError, match=r"at \[0\]"):
            round_to(np.asarray(wrong), dtype(target))
    assert round_to(np.array([1, 0]), dtype("bool")).tolist() == [True, False]
    with pytest.raises(ValueError, match="from 0 to 1"):
        round_to(np.array([2]), dtype("bool"))
    assert round_to(np.array([], np.int64), dtype("int8")).dtype == np.int8


def test_rounding_keeps_shapes_and_arrays() -> None:
    values = np.array([1.5, np.nan])
    assert round_to(values, dtype("float64")) is values
    same = values.astype(numpy_dtype(dtype("bfloat16")))
    assert round_to(same, dtype("bfloat16")) is same
    for shape in ((), (0,), (2, 0, 3), (1, 1)):
        for name in ("float32", "bfloat16", "float8_e5m2", "int8", "complex64"):
            assert round_to(np.zeros(shape), dtype(name)).shape == shape
        assert ulp(np.zeros(shape), dtype("float32")).shape == shape


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="'ieee' or 'saturate'"):
        round_to(np.zeros(1), dtype("float32"), overflow="wrap")
    with pytest.raises(ValueError, match="'preserve' or 'flush'"):
        round_to(np.zeros(1), dtype("float32"), denormals="keep")


@pytest.mark.parametrize("entry", EIGHT_BIT + SIXTEEN_BIT, ids=str)
def test_ulp_is_distance_to_next_value(entry: DType) -> None:
    values = finite_values(entry)
    values = values[values >= 0]
    gaps = np.diff(values)
    np.testing.assert_array_equal(ulp(values[:-1], entry), gaps)
    np.testing.assert_array_equal(ulp(-values[:-1], entry), gaps)


def test_ulp_of_wide_types_and_edges() -> None:
    values = np.array([0.0, 1.0, 1.5, -2.0, 3e38, 1e-45])
    np.testing.assert_array_equal(ulp(values, dtype("float32")), np.spacing(np.abs(values).astype(np.float32)))
    wide = np.array([0.0, 5e-324, 1.0, 1e300])
    np.testing.assert_array_equal(ulp(wide, dtype("float64")), np.spacing(wide))
    assert ulp(np.array([np.inf, np.nan]), dtype("float32")).tolist() == [np.inf, np.inf]
    assert ulp(np.array([1e10]), dtype("float16")).tolist() == [2.0**23]
    assert ulp(np.array([7]), dtype("int32")).tolist() == [1.0]
    with pytest.raises(TypeError, match="real"):
        ulp(np.array([1j]), dtype("complex64"))

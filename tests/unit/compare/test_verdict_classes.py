"""NaN, infinity, signed zeros, denormals, overflow, integers and movement: tables of what is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from comparing import ACCUMULATE, EXACT, MOVEMENT, ULP, array_of, stated, verdict_of

from optest.numerics import Array, numpy_dtype
from optest.spec import Numerics, Reason, Status, Terms, dtype

NAN, INF = math.nan, math.inf
V, N, OK = Reason.VALUE, Reason.NAN, None


@pytest.mark.parametrize("padding", [0, 40])
@pytest.mark.parametrize(
    ("entry", "actual", "reference", "reason"),
    [
        ("float32", NAN, NAN, OK),
        ("float32", NAN, 1.0, N),
        ("float32", NAN, INF, N),
        ("float32", 1.0, NAN, N),
        ("float32", INF, NAN, N),
        ("float32", INF, INF, OK),
        ("float32", -INF, INF, V),
        ("float32", -INF, -INF, OK),
        ("float32", 1.0, INF, V),
        ("float32", 3.4028234663852886e38, INF, V),
        ("float32", INF, 1.0, V),
        ("float32", INF, 1e300, OK),
        ("float32", 0.0, -0.0, OK),
        ("float32", -0.0, 0.0, OK),
        ("float16", INF, 70000.0, OK),
        ("float16", 65504.0, 70000.0, V),
        ("float16", -65504.0, -70000.0, V),
        ("float16", 65504.0, 65520.0, OK),  # within the bound of the overflow either rounding may be meant
        ("float16", -INF, 70000.0, V),
        ("float16", NAN, 70000.0, N),
        ("float16", 65472.0, 70000.0, V),
        ("float16", INF, 65520.0, OK),
        ("float16", INF, 65504.0, OK),  # |reference| + ½ ulp reaches the overflow
        ("float16", INF, 65500.0, V),
        ("float8_e4m3fn", NAN, 470.0, OK),
        ("float8_e4m3fn", 448.0, 470.0, OK),
        ("float8_e4m3fn", NAN, 1e6, OK),  # has no infinity
        ("float8_e4m3fn", 448.0, 1e6, OK),
        ("float8_e4m3fn", NAN, INF, OK),
        ("float8_e4m3fn", 448.0, INF, OK),
        ("float8_e4m3fn", NAN, 400.0, N),
        ("float8_e4m3fn", 416.0, 470.0, V),
        ("float8_e5m2", INF, 1e6, OK),
        ("float8_e5m2", 57344.0, 1e6, V),
        ("float8_e5m2", NAN, 1e6, N),
    ],
)
def test_class_of_a_float(entry: str, actual: float, reference: float, reason: Reason | None, padding: int) -> None:
    got = np.array([actual] + [1.0] * padding).astype(numpy_dtype(dtype(entry)))
    verdict = verdict_of(got, [reference] + [1.0] * padding, entry, rule=ULP)
    assert verdict.reason is reason
    measure = verdict.measures[0]
    assert measure.mismatched == (reason is not None)
    nonfinite = reason is not None and not (math.isfinite(actual) and abs(reference) < dtype(entry).max_finite)
    assert measure.nonfinite_mismatched == nonfinite


@pytest.mark.parametrize(("value", "text"), [(NAN, "nan"), (INF, "inf"), (-INF, "-inf")])
def test_non_finite_values_are_reported_as_words(value: float, text: str) -> None:
    measure = verdict_of([1.0, value], [1.0, 2.0], rule=ULP).measures[0]
    assert (measure.worst_actual, measure.worst_expected, measure.worst_index) == (text, 2.0, (1,))
    assert measure.worst_used is None
    assert measure.max_abs_error == 0.0
    assert type(measure.worst_expected) is float


@pytest.mark.parametrize("padding", [0, 40])
@pytest.mark.parametrize(
    ("actual", "reference", "preserved", "flushed"),
    [
        (0.0, 1e-39, V, OK),
        (1e-39, 0.0, V, OK),
        (1e-39, 1e-39, OK, OK),
        (-0.0, -1e-39, V, OK),
        (0.0, 2.0**-126, V, V),  # the smallest normal is no subnormal
        (0.0, 1e-37, V, V),
    ],
)
def test_denormals(
    actual: float, reference: float, preserved: Reason | None, flushed: Reason | None, padding: int
) -> None:
    got, want = [actual] + [1.0] * padding, [reference] + [1.0] * padding
    for rule, layers in ((ULP, ()), (None, (stated(1e-6, 0),))):
        for denormals, reason in (("preserve", preserved), ("flush", flushed)):
            numerics = Numerics(denormals=denormals)
            assert verdict_of(got, want, rule=rule, layers=layers, numerics=numerics).reason is reason


def test_flushed_results_are_no_rounding() -> None:
    """All together they are as little an error as each of them, and hide no error of the others."""
    want = np.concatenate([np.linspace(1.0, 2.0, 300), np.full(100, 1.1e-38)])
    flushed = np.where(want < 2.0**-126, 0.0, want).astype(np.float32)
    coarse = np.where(want < 2.0**-126, 0.0, want * (1 + 2.0**-21)).astype(np.float32)
    terms = Terms(absolute=want, squared=want * want / 4, count=4)

    def reason(got: Array, denormals: str) -> Reason | None:
        return verdict_of(got, want, rule=ACCUMULATE, terms=terms, numerics=Numerics(denormals=denormals)).reason

    assert reason(flushed, "flush") is OK
    assert reason(flushed, "preserve") is V
    assert reason(coarse, "flush") is V


@pytest.mark.parametrize("padding", [0, 40])
@pytest.mark.parametrize(
    ("entry", "actual", "reference", "reason"),
    [
        ("float16", INF, 70000.0, OK),
        ("float16", 65504.0, 70000.0, OK),
        ("float16", -65504.0, -70000.0, OK),
        ("float16", -65504.0, 70000.0, V),
        ("float16", 65472.0, 70000.0, V),
        ("float8_e4m3fn", 448.0, 1e6, OK),
        ("float8_e4m3fn", -448.0, 1e6, V),
        ("float8_e4m3fn", 448.0, INF, OK),
        ("float8_e5m2", 57344.0, 1e6, OK),
    ],
)
def test_declared_saturation(entry: str, actual: float, reference: float, reason: Reason | None, padding: int) -> None:
    got = np.array([actual] + [1.0] * padding).astype(numpy_dtype(dtype(entry)))
    for rule, layers in ((ULP, ()), (None, (stated(1e-4, 0),))):
        numerics = Numerics(overflow="saturate")
        want = [reference] + [1.0] * padding
        assert verdict_of(got, want, entry, rule=rule, layers=layers, numerics=numerics).reason is reason


@pytest.mark.parametrize("size", [1, 40])
def test_movement_compares_bits(size: int) -> None:
    next_to_1 = np.nextafter(np.float32(1), np.float32(2))
    for actual, expected, reason in (
        (1.5, 1.5, OK),
        (-0.0, 0.0, V),
        (NAN, NAN, OK),
        (NAN, 1.0, N),
        (INF, 1.0, V),
        (next_to_1, 1.0, V),
    ):
        outputs = [np.full(size, value, np.float32) for value in (actual, expected)]
        assert verdict_of(*outputs, rule=MOVEMENT).reason is reason


def test_movement_accepts_any_payload_of_nan() -> None:
    quiet, other = np.array([0x7FC00000, 0xFFC00123], np.uint32).view(np.float32)
    verdict = verdict_of(np.array([other]), np.array([quiet], np.float32), rule=MOVEMENT)
    assert verdict.status is Status.PASSED


@pytest.mark.parametrize("entry", ["bool", "int4", "uint4", "int8", "uint64", "complex64", "complex128", "bfloat16"])
def test_movement_of_every_kind(entry: str) -> None:
    target = numpy_dtype(dtype(entry))
    array = np.array([0, 1, 1, 0, 1]).astype(target)
    assert verdict_of(array, np.array(array), entry, rule=MOVEMENT).status is Status.PASSED
    assert verdict_of(array[::-1].copy(), np.array(array), entry, rule=MOVEMENT).reason is Reason.VALUE


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize(
    ("entry", "actual", "expected", "error"),
    [
        ("int64", 2**53, 2**53 + 1, 1.0),
        ("int64", 2**63 - 1, 2**63 - 2, 1.0),
        ("int64", -(2**63), 2**63 - 1, 2.0**64),
        ("uint64", 2**64 - 1, 2**64 - 2, 1.0),
        ("uint64", 0, 2**64 - 1, 2.0**64),
        ("uint8", 0, 255, 255.0),
        ("uint8", 255, 0, 255.0),
        ("int8", -128, 127, 255.0),
        ("int4", -8, 7, 15.0),
        ("uint4", 0, 15, 15.0),
        ("int32", 1, 2, 1.0),
    ],
)
def test_integers_are_exact_and_do_not_wrap(entry: str, actual: int, expected: int, error: float, size: int) -> None:
    target = numpy_dtype(dtype(entry))
    got, want = (np.full(size, value, dtype=object).astype(target) for value in (actual, expected))
    verdict = verdict_of(got, want, entry)
    measure = verdict.measures[0]
    assert (verdict.reason, measure.mismatched, measure.max_abs_error) == (Reason.VALUE, size, error)
    assert (measure.worst_actual, measure.worst_expected) == (actual, expected)
    assert type(measure.worst_actual) is int
    assert verdict_of(want, want, entry).status is Status.PASSED


@pytest.mark.parametrize(
    ("atol", "rtol", "distance", "passes"),
    [(1, 0, 1, True), (1, 0, 2, False), (0.99, 0, 1, False), (2**53, 0, 2**53 + 1, False), (0, 0.5, 2**61, True)],
)
def test_integers_with_a_tolerance_count_in_whole_numbers(
    atol: float, rtol: float, distance: int, passes: bool
) -> None:
    want = np.array([2**62], np.int64)
    got = want + distance
    verdict = verdict_of(got, want, "int64", layers=(stated(rtol, atol),))
    assert (verdict.status is Status.PASSED) == passes


def test_mismatch_ratio_allows_a_share_of_finite_mismatches() -> None:
    reference = np.ones(100)
    actual = np.ones(100, np.float32)
    actual[:3] = 2.0
    assert verdict_of(actual, reference, layers=(stated(0, 0, 0.03),)).status is Status.PASSED
    assert verdict_of(actual, reference, layers=(stated(0, 0, 0.029),)).reason is Reason.VALUE
    assert verdict_of([1, 2, 3, 5], [1, 2, 3, 4], "int32", layers=(stated(0, 0, 0.25),)).status is Status.PASSED


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize(
    ("actual", "reference", "reason"),
    [
        (1 + 2j, 1 + 2j, OK),
        (1 + 2j, 1 + 2.1j, V),
        (complex(NAN, 1), complex(NAN, 1), OK),
        (complex(NAN, 1), complex(1, 1), N),
        (complex(INF, 1), complex(INF, 1), OK),
        (complex(INF, 1), complex(INF, 2), V),
        (complex(INF, 1), complex(1, INF), V),
    ],
)
def test_complex(actual: complex, reference: complex, reason: Reason | None, size: int) -> None:
    got, want = np.full(size, actual, np.complex64), np.full(size, reference, np.complex128)
    assert verdict_of(got, want, "complex64", layers=(stated(1e-5, 1e-6),)).reason is reason
    assert verdict_of(got, want, "complex64", rule=ULP).reason is reason
    assert verdict_of(got, want, "complex64", rule=EXACT).reason is reason


def test_integer_exact_inputs_leave_no_room() -> None:
    reference = np.array([[1000.0, -999.0], [3.0, 4.0]])
    terms = Terms(np.abs(reference) + 500, reference**2, 64)
    actual = array_of(reference, "float32")
    arguments = {"rule": ACCUMULATE, "terms": terms, "operands": ("float32", "float32"), "fill": "integer-exact"}
    verdict = verdict_of(actual, reference, **arguments)
    assert (verdict.status, verdict.measures[0].rule.name) == (Status.PASSED, "integer-exact")
    off = np.array(actual)
    off[0, 0] = np.nextafter(off[0, 0], np.float32(0))
    assert verdict_of(off, reference, **arguments).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("absolute", "numerics"),
    [
        (2.0**25, Numerics()),  # beyond what float32 holds exactly
        (1000.3, Numerics()),  # alpha = 0.3 made the terms fractions
        (1000.0, Numerics(direct=False)),
        (1000.0, Numerics(operands="bfloat16")),  # the operands are unknown
    ],
)
def test_integer_exact_needs_sums_that_are_exact(absolute: float, numerics: Numerics) -> None:
    terms = Terms(np.full(4, absolute), np.full(4, absolute), 64)
    verdict = verdict_of(
        np.ones(4, np.float32),
        np.ones(4),
        rule=ACCUMULATE,
        terms=terms,
        numerics=numerics,
        operands=("float32", "float32"),
        fill="integer-exact",
    )
    assert verdict.measures[0].rule is not None
    assert verdict.measures[0].rule.name == "accumulate"

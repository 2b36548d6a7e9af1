"""NaN, infinity, signed zeros, denormals, overflow, integers and movement: tables of what is right."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, EXACT, MOVEMENT, ULP, array_of, case_of, expect, stated, verdict_of

from optest.compare.verdict import compare_outputs
from optest.core.wire import case_from_wire, case_to_wire
from optest.numerics import Array, numpy_dtype, round_to
from optest.operators import operators
from optest.plan.tolerance_files import with_signed_zeros
from optest.registry import load_object
from optest.spec import (
    CheckState,
    Layer,
    Numerics,
    Reason,
    Rule,
    RuleClass,
    Status,
    Terms,
    Tolerance,
    ToleranceLayer,
    Verdict,
    dtype,
)

NAN, INF = math.nan, math.inf
V, N, OK = Reason.VALUE, Reason.NAN, None
RULE_OR_TOLERANCE: list[dict[str, Any]] = [{"rule": ULP}, {"layers": (stated(1e-6, 0),)}]


def padded(actual: float, reference: float, entry: str, padding: int, **how: Any) -> Verdict:
    """Compare one element that is followed by ``padding`` right ones."""
    got = np.array([actual] + [1.0] * padding).astype(numpy_dtype(dtype(entry)))
    return verdict_of(got, [reference] + [1.0] * padding, entry, **how)


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
    verdict = padded(actual, reference, entry, padding, rule=ULP)
    nonfinite = reason is not None and not (math.isfinite(actual) and abs(reference) < dtype(entry).max_finite)
    assert verdict.reason is reason
    assert verdict.measures[0].mismatched == (reason is not None)
    assert verdict.measures[0].nonfinite_mismatched == nonfinite


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
    for denormals, reason in (("preserve", preserved), ("flush", flushed)):
        for how in RULE_OR_TOLERANCE:
            numerics = Numerics(denormals=denormals)
            assert padded(actual, reference, "float32", padding, numerics=numerics, **how).reason is reason


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
    for how in RULE_OR_TOLERANCE:
        numerics = Numerics(overflow="saturate")
        assert padded(actual, reference, entry, padding, numerics=numerics, **how).reason is reason


@pytest.mark.parametrize("size", [1, 40])
def test_movement_compares_bits(size: int) -> None:
    quiet, other_payload = np.array([0x7FC00000, 0xFFC00123], np.uint32).view(np.float32)
    next_to_1 = np.nextafter(np.float32(1), np.float32(2))
    for actual, expected, reason in (
        (1.5, 1.5, OK),
        (-0.0, 0.0, V),
        (NAN, NAN, OK),
        (other_payload, quiet, OK),
        (NAN, 1.0, N),
        (INF, 1.0, V),
        (next_to_1, 1.0, V),
    ):
        outputs = [np.full(size, value, np.float32) for value in (actual, expected)]
        assert verdict_of(*outputs, rule=MOVEMENT).reason is reason


@pytest.mark.parametrize("entry", ["bool", "int4", "uint4", "int8", "uint64", "complex64", "complex128", "bfloat16"])
def test_movement_of_every_kind(entry: str) -> None:
    array = np.array([0, 1, 1, 0, 1]).astype(numpy_dtype(dtype(entry)))
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
def test_integer_tolerances_count_in_whole_numbers(atol: float, rtol: float, distance: int, passes: bool) -> None:
    want = np.array([2**62], np.int64)
    verdict = verdict_of(want + distance, want, "int64", layers=(stated(rtol, atol),))
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
    for how in ({"layers": (stated(1e-5, 1e-6),)}, {"rule": ULP}, {"rule": EXACT}):
        assert verdict_of(got, want, "complex64", **how).reason is reason


EXACT_INPUTS: dict[str, Any] = {"rule": ACCUMULATE, "operands": ("float32", "float32"), "fill": "integer-exact"}


def test_integer_exact_inputs_leave_no_room() -> None:
    reference = np.array([[1000.0, -999.0], [3.0, 4.0]])
    terms = Terms(np.abs(reference) + 500, reference**2, 64)
    actual = array_of(reference, "float32")
    verdict = verdict_of(actual, reference, terms=terms, **EXACT_INPUTS)
    assert (verdict.status, verdict.measures[0].rule.name) == (Status.PASSED, "integer-exact")
    actual[0, 0] = np.nextafter(actual[0, 0], np.float32(0))
    assert verdict_of(actual, reference, terms=terms, **EXACT_INPUTS).reason is Reason.VALUE


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
    verdict = verdict_of(np.ones(4, np.float32), np.ones(4), terms=terms, numerics=numerics, **EXACT_INPUTS)
    assert verdict.measures[0].rule is not None
    assert verdict.measures[0].rule.name == "accumulate"


HALF = Rule(kind=RuleClass.ULP, ulp=0.5)


STRICT, NOTE = Tolerance(signed_zeros="strict"), Tolerance(signed_zeros="note")


SIZES = (3, 17, 5000, 100_000)


def layer(tolerance: Tolerance, at: Layer = Layer.COMMAND_LINE) -> ToleranceLayer:
    return ToleranceLayer(layer=at, tolerance=tolerance)


def zeros_verdict(
    got: Any, true: Any, *layers: ToleranceLayer, defined: bool = True, name: str = "float32", **more: Any
) -> Verdict:
    case = case_of(HALF, (name,), layers=layers, shape=np.shape(true))
    case = replace(case, descriptor=replace(case.descriptor, signed_zeros=defined))
    actual = round_to(np.asarray(got, dtype=np.float64), dtype(name))
    return compare_outputs(case, [actual], [expect(true, name)], numerics=Numerics(), **more)


def notes(verdict: Verdict) -> list[str]:
    return [check.detail for check in verdict.checks if check.state is CheckState.NOTE]


@pytest.mark.parametrize("size", SIZES)
def test_wrong_sign_is_a_note_unless_strict(size: int) -> None:
    true = np.ones(size)
    true[1], true[2] = 0.0, -0.0
    noted = zeros_verdict(np.abs(true), true)
    assert noted.status is Status.PASSED
    assert notes(noted) == ["out: 1 of 2 zeros has the wrong sign, the first at [2]"]
    strict = zeros_verdict(np.abs(true), true, layer(STRICT))
    assert strict.reason is Reason.VALUE
    assert (strict.measures[0].mismatched, strict.measures[0].worst_index) == (1, (2,))
    assert zeros_verdict(true, true, layer(STRICT)).status is Status.PASSED


def test_sign_of_zero_by_layer() -> None:
    assert zeros_verdict([0.0], [-1e-60], layer(STRICT)).reason is Reason.VALUE
    assert zeros_verdict([-0.0], [-1e-60], layer(STRICT)).status is Status.PASSED
    assert not notes(zeros_verdict([-0.0], [1e-30], layer(Tolerance(atol=1e-3))))  # no zero is due there
    assert zeros_verdict([0.0], [-0.0], layer(STRICT, Layer.PLAN), layer(NOTE, Layer.CASE)).status is Status.PASSED
    assert zeros_verdict([0.0], [-0.0], layer(NOTE, Layer.PLAN), layer(STRICT, Layer.CASE)).reason is Reason.VALUE
    every = [replace(case_of(HALF), descriptor=operators.get(name)) for name in ("mul", "relu", "maximum")]
    assert [bool(case.tolerances) for case in with_signed_zeros(every)] == [True, False, False]
    case = replace(case_of(HALF), descriptor=operators.get("relu"), tolerances=(layer(STRICT),))
    assert case_from_wire(case_to_wire(case), operators.get).tolerances == case.tolerances


@pytest.mark.parametrize("at", [Layer.CASE, Layer.COMMAND_LINE])
def test_undefined_sign_counts_for_named_case_only(at: Layer) -> None:
    found = zeros_verdict([0.0], [-0.0], layer(STRICT, Layer.PLAN), defined=False)
    assert (found.status, notes(found)) == (Status.PASSED, [])
    assert zeros_verdict([0.0], [-0.0], layer(STRICT, at), defined=False).reason is Reason.VALUE


def test_signed_zeros_alone_leave_the_rule() -> None:
    """Neither wider nor sharper, also where the terms of the operator are needed."""
    rule = zeros_verdict([1.0], [1.0]).measures[0].rule
    strict = zeros_verdict([1.0], [1.0], layer(STRICT)).measures[0].rule
    assert rule is not None
    assert strict is not None
    assert (strict.name, strict.layer) == (rule.name, rule.layer)
    wide = layer(Tolerance(rtol=0.1), Layer.CASE)
    assert zeros_verdict([1.05], [1.0], wide, layer(STRICT)).status is Status.PASSED


ZEROS = [  # IEEE 754-2019 §5.9, §6.3; C Annex F.10
    ("mul", [[-0.0], [3.0]], {}, True),
    ("mul", [[-1e-30], [1e-30]], {}, True),
    ("add", [[-0.0], [-0.0]], {}, True),
    ("add", [[1.5], [-1.5]], {}, False),
    ("sub", [[1.5], [1.5]], {}, False),
    ("sub", [[-0.0], [0.0]], {}, True),
    ("div", [[1.0], [-np.inf]], {}, True),
    ("div", [[-1.0], [3.0]], {"rounding_mode": "trunc"}, True),
    ("div", [[-0.0], [3.0]], {"rounding_mode": "floor"}, True),
    ("div", [[1.0], [3.0]], {"rounding_mode": "floor"}, False),
    ("fmod", [[-6.0], [3.0]], {}, True),
    ("fmod", [[6.0], [-3.0]], {}, False),
    ("pow", [[-0.0], [3.0]], {}, True),
    ("pow", [[-0.0], [2.0]], {}, False),
    ("sqrt", [[-0.0]], {}, True),
    ("reciprocal", [[-np.inf]], {}, True),
    ("round", [[-0.2]], {}, True),
    ("trunc", [[-0.7]], {}, True),
    ("ceil", [[-0.7]], {}, True),
    ("floor", [[-0.0]], {}, True),
    ("sin", [[-0.0]], {}, True),
    ("tanh", [[-0.0]], {}, True),
    ("erf", [[-0.0]], {}, True),
    ("expm1", [[-0.0]], {}, True),
    ("log1p", [[-0.0]], {}, True),
    ("log", [[1.0]], {}, False),
    ("exp", [[-np.inf]], {}, False),
    ("rsqrt", [[np.inf]], {}, False),
    ("cast", [[-1e-30]], {"dtype": "float16"}, True),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "negative"), ZEROS)
def test_references_have_the_sign(op: str, inputs: Any, attributes: dict[str, Any], negative: bool) -> None:
    descriptor = operators.get(op)
    assert descriptor.signed_zeros
    reference: Any = descriptor.reference
    arrays = [np.array(each, np.float32) for each in inputs]
    (found,) = load_object(reference)(arrays, descriptor.bind(attributes))
    assert round_to(np.asarray(found), dtype(attributes.get("dtype", "float32"))).tolist() == [0.0]
    assert bool(np.signbit(found)[0]) is negative

"""The sign of a zero: a note if the operator defines it, wrong if a tolerance is strict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from comparing import case_of, expect

from optest.compare.verdict import compare_outputs
from optest.core.wire import case_from_wire, case_to_wire
from optest.numerics import round_to
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
    Tolerance,
    ToleranceLayer,
    Verdict,
    dtype,
)

HALF = Rule(kind=RuleClass.ULP, ulp=0.5)
STRICT, NOTE = Tolerance(signed_zeros="strict"), Tolerance(signed_zeros="note")
SIZES = (3, 17, 5000, 100_000)


def layer(tolerance: Tolerance, at: Layer = Layer.COMMAND_LINE) -> ToleranceLayer:
    return ToleranceLayer(layer=at, tolerance=tolerance)


def verdict_of(
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
    noted = verdict_of(np.abs(true), true)
    assert noted.status is Status.PASSED
    assert notes(noted) == ["out: 1 of 2 zeros has the wrong sign, the first at [2]"]
    strict = verdict_of(np.abs(true), true, layer(STRICT))
    assert strict.reason is Reason.VALUE
    assert (strict.measures[0].mismatched, strict.measures[0].worst_index) == (1, (2,))
    assert verdict_of(true, true, layer(STRICT)).status is Status.PASSED


def test_result_rounded_to_zero_keeps_sign() -> None:
    assert verdict_of([0.0], [-1e-60], layer(STRICT)).reason is Reason.VALUE
    assert verdict_of([-0.0], [-1e-60], layer(STRICT)).status is Status.PASSED
    assert not notes(verdict_of([-0.0], [1e-30], layer(Tolerance(atol=1e-3))))  # no zero is due there


@pytest.mark.parametrize("at", [Layer.CASE, Layer.COMMAND_LINE])
def test_undefined_sign_counts_for_named_case_only(at: Layer) -> None:
    found = verdict_of([0.0], [-0.0], layer(STRICT, Layer.PLAN), defined=False)
    assert (found.status, notes(found)) == (Status.PASSED, [])
    assert verdict_of([0.0], [-0.0], layer(STRICT, at), defined=False).reason is Reason.VALUE


def test_flag_is_for_operators_that_define_the_sign() -> None:
    every = [replace(case_of(HALF), descriptor=operators.get(name)) for name in ("mul", "relu", "maximum")]
    assert [bool(case.tolerances) for case in with_signed_zeros(every)] == [True, False, False]


def test_the_highest_layer_decides() -> None:
    assert verdict_of([0.0], [-0.0], layer(STRICT, Layer.PLAN), layer(NOTE, Layer.CASE)).status is Status.PASSED
    assert verdict_of([0.0], [-0.0], layer(NOTE, Layer.PLAN), layer(STRICT, Layer.CASE)).reason is Reason.VALUE


def test_signed_zeros_alone_leave_the_rule() -> None:
    """Neither wider nor sharper, also where the terms of the operator are needed."""
    rule = verdict_of([1.0], [1.0]).measures[0].rule
    strict = verdict_of([1.0], [1.0], layer(STRICT)).measures[0].rule
    assert rule is not None
    assert strict is not None
    assert (strict.name, strict.layer) == (rule.name, rule.layer)
    wide = layer(Tolerance(rtol=0.1), Layer.CASE)
    assert verdict_of([1.05], [1.0], wide, layer(STRICT)).status is Status.PASSED


def test_it_travels_to_a_worker() -> None:
    case = replace(case_of(HALF), descriptor=operators.get("relu"), tolerances=(layer(STRICT),))
    assert case_from_wire(case_to_wire(case), operators.get).tolerances == case.tolerances


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

"""Outputs that are judged as rows of one array get the verdict that each gets alone, and only passes are given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optest.api import cases as cases_of
from optest.backends import backend_manager
from optest.compare import together
from optest.compare.together import Question, judged_together
from optest.compare.verdict import judge
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.numerics import numpy_dtype, round_to
from optest.spec import Layer, Numerics, Status, Tolerance, ToleranceLayer, Verdict

NUMERICS = Numerics()


def question(seed: int, op: str = "add", dtype: str = "float32", size: str = "40") -> Question:
    """A correctly rounded answer to a case of elementwise ``op``."""
    shapes = (f"input0={size}", f"input1={size}")
    (case,) = cases_of(op=op, dtype=dtype, shape=shapes)
    case = replace(case, seed=seed)
    inputs, known = make_inputs(case)
    expected, _ = expected_outputs([case], inputs, known, backend_manager.get("numpy"))
    actual = [np.array(round_to(each.value, each.dtype)) for each in expected]
    return Question(case, actual, expected, NUMERICS, inputs, ())


def alone(asked: Question) -> Verdict:
    return judge(
        asked.case, asked.actual, asked.expected, numerics=asked.numerics, inputs=asked.inputs, checks=asked.checks
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", ["17", "5x9", "33x31", "4096"])
@pytest.mark.parametrize("op", ["add", "mul", "div"])
def test_every_number_is_that_of_the_case_alone(op: str, dtype: str, size: str) -> None:
    asked = [question(seed, op, dtype, size) for seed in range(4)]
    for each in asked:  # errors of one unit in some elements
        flat = each.actual[0].reshape(-1)
        flat[::7] = np.nextafter(flat[::7], flat.dtype.type(np.inf)) if op == "div" else flat[::7]
    assert judged_together(asked) == [alone(each) for each in asked]


def test_questions_of_many_kinds_find_their_own_answers() -> None:
    asked = [
        question(seed, op, dtype, size)
        for seed in range(4)
        for op, dtype, size in [("add", "float32", "20"), ("mul", "float64", "20"), ("add", "float32", "4x5")]
    ]
    asked.insert(3, question(0, "add", "float32", "4"))
    asked.insert(5, question(0, "add", "int32", "20"))
    found = judged_together(asked)
    assert [place for place, each in enumerate(found) if each is None] == [3, 5]
    assert [each or alone(asked[place]) for place, each in enumerate(found)] == [alone(each) for each in asked]


@pytest.mark.parametrize("wrong", ["value", "last", "nan", "infinity", "bound"])
def test_a_wrong_element_is_no_pass_and_spoils_no_other(wrong: str) -> None:
    asked = [question(seed) for seed in range(4)]
    actual = asked[2].actual[0]
    match wrong:
        case "value":
            actual[7] += np.float32(1e-3)
        case "last":
            actual[-1] = -actual[-1]
        case "nan":
            actual[0] = np.nan
        case "infinity":
            actual[3] = np.inf
        case "bound":
            actual[5] = np.nextafter(np.nextafter(actual[5], np.float32(9)), np.float32(9))
    found = judged_together(asked)
    assert found[2] is None
    assert alone(asked[2]).status is Status.FAILED
    assert [found[place] for place in (0, 1, 3)] == [alone(asked[place]) for place in (0, 1, 3)]


@pytest.mark.parametrize("expected", [np.nan, np.inf, 0.0, 1e300])
def test_what_is_expected_and_special_is_judged_alone(expected: float) -> None:
    asked = [question(seed) for seed in range(3)]
    asked[1].expected[0].value[4] = expected
    asked[1].actual[0][4] = np.float32(min(expected, 3e38))
    found = judged_together(asked)
    assert found[1] is None
    assert None not in (found[0], found[2])


def test_another_shape_or_dtype_than_expected_is_no_pass() -> None:
    asked = [question(seed) for seed in range(4)]
    asked[0] = asked[0]._replace(actual=[asked[0].actual[0].reshape(4, 10)])
    asked[1] = asked[1]._replace(actual=[asked[1].actual[0].astype(np.float64)])
    asked[2] = asked[2]._replace(actual=[])
    assert judged_together(asked)[:3] == [None] * 3


def test_a_law_with_a_statistic_or_terms_is_left_alone() -> None:
    asked = [question(seed, "add", "float16") for seed in range(3)]
    assert asked[0].actual[0].dtype == numpy_dtype(asked[0].case.outputs[0].dtype)
    assert judged_together(asked) == [None] * 3
    flushing = [each._replace(numerics=Numerics(denormals="flush")) for each in (question(0), question(1))]
    assert judged_together(flushing) == [None] * 2


def test_a_tolerance_of_the_user_decides_alone() -> None:
    layer = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=1e-3, atol=0.0))
    asked = [question(seed) for seed in range(3)]
    asked = [each._replace(case=replace(each.case, tolerances=(layer,))) for each in asked]
    assert judged_together(asked) == [None] * 3
    assert alone(asked[0]).measures[0].rule.name == "tolerance"  # type: ignore[union-attr]


def test_many_rows_are_judged_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_MOST_ELEMENTS", 90)
    asked = [question(seed) for seed in range(5)]
    found = judged_together(asked)
    assert found[:4] == [alone(each) for each in asked[:4]]
    assert found[4] is None  # nobody is left to be judged with

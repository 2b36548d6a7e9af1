"""numpy and stub answer with the case's reference, rounded once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from handmade import ADD, case_of, inputs, spec

from optest.backends import _BUILTINS, BackendManager, Fault, Reason
from optest.spec import OperatorDescriptor


def third(_inputs: Any, _attributes: Any) -> Any:
    return (np.full((2,), 1 / 3),)


@pytest.fixture(params=["numpy", "stub"])
def driver(request: pytest.FixtureRequest) -> Any:
    return BackendManager(_BUILTINS).get(request.param)


def test_the_reference_is_rounded_to_the_declared_dtype(driver: Any) -> None:
    third_of = OperatorDescriptor(name="third", signature="input -> out", reference=f"{__name__}:third")
    case = case_of(third_of, spec("bfloat16", 2), outputs=(spec("bfloat16", 2),))
    (output,) = driver.run(case, [np.zeros(2, ml_dtypes.bfloat16)])
    assert output.dtype == ml_dtypes.bfloat16
    assert output.tolist() == [float(ml_dtypes.bfloat16(1 / 3))] * 2


def test_undeclared_float64_becomes_dtype_of_inputs(driver: Any) -> None:
    (output,) = driver.run(case_of(ADD, spec("float32", 2, 3), spec("float32", 2, 3)), inputs())
    assert output.dtype == np.float32
    assert output.tolist() == [[0, 11, 22], [33, 44, 55]]


def test_the_cases_own_reference_goes_first(driver: Any) -> None:
    case = case_of(ADD, spec("float64", 2), spec("float64", 2), reference=f"{__name__}:third")
    assert driver.run(case, [np.ones(2), np.ones(2)])[0].tolist() == [1 / 3, 1 / 3]


def test_bare_array_output_and_missing_input(driver: Any) -> None:
    def reference(given: Any, _attributes: Any) -> Any:
        assert given[1] is None
        return given[0] + given[2]

    operator = OperatorDescriptor(name="op", signature="x, y?, z? -> out", reference=reference)
    case = case_of(operator, spec("float64", 2), spec("float64", 2))
    case = replace(case, inputs=(case.inputs[0], replace(case.inputs[1], name="z")))
    assert [each.tolist() for each in driver.run(case, [np.ones(2), np.ones(2)])] == [[2, 2]]


def test_without_a_reference_it_is_unsupported(driver: Any) -> None:
    case = case_of(OperatorDescriptor(name="mystery"), spec("float32", 2))
    assert "has no reference" in driver.unsupported(case)
    with pytest.raises(Fault) as caught:
        driver.run(case, [np.ones(2)])
    assert caught.value.reason is Reason.UNSUPPORTED

"""A pass that an output of only zeros or NaN would have, too, is suspect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from texts import says

from optest.api import cases
from optest.core.runner import TestRunner
from optest.spec import CaseResult, Status


def result_of(**options: Any) -> CaseResult:
    (result,) = TestRunner().run(cases(**options))
    return result


SOFTMAX = {"op": "softmax", "dtype": "float16", "shape": "input0=4x32000", "generator": "zeros"}


def test_a_tolerance_that_admits_zeros() -> None:
    wide = result_of(**SOFTMAX, tolerance="atol=1e-3")
    assert wide.status is Status.SUSPECT
    assert "zeros" in wide.verdict.message
    assert result_of(**SOFTMAX, tolerance="rtol=1e-3").status is Status.PASSED


@pytest.mark.parametrize("tolerance", ["rtol=1", "rtol=0.5,atol=100", "mismatch_ratio=0.99"])
def test_other_ways_to_write_it(tolerance: str) -> None:
    add = {"op": "add", "dtype": "int32", "shape": ("input0=9", "input1=9"), "generator": "randint(low=-9,high=9)"}
    assert result_of(**add, tolerance=tolerance).status is Status.SUSPECT


def test_a_tolerance_that_admits_the_mean() -> None:
    sigmoid = {"op": "sigmoid", "dtype": "float32", "shape": "input0=4x16", "generator": "uniform(low=0,high=5)"}
    wide = result_of(**sigmoid, tolerance="rtol=0.2,atol=0.5")
    assert wide.status is Status.SUSPECT
    assert says(wide.verdict.message, "core.the_mean_of_the")
    assert result_of(**sigmoid, tolerance="rtol=1e-2,atol=1e-2").status is Status.PASSED


def test_right_zeros_are_not_suspect() -> None:
    relu = {"op": "relu", "dtype": "float32", "shape": "input0=9", "generator": "uniform(low=-2,high=-1)"}
    assert result_of(**relu, tolerance="atol=1e-3").status is Status.PASSED


def test_results_without_a_number() -> None:
    flooded = {"op": "matmul", "dtype": "float16", "shape": ("input0=8x128", "input1=128x8")}
    assert result_of(**flooded, generator="special(rate=0.9)").status is Status.SUSPECT
    assert result_of(**flooded, generator="special").status is Status.PASSED


def test_inputs_written_by_user_are_accepted() -> None:
    (case,) = cases(op="relu", dtype="float32", shape="input0=1")
    argument = case.inputs[0]
    nan = replace(argument, fill=replace(argument.fill, kind="data", parameters={"values": [float("nan")]}))
    (result,) = TestRunner().run([replace(case, inputs=(nan,))])
    assert result.status is Status.PASSED

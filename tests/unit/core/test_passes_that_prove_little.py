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
ADD = {"op": "add", "dtype": "int32", "shape": ("input0=9", "input1=9"), "generator": "randint(low=-9,high=9)"}
SIGMOID = {"op": "sigmoid", "dtype": "float32", "shape": "input0=4x16", "generator": "uniform(low=0,high=5)"}
RELU = {"op": "relu", "dtype": "float32", "shape": "input0=9", "generator": "uniform(low=-2,high=-1)"}
MATMUL = {"op": "matmul", "dtype": "float16", "shape": ("input0=8x128", "input1=128x8")}


@pytest.mark.parametrize(
    ("call", "wide", "narrow", "words"),
    [
        (SOFTMAX, {"tolerance": "atol=1e-3"}, {"tolerance": "rtol=1e-3"}, "zeros"),
        *((ADD, {"tolerance": wide}, {}, "") for wide in ("rtol=1", "rtol=0.5,atol=100", "mismatch_ratio=0.99")),
        (SIGMOID, {"tolerance": "rtol=0.2,atol=0.5"}, {"tolerance": "rtol=1e-2,atol=1e-2"}, "core.the_mean_of_the"),
        (MATMUL, {"generator": "special(rate=0.9)"}, {"generator": "special"}, ""),
    ],
)
def test_a_pass_of_constants_is_suspect(call: Any, wide: Any, narrow: Any, words: str) -> None:
    suspect = result_of(**call, **wide)
    assert suspect.status is Status.SUSPECT
    assert says(suspect.verdict.message, words) if "." in words else words in suspect.verdict.message
    assert result_of(**call, **narrow).status is Status.PASSED


def test_right_zeros_are_not_suspect() -> None:
    assert result_of(**RELU, tolerance="atol=1e-3").status is Status.PASSED


def test_inputs_written_by_user_are_accepted() -> None:
    (case,) = cases(op="relu", dtype="float32", shape="input0=1")
    argument = case.inputs[0]
    nan = replace(argument, fill=replace(argument.fill, kind="data", parameters={"values": [float("nan")]}))
    (result,) = TestRunner().run([replace(case, inputs=(nan,))])
    assert result.status is Status.PASSED

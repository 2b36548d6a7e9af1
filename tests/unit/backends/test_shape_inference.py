"""Frameworks infer shapes and dtypes without computing: what they infer is what they return."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optest.api import cases
from optest.api.checking import check, sample_cases
from optest.backends import backend_manager
from optest.backends.abilities import InfersShapes
from optest.core.expected import make_inputs
from optest.numerics import dtype_of
from optest.spec import Fault, Status

FEW = ("matmul", "softmax", "argmax", "concat", "topk", "reshape", "cast", "conv2d")
BACKENDS = [
    pytest.param("torch", marks=pytest.mark.torch),
    pytest.param("jax", marks=pytest.mark.heavy),
    pytest.param("onnxruntime", marks=pytest.mark.heavy),
    "onnx-reference",
    pytest.param("openvino", marks=pytest.mark.heavy),
]


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("onnx" if request.param == "onnx-reference" else request.param)
    return backend_manager.get(request.param)


@pytest.mark.parametrize("driver", BACKENDS, indirect=True)
def test_what_is_inferred_is_what_is_returned(driver: Any) -> None:
    assert isinstance(driver, InfersShapes)
    compared = 0
    for operator in FEW:
        for case in sample_cases(operator)[:8]:
            asked = replace(case, backend=backend_manager.target(driver))
            if case.expects_error is not None or driver.unsupported(asked) is not None:
                continue
            try:
                returned = [np.asarray(each) for each in driver.run(asked, make_inputs(asked)[0])]
            except Fault:  # no kernel for the dtype
                continue
            inferred = driver.infer_shapes(asked)
            assert [(each.dtype, each.shape) for each in inferred] == [
                (dtype_of(each.dtype), each.shape) for each in returned
            ]
            compared += 1
    assert compared > 3 * len(FEW)


@pytest.mark.parametrize("driver", BACKENDS, indirect=True)
def test_nothing_is_computed(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that raises whenever it is called infers all the same; a shape that it alone can refuse is refused."""

    def run(*_: object) -> None:
        raise AssertionError("was called")

    monkeypatch.setattr(driver, "run", run)
    given = {"backend": driver.name, "op": ("matmul",), "group": "validation", "isolate": "none", "jobs": 1}
    outcome = check(given, stream=io.StringIO())
    assert {each.status for each in outcome.results} <= {Status.PASSED, Status.SKIPPED}
    assert not any("was called" in each.verdict.message for each in outcome.results)
    refused = [each for each in outcome.results if "set:refused" in each.tags and each.status is Status.PASSED]
    assert len(refused) >= 2


@pytest.mark.parametrize("driver", BACKENDS, indirect=True)
def test_more_than_any_memory_holds(driver: Any) -> None:
    (case,) = cases(op="relu", dtype="float32", shape=("input0=1048576x1048576",))
    (inferred,) = driver.infer_shapes(replace(case, backend=backend_manager.target(driver)))
    assert inferred.shape == (1 << 20, 1 << 20)

"""Cases without values: inferred specs are compared, and the driver computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from core_kit import raising

from optest.api import cases
from optest.backends import BackendDriver
from optest.core.runner import execute
from optest.core.wire import case_from_wire, case_to_wire
from optest.operators import operators
from optest.spec import VALIDATION, Evidence, ExpectedError, Fault, Reason, Status, TensorSpec, TestCase, Verdict, dtype


def spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(dtype=dtype(name), shape=shape)


class Lazy(BackendDriver):
    """Driver that infers by ``infer``; it must not be run for values."""

    name, kind = "lazy", "cpu"

    def __init__(self, infer: Callable[[], Any]) -> None:
        self.infer = infer
        self.ran = 0

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        return self.infer()  # type: ignore[no-any-return]

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self.ran += 1
        raise IndexError("index 9 is out of bounds")


def judged(driver: BackendDriver, refusal: ExpectedError | None = None) -> Verdict:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=3"))
    return execute([replace(case, mode=VALIDATION, expects_error=refusal)], driver).verdicts[0]


def test_right_shapes_pass_without_values() -> None:
    driver = Lazy(lambda: [spec("float32", 2, 3)])
    verdict = judged(driver)
    assert (verdict.status, verdict.evidence, driver.ran) == (Status.PASSED, Evidence.SPECS_COMPARED, 0)
    assert (verdict.measures, verdict.message) == ((), "inferred: float32 2x3")
    assert [item.name for item in verdict.checks] == ["shape inference"]


@pytest.mark.parametrize(
    ("inferred", "reason", "words"),
    [
        ([spec("float32", 3, 2)], Reason.SHAPE, "out: the inferred shape is 3x2, expected 2x3"),
        ([spec("float16", 2, 3)], Reason.DTYPE, "out: the inferred dtype is float16, expected float32"),
        ([], Reason.MISSING_OUTPUT, "out is not inferred"),
        ([spec("float32", 2, 3)] * 2, Reason.EXTRA_OUTPUT, "2 outputs are inferred, expected 1"),
        ([(2, 3)], Reason.RAISED, "expected a list of TensorSpec"),
    ],
)
def test_wrong_specs_fail(inferred: Any, reason: Reason, words: str) -> None:
    verdict = judged(Lazy(lambda: inferred))
    assert (verdict.reason, words in verdict.message) == (reason, True), verdict.message


def test_error_of_right_call_fails() -> None:
    assert judged(Lazy(raising(ValueError("no")))).reason is Reason.RAISED
    unknown = judged(Lazy(raising(Fault(Reason.UNSUPPORTED, "depends on values"))))
    assert (unknown.status, unknown.reason) == (Status.SKIPPED, Reason.UNSUPPORTED)


def test_refusal_by_shapes_runs_nothing() -> None:
    driver = Lazy(raising(TypeError("shapes (2, 3) and (4,) do not broadcast")))
    verdict = judged(driver, ExpectedError(type="TypeError", match="broadcast"))
    assert (verdict.status, verdict.evidence, driver.ran) == (Status.PASSED, Evidence.RAISED_AS_EXPECTED, 0)
    assert judged(driver, ExpectedError(type="TypeError", match="rank")).reason is Reason.WRONG_ERROR
    assert judged(driver, ExpectedError(type="ValueError")).reason is Reason.WRONG_ERROR


@pytest.mark.parametrize(
    "infer", [lambda: [spec("float32", 2, 3)], raising(Fault(Reason.UNSUPPORTED, "depends on values"))]
)
def test_backend_runs_if_shapes_are_accepted(infer: Callable[[], Any]) -> None:
    driver = Lazy(infer)
    verdict = judged(driver, ExpectedError(type="IndexError"))
    assert (verdict.status, driver.ran) == (Status.PASSED, 1)
    assert not any(item.name == "shape inference" for item in verdict.checks)


def test_driver_without_inference_is_skipped() -> None:
    class Plain(BackendDriver):
        name, kind = "plain", "cpu"

        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            raise AssertionError("not asked")

    verdict = judged(Plain())
    expected = "backend plain offers no shape inference for this operator"
    assert (verdict.status, verdict.message) == (Status.SKIPPED, expected)


def test_mode_reaches_workers() -> None:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=3"))
    there = case_from_wire(case_to_wire(replace(case, mode=VALIDATION)), operators.get)
    assert (there.mode, case_from_wire(case_to_wire(case), operators.get).mode) == (VALIDATION, "forward")

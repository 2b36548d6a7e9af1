"""A case without values: what a driver infers is compared, and the driver computes nothing for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from optest.api import cases
from optest.backends import BackendDriver
from optest.core.runner import execute
from optest.core.wire import case_from_wire, case_to_wire
from optest.operators import operators
from optest.spec import VALIDATION, Evidence, ExpectedError, Fault, Reason, Status, TensorSpec, TestCase, Verdict, dtype


def spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(dtype=dtype(name), shape=shape)


class Lazy(BackendDriver):
    """Infers what ``infer`` says, and has to be asked for values by nobody."""

    name, kind = "lazy", "cpu"

    def __init__(self, infer: Callable[[], Any]) -> None:
        self.infer = infer
        self.ran = 0

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        return self.infer()  # type: ignore[no-any-return]

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self.ran += 1
        raise IndexError("index 9 is out of bounds")


def raises(error: Exception) -> Callable[[], Any]:
    def infer() -> Any:
        raise error

    return infer


def judged(driver: BackendDriver, refusal: ExpectedError | None = None) -> Verdict:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=3"))
    return execute([replace(case, mode=VALIDATION, expects_error=refusal)], driver).verdicts[0]


def test_right_shapes_pass_without_a_value() -> None:
    driver = Lazy(lambda: [spec("float32", 2, 3)])
    found = judged(driver)
    assert (found.status, found.evidence, driver.ran) == (Status.PASSED, Evidence.SPECS_COMPARED, 0)
    assert (found.measures, found.message) == ((), "inferred: float32 2x3")
    assert [each.name for each in found.checks] == ["shape inference"]


@pytest.mark.parametrize(
    ("inferred", "reason", "words"),
    [
        ([spec("float32", 3, 2)], Reason.SHAPE, "out: the shape is inferred as 3x2, but should be 2x3"),
        ([spec("float16", 2, 3)], Reason.DTYPE, "out: the dtype is inferred as float16, but should be float32"),
        ([], Reason.MISSING_OUTPUT, "out is not inferred"),
        ([spec("float32", 2, 3)] * 2, Reason.EXTRA_OUTPUT, "2 outputs are inferred, but there are 1"),
        ([(2, 3)], Reason.RAISED, "should return TensorSpecs"),
    ],
)
def test_what_is_wrong(inferred: Any, reason: Reason, words: str) -> None:
    found = judged(Lazy(lambda: inferred))
    assert (found.reason, words in found.message) == (reason, True), found.message


def test_an_error_where_the_call_is_right() -> None:
    assert judged(Lazy(raises(ValueError("no")))).reason is Reason.RAISED
    unknown = judged(Lazy(raises(Fault(Reason.UNSUPPORTED, "depends on values"))))
    assert (unknown.status, unknown.reason) == (Status.SKIPPED, Reason.UNSUPPORTED)


def test_a_refusal_by_shapes_runs_nothing_and_its_text_counts() -> None:
    driver = Lazy(raises(TypeError("shapes (2, 3) and (4,) do not broadcast")))
    found = judged(driver, ExpectedError(type="TypeError", match="broadcast"))
    assert (found.status, found.evidence, driver.ran) == (Status.PASSED, Evidence.RAISED_AS_EXPECTED, 0)
    assert judged(driver, ExpectedError(type="TypeError", match="rank")).reason is Reason.WRONG_ERROR
    assert judged(driver, ExpectedError(type="ValueError")).reason is Reason.WRONG_ERROR


@pytest.mark.parametrize(
    "infer", [lambda: [spec("float32", 2, 3)], raises(Fault(Reason.UNSUPPORTED, "depends on values"))]
)
def test_what_shapes_do_not_refuse_is_called(infer: Callable[[], Any]) -> None:
    driver = Lazy(infer)
    found = judged(driver, ExpectedError(type="IndexError"))
    assert (found.status, driver.ran) == (Status.PASSED, 1)
    assert not any(each.name == "shape inference" for each in found.checks)


def test_a_driver_without_the_ability_shows_nothing() -> None:
    class Plain(BackendDriver):
        name, kind = "plain", "cpu"

        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            raise AssertionError("not asked")

    found = judged(Plain())
    assert (found.status, found.message) == (Status.SKIPPED, "backend plain offers no shape inference of it")


def test_the_mode_reaches_workers() -> None:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=3"))
    there = case_from_wire(case_to_wire(replace(case, mode=VALIDATION)), operators.get)
    assert (there.mode, case_from_wire(case_to_wire(case), operators.get).mode) == (VALIDATION, "forward")

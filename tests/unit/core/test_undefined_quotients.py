"""Integers divided by 0, and the smallest by -1: any result is right, a crash is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from optest.api.listing import samples_of
from optest.backends import BackendDriver
from optest.core.runner import execute
from optest.operators import operators
from optest.spec import Argument, BackendTarget, Evidence, Fill, Reason, Status, TensorSpec, TestCase, Verdict, dtype

DIVIDENDS, DIVISORS = (1, 7, -2147483648, 9), (0, 2, -1, -4)


class Answering(BackendDriver):
    name = kind = "answering"

    def __init__(self, answer: Callable[[Any, Any], Any]) -> None:
        self.answer = answer

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        return [np.asarray(self.answer(*inputs))]


def verdict(operator: str, answer: Callable[[Any, Any], Any], divisors: Sequence[int] = DIVISORS) -> Verdict:
    descriptor = operators.get(operator)
    spec = TensorSpec(dtype=dtype("int32"), shape=(4,))
    arguments = tuple(
        Argument(name=name, path=f"input{i}", spec=spec, fill=Fill(kind="data", parameters={"values": list(values)}))
        for i, (name, values) in enumerate((("input", DIVIDENDS), ("other", divisors)))
    )
    case = TestCase(
        descriptor=descriptor,
        inputs=arguments,
        attributes=descriptor.bind({}),
        backend=BackendTarget(name="answering"),
    )
    return execute([case], Answering(answer)).verdicts[0]


def floor(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.floor_divide(a, b)


@pytest.mark.parametrize("value", [0, -1, 2**31 - 1])
def test_anything_may_come_of_them(value: int) -> None:
    undefined = [True, False, True, False]
    judged = verdict("floor_divide", lambda a, b: np.where(undefined, value, floor(a, b)).astype("i4"))
    assert judged.status is Status.PASSED


@pytest.mark.parametrize(("place", "status"), [(0, Status.PASSED), (1, Status.FAILED), (2, Status.PASSED)])
def test_what_stands_beside_them_is_judged(place: int, status: Status) -> None:
    def answer(a: Any, b: Any) -> Any:
        out = floor(a, b)
        out[place] += 1
        return out

    assert verdict("floor_divide", answer).status is status


def test_the_smallest_over_minus_one_leaves_no_remainder() -> None:
    def answer(a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            out = np.fmod(a, b)
        out[2] = 1
        return out

    assert verdict("fmod", answer).reason is Reason.VALUE


def raising(error: Exception) -> Callable[[Any, Any], Any]:
    def answer(a: Any, b: Any) -> Any:
        raise error

    return answer


def test_an_exception_is_as_right_as_an_answer() -> None:
    refused = verdict("floor_divide", raising(ZeroDivisionError("integer division by zero")))
    assert (refused.status, refused.evidence) == (Status.PASSED, Evidence.RAISED_AS_EXPECTED)


def test_an_exception_is_wrong_where_everything_is_defined() -> None:
    assert verdict("floor_divide", raising(ZeroDivisionError()), (1, 2, 3, -4)).reason is Reason.RAISED


def test_a_slip_is_no_refusal() -> None:
    assert verdict("floor_divide", raising(NameError("name 'quotient' is not defined"))).status is Status.FAILED


def test_a_pass_without_a_defined_element_is_suspect() -> None:
    assert verdict("floor_divide", lambda a, b: np.zeros(4, "i4"), (0, 0, -1, 0)).status is Status.SUSPECT


@pytest.mark.parametrize("name", ["div", "floor_divide", "remainder", "fmod"])
def test_a_check_draws_them(name: str) -> None:
    drawn = [each.case for each in samples_of(operators.get(name)) if each.case_set == "zero divisors"]
    assert any("int32" in each["dtypes"] for each in drawn)
    same = [each for each in drawn if "int32" in each["dtypes"] and len({*map(tuple, each["shapes"].values())}) == 1]
    assert next(each["generator"]["other"]["values"][:6] for each in same) == [1, 2, 0, 3, -1, -3]

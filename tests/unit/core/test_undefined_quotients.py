"""Integers divided by 0, and the smallest by -1: any result is right, a crash is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from core_kit import Kernel, case_of, raising, spec_of, values_of, verdict_of

from optest.api.listing import samples_of
from optest.operators import operators
from optest.spec import Evidence, Reason, Status, Verdict

DIVIDENDS, DIVISORS = (1, 7, -2147483648, 9), (0, 2, -1, -4)


def verdict(operator: str, answer: Kernel, divisors: Sequence[int] = DIVISORS) -> Verdict:
    spec = spec_of(4, kind="int32")
    return verdict_of(answer, case_of(operator, spec, spec, fill=[values_of(*DIVIDENDS), values_of(*divisors)]))


def floor(a: Any, b: Any) -> Any:
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
        out = np.fmod(a, b)
        out[2] = 1
        return out

    assert verdict("fmod", answer).reason is Reason.VALUE


REFUSES = raising(ZeroDivisionError("integer division by zero"))


@pytest.mark.parametrize(
    ("answer", "divisors", "outcome"),
    [
        (REFUSES, DIVISORS, (Status.PASSED, None, Evidence.RAISED_AS_EXPECTED)),
        (REFUSES, (1, 2, 3, -4), (Status.ERROR, Reason.RAISED, None)),
        (raising(NameError("name 'quotient' is not defined")), DIVISORS, (Status.FAILED, Reason.WRONG_ERROR, None)),
    ],
)
def test_a_refusal_is_right_unless_all_is_defined(answer: Kernel, divisors: Sequence[int], outcome: Any) -> None:
    refused = verdict("floor_divide", answer, divisors)
    assert (refused.status, refused.reason, refused.evidence) == outcome


def test_a_pass_without_a_defined_element_is_suspect() -> None:
    assert verdict("floor_divide", lambda a, b: np.zeros(4, "i4"), (0, 0, -1, 0)).status is Status.SUSPECT


@pytest.mark.parametrize("name", ["div", "floor_divide", "remainder", "fmod"])
def test_a_check_draws_them(name: str) -> None:
    drawn = [each.case for each in samples_of(operators.get(name)) if each.case_set == "zero divisors"]
    assert any("int32" in each["dtypes"] for each in drawn)
    same = [each for each in drawn if "int32" in each["dtypes"] and len({*map(tuple, each["shapes"].values())}) == 1]
    assert next(each["generator"]["other"]["values"][:6] for each in same) == [1, 2, 0, 3, -1, -3]

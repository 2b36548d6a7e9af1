"""Subnormal operands that a device reads as zeros: right if declared, explained if not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from core_kit import raising
from texts import says

from optest.backends import BackendDriver, ExtraOutput
from optest.spec import CheckState, Numerics, Reason, Status, TestCase, Verdict

TINY = 2.0**-126
VALUES = [2.0**-130, -(2.0**-149), 1.0, TINY, 0.0]
SMALL = [2.0**-130, 2.0**-149, 1.0, TINY, 2.0]
FLUSHING = Numerics(denormals="flush")


def flushed(array: Any) -> Any:
    return np.where(np.abs(array) < TINY, np.copysign(np.float32(0), array), array).astype(np.float32)


class Device(BackendDriver):
    """Driver that computes in float32 with subnormal operands and results as zeros."""

    name, kind = "device", "cpu"

    def __init__(
        self, numerics: Numerics, function: Callable[..., Any], *, off: float = 0.0, later: bool = False
    ) -> None:
        self.numerics, self.function, self.off, self.later = numerics, function, off, later
        self.answer: Any = None

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any]:
        with np.errstate(all="ignore"):
            found = self.function(*map(flushed, inputs))
            self.answer = found + np.float32(self.off) if self.off else found
            return {"out": self.function(*inputs) if self.later else self.answer}

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:
        return [ExtraOutput(outputs={"out": self.answer}, how="in call 2")] if self.later else []


Judge = Callable[..., Verdict]


def log(values: Any) -> Any:
    return np.log(values.astype(np.float64)).astype(np.float32)


WIDE = [2.0**100, 2.0**120, float("inf"), 2.0**60, 1.0]
CALLS = [
    ("log", log, ([2.0**-130, 2.0**-149, 1.0, TINY, 0.0],)),
    ("reciprocal", lambda values: np.float32(1) / values, ([2.0**-127, *VALUES[1:]],)),
    ("mul", np.multiply, (VALUES, WIDE)),
    ("ceil", np.ceil, (VALUES,)),
    ("eq", np.equal, (VALUES, [0.0] * 5)),
]


@pytest.mark.parametrize(("op", "function", "fills"), CALLS, ids=[op for op, *_ in CALLS])
def test_what_is_declared_is_right(op: str, function: Any, fills: Any, verdict_of: Judge) -> None:
    found = verdict_of(Device(FLUSHING, function), op, *fills)
    assert found.status is Status.PASSED, found.message
    (note,) = [check for check in found.checks if check.name == "subnormal operands"]
    assert (note.state, note.detail) == (CheckState.NOTE, "read as zeros, as the backend declares")


@pytest.mark.parametrize(("op", "function", "fills"), CALLS, ids=[op for op, *_ in CALLS])
def test_undeclared_flushing_fails_with_hint(op: str, function: Any, fills: Any, verdict_of: Judge) -> None:
    found = verdict_of(Device(Numerics(), function), op, *fills)
    assert (found.status, found.reason) in {(Status.FAILED, Reason.VALUE), (Status.FAILED, Reason.NAN)}
    assert says(found.details["subnormal_operands"], "core.declares_numerics_denormals_flush")


def test_another_fault_beside_it_still_fails(verdict_of: Judge) -> None:
    found = verdict_of(Device(FLUSHING, log, off=1.0), "log", SMALL)
    assert (found.status, found.reason) == (Status.FAILED, Reason.VALUE)
    assert found.measures[0].mismatched == 5
    assert "subnormal_operands" not in found.details


def test_a_device_that_reads_them_is_right_too(verdict_of: Judge) -> None:
    found = verdict_of(Device(FLUSHING, log, later=True), "log", SMALL)
    assert found.status is Status.PASSED, found.message


def test_a_later_answer_is_judged_by_the_same(verdict_of: Judge) -> None:
    found = verdict_of(Device(Numerics(), log, later=True), "log", SMALL)
    assert (found.status, found.details["how"]) == (Status.FAILED, "in call 2")
    assert "subnormal_operands" in found.details


def test_what_is_moved_is_not_read(verdict_of: Judge) -> None:
    found = verdict_of(Device(FLUSHING, lambda values: values), "clone", VALUES)
    assert (found.status, found.reason) == (Status.FAILED, Reason.VALUE)
    assert found.measures[0].mismatched == 2


class Sorts(BackendDriver):
    """Driver that compares subnormal numbers as zeros and moves elements unchanged, unless it flushes them."""

    name, kind, numerics = "sorts", "cpu", FLUSHING

    def __init__(self, *, flushes: bool = False, stable: bool = True) -> None:
        self.flushes, self.stable = flushes, stable

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        indices = np.argsort(flushed(inputs[0]), kind="stable")
        if not self.stable:
            indices[[1, 2]] = indices[[2, 1]]
        values = inputs[0][indices]
        return [flushed(values) if self.flushes else values, indices]


UNSORTED = [2.0, 2.0**-130, 0.0, -(2.0**-149), -1.0]


def test_what_sorts_compares_subnormal_numbers(verdict_of: Judge) -> None:
    found = verdict_of(Sorts(), "sort", UNSORTED)
    assert found.status is Status.PASSED, found.message


def test_what_sorts_moves_elements_as_they_are(verdict_of: Judge) -> None:
    assert verdict_of(Sorts(flushes=True), "sort", UNSORTED).reason is Reason.VALUE


def test_what_sorts_stably_keeps_the_order_of_zeros(verdict_of: Judge) -> None:
    assert verdict_of(Sorts(), "sort", UNSORTED, attributes={"stable": True}).status is Status.PASSED
    assert verdict_of(Sorts(stable=False), "sort", UNSORTED).status is Status.PASSED
    assert verdict_of(Sorts(stable=False), "sort", UNSORTED, attributes={"stable": True}).reason is Reason.VALUE


def test_values_without_subnormal_numbers_are_looked_at_once(
    verdict_of: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = raising(AssertionError("the reference was called again"))
    monkeypatch.setattr("optest.core.comparison.expected_of_other_inputs", again)
    found = verdict_of(Device(FLUSHING, log, off=1.0), "log", [1.0, 2.0, float("nan"), float("inf"), 0.0])
    assert found.status is Status.FAILED

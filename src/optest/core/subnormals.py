"""Subnormal operands that a device reads as zeros: a failed answer is held against what is right for zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.backends import BackendDriver, declared_numerics
from optest.compare.verdict import judge
from optest.core.border import Border
from optest.core.expected import expected_of_other_inputs
from optest.core.phases import REFERENCE, Clock
from optest.numerics import dtype_of, round_to
from optest.spec import Check, CheckState, Reason, RuleClass, Status, TestCase, Verdict

__all__ = ["judged_with_zeros"]

Array = np.ndarray[Any, Any]

_VALUES = (Reason.VALUE, Reason.NAN)
_SORTED = ("values", "indices")
_DECLARED = Check(name="subnormal operands", state=CheckState.NOTE, detail="read as zeros, as the backend declares")
_UNDECLARED = 'right for zeros in their place; a device that reads them so declares Numerics(denormals="flush")'


def judged_with_zeros(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[Any],
    verdict: Verdict,
    *,
    clock: Clock,
    interrupted: Callable[[], bool] | None,
) -> Verdict:
    """``verdict``, unless values are wrong that are right where every subnormal operand is a zero of its sign.

    They are right then of a backend that declares ``denormals="flush"``, and else the verdict says so. What only
    moves elements reads none of them; what sorts compares them, and moves them as they are. The reference that is asked
    once more is told to the ``clock``.
    """
    if verdict.status is not Status.FAILED or verdict.reason not in _VALUES:
        return verdict
    zeroed = _zeroed(inputs)
    if zeroed is None:
        return verdict
    answered = _answered(case, inputs, outputs)
    if answered is None:
        return verdict
    with clock.announced(REFERENCE):
        expected = expected_of_other_inputs(case, zeroed, driver, interrupted)
    if isinstance(expected, str):
        return verdict
    numerics = declared_numerics(driver, case)
    flushing = replace(numerics, denormals="flush")
    with Border("the comparison", Reason.INTERNAL):
        found = judge(case, answered, expected, numerics=flushing, inputs=zeroed, checks=verdict.checks)
    if found.status is not Status.PASSED:
        return verdict
    if numerics == flushing:
        return replace(found, checks=(*found.checks, _DECLARED))
    return replace(verdict, details={**verdict.details, "subnormal_operands": _UNDECLARED})


def _answered(case: TestCase, inputs: Sequence[Array], outputs: Sequence[Any]) -> Sequence[Any] | None:
    """The outputs to judge by operands that are zeros; None for elements that only move, or do not move as they are."""
    rule = case.descriptor.rule
    if rule is None or rule.kind is not RuleClass.MOVEMENT:
        return outputs
    if case.descriptor.tensors.outputs != _SORTED or len(outputs) != len(_SORTED):
        return None
    values, indices = map(np.asarray, outputs)
    try:
        named = np.take_along_axis(inputs[0], indices.astype(np.int64), axis=case.attributes["dim"])
    except (IndexError, ValueError):
        return None
    if values.dtype != named.dtype or not _has_bits_of(values, named):
        return None
    return [_without_subnormals(values), indices]


def _has_bits_of(values: Array, named: Array) -> bool:
    words = f"u{values.itemsize}"
    equal = np.ascontiguousarray(values).view(words) == np.ascontiguousarray(named).view(words)
    return bool(np.all(equal | ((values != values) & (named != named))))


def _zeroed(inputs: Sequence[Array]) -> list[Array] | None:
    """The inputs with zeros for subnormal numbers; None if they have none."""
    zeroed = [_without_subnormals(array) for array in inputs]
    return zeroed if any(new is not old for new, old in zip(zeroed, inputs, strict=True)) else None


def _without_subnormals(array: Array) -> Array:
    entry = dtype_of(array.dtype)
    if not entry.is_inexact:
        return array
    flushed = round_to(array, entry, denormals="flush")
    return flushed if np.any(flushed != array) and np.any(_is_zero(flushed, array)) else array


def _is_zero(flushed: Array, array: Array) -> Any:
    """Where an element, or a part of a complex one, became zero."""
    if array.dtype.kind != "c":
        return (flushed == 0) & (array != 0)
    return ((flushed.real == 0) & (array.real != 0)) | ((flushed.imag == 0) & (array.imag != 0))

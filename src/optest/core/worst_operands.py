"""What a wrong result came from: what an elementwise operator was given there, and what the operator is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.spec import Measure, Reason, Status, TestCase, Verdict

__all__ = ["ELEMENTWISE", "with_definition", "with_worst_operands"]

Array = np.ndarray[Any, Any]

ELEMENTWISE = frozenset({"activation", "bitwise", "comparison", "conversion", "elementwise", "logic"})
_VALUES = (Reason.VALUE, Reason.NAN)


def with_worst_operands(case: TestCase, inputs: Sequence[Array], verdict: Verdict) -> Verdict:
    """``verdict`` with the operands of the worst element among its details, where each has one there."""
    if verdict.status is not Status.FAILED or verdict.reason not in _VALUES:
        return verdict
    if case.descriptor.category not in ELEMENTWISE:
        return verdict
    wrong = [measure for measure in verdict.measures if measure.mismatched and measure.worst_index is not None]
    if len(wrong) != 1:
        return verdict
    there = [_at(array, wrong[0]) for array in inputs]
    if not there or None in there:
        return verdict
    words = [f"{argument.name} {value}" for argument, value in zip(case.inputs, there, strict=True)]
    return replace(verdict, details={**verdict.details, "operands_there": ", ".join(words)})


def with_definition(case: TestCase, verdict: Verdict) -> Verdict:
    """``verdict`` with the operator's own words, where a number alone does not say why it is right: for the dtype
    of integers, what has one right answer, and a result or an operand that is no number."""
    if verdict.status is not Status.FAILED or not case.descriptor.description:
        return verdict
    if verdict.reason in _VALUES:
        worst = next((measure for measure in verdict.measures if measure.mismatched), None)
        if worst is None or not (_is_exact(worst) or isinstance(worst.worst_expected, str) or _has_nan(verdict)):
            return verdict
    elif verdict.reason is not Reason.DTYPE or any(each.spec.dtype.is_inexact for each in case.inputs):
        return verdict
    return replace(verdict, details={**verdict.details, "definition": case.descriptor.description})


def _is_exact(measure: Measure) -> bool:
    return measure.rule is not None and measure.rule.name == "exact"


def _has_nan(verdict: Verdict) -> bool:
    return "nan" in str(verdict.details.get("operands_there", "")).replace(",", "").split()


def _at(array: Array, measure: Measure) -> str | None:
    """The element that is broadcast to the worst one, None where the shapes do not say which that is."""
    assert measure.worst_index is not None
    lead = len(measure.shape) - array.ndim
    if lead < 0:
        return None
    index = []
    for size, broadcast, place in zip(array.shape, measure.shape[lead:], measure.worst_index[lead:], strict=True):
        if size not in (1, broadcast):
            return None
        index.append(place if size == broadcast else 0)
    return str(array[tuple(index)])

"""Operands and a wrong answer: what stood at the worst element, and whether the answer is right for operands that are
read otherwise than by the reference.

Right by another reading is a pass with a note where that reading is right too, and else a failure that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from optest.core.comparison import Comparison
from optest.numerics import dtype_of, round_to, widen
from optest.operators.shapes import promote_tensors
from optest.spec import (
    Check,
    CheckState,
    DType,
    Measure,
    Numerics,
    Reason,
    RuleClass,
    Status,
    TestCase,
    UnfitArguments,
    Verdict,
    dtype,
)

Array = np.ndarray[Any, Any]

ELEMENTWISE = frozenset({"activation", "bitwise", "comparison", "conversion", "elementwise", "logic"})
_VALUES = (Reason.VALUE, Reason.NAN)
_SORTED = ("values", "indices")
_SUBNORMAL = "subnormal operands"
_UNDECLARED = 'right for zeros in their place; a device that reads them so declares Numerics(denormals="flush")'


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
        has_nan = "nan" in str(verdict.details.get("operands_there", "")).replace(",", "").split()
        is_exact = worst is not None and worst.rule is not None and worst.rule.name == "exact"
        if worst is None or not (is_exact or isinstance(worst.worst_expected, str) or has_nan):
            return verdict
    elif verdict.reason is not Reason.DTYPE or any(each.spec.dtype.is_inexact for each in case.inputs):
        return verdict
    return replace(verdict, details={**verdict.details, "definition": case.descriptor.description})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Other inputs, what of the answer is judged by them, and what a pass is called; ``is_right`` makes it one."""

    inputs: Sequence[Array]
    outputs: Sequence[Any]
    numerics: Numerics
    name: str
    words: str
    is_right: bool


def judged_by_readings(comparison: Comparison, verdict: Verdict) -> Verdict:
    """``verdict``, unless values are wrong that are right by another reading of the operands."""
    if verdict.status is not Status.FAILED or verdict.reason not in _VALUES:
        return verdict
    for reading in chain(_of_promotion(comparison), _of_zeros(comparison)):
        other = comparison.with_inputs(reading.inputs)
        if isinstance(other, str):
            return verdict
        judged = other._replace(outputs=reading.outputs).judged(numerics=reading.numerics, checks=verdict.checks)
        if judged.status is Status.PASSED and not reading.is_right:
            return replace(verdict, details={**verdict.details, reading.name.replace(" ", "_"): reading.words})
        if judged.status is Status.PASSED:
            note = Check(name=reading.name, state=CheckState.NOTE, detail=reading.words)
            return replace(judged, checks=(*judged.checks, note))
    return verdict


def _of_promotion(comparison: Comparison) -> Iterator[_Reading]:
    """An operand without dimensions does not widen the arithmetic of a tensor beside it (torch.result_type).

    Whether it is rounded to the tensor's dtype, or to float32, or not at all, differs between libraries and between
    their kernels: all of it is right. Integers with dimensions are rounded to the common dtype first, everywhere.
    """
    common, inputs = _common_dtype(comparison.case), comparison.inputs
    if common is None:
        return
    unchanged: dict[str, Any] = {"outputs": comparison.outputs, "numerics": comparison.numerics}
    scalars = [not array.ndim and _is_finer(array, common) for array in inputs]
    for read in dict.fromkeys((None, dtype("float32"), common)):
        others = _converted(inputs, scalars, read)
        if others is not None:
            words = f"right where they are {f'rounded to {read}' if read else 'not rounded'}, as in some libraries"
            yield _Reading(inputs=others, **unchanged, name="0-d operands", words=words, is_right=True)
    integers = [bool(array.ndim) and array.dtype.kind in "iu" for array in inputs]
    unrounded = _converted(inputs, integers, None)
    if unrounded is not None:
        words = f"right for ones that are not rounded to {common}, the common dtype, before anything is computed"
        yield _Reading(inputs=unrounded, **unchanged, name="integer operands", words=words, is_right=False)


def _common_dtype(case: TestCase) -> DType | None:
    """The dtype in which operands of several dtypes meet, where it is inexact."""
    specs = [argument.spec for argument in case.inputs]
    if not case.descriptor.is_promoting or len({spec.dtype for spec in specs}) < 2:
        return None
    try:
        common = promote_tensors(specs)
    except UnfitArguments:
        return None
    return common if common.is_inexact else None


def _is_finer(array: Array, common: DType) -> bool:
    entry = dtype_of(array.dtype)
    return entry.is_integer or (entry.is_inexact and entry.precision > common.precision)


def _converted(inputs: Sequence[Array], chosen: Sequence[bool], read: DType | None) -> list[Array] | None:
    """The inputs with the chosen ones as float64 (complex128) numbers, rounded to ``read``; None if none is chosen."""
    if not any(chosen):
        return None
    return [_wide(array, read) if each else array for array, each in zip(inputs, chosen, strict=True)]


def _wide(array: Array, read: DType | None) -> Array:
    wide = np.asarray(widen(array))
    wide = wide if wide.dtype.kind == "c" else wide.astype(np.float64)
    if read is None:
        return wide
    if wide.dtype.kind != "c":
        part = {"complex64": "float32", "complex128": "float64"}.get(read.name, read.name)
        return widen(round_to(wide, dtype(part)))
    return widen(round_to(wide, read if read.is_complex else dtype("complex64")))


def _of_zeros(comparison: Comparison) -> Iterator[_Reading]:
    """Every subnormal operand is a zero of its sign: right of a backend that declares ``denormals="flush"``.

    What only moves elements reads none of them; what sorts compares them, and moves them as they are.
    """
    zeroed = [_without_subnormals(array) for array in comparison.inputs]
    if all(new is old for new, old in zip(zeroed, comparison.inputs, strict=True)):
        return
    outputs = _comparable(comparison)
    if outputs is None:
        return
    flushing = replace(comparison.numerics, denormals="flush")
    declared = comparison.numerics == flushing
    words = "read as zeros, as the backend declares" if declared else _UNDECLARED
    yield _Reading(inputs=zeroed, outputs=outputs, numerics=flushing, name=_SUBNORMAL, words=words, is_right=declared)


def _comparable(comparison: Comparison) -> Sequence[Any] | None:
    """The outputs to judge by operands that are zeros; None for elements that only move, or do not move as they are."""
    case, outputs = comparison.case, comparison.outputs
    rule = case.descriptor.rule
    if rule is None or rule.kind is not RuleClass.MOVEMENT:
        return outputs
    if case.descriptor.tensors.outputs != _SORTED or len(outputs) != len(_SORTED):
        return None
    values, indices = map(np.asarray, outputs)
    try:
        named = np.take_along_axis(comparison.inputs[0], indices.astype(np.int64), axis=case.attributes["dim"])
    except (IndexError, ValueError):
        return None
    if values.dtype != named.dtype:
        return None
    words = f"u{values.itemsize}"
    same = np.ascontiguousarray(values).view(words) == np.ascontiguousarray(named).view(words)
    has_bits_of_named = np.all(same | ((values != values) & (named != named)))
    return [_without_subnormals(values), indices] if has_bits_of_named else None


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

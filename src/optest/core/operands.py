"""Operands of a wrong output: those of the worst element, and other readings of the operands that make it right.

Outputs that are right by another reading pass with a note if that reading is right, too; else the failure names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from optest.core.comparison import Comparison
from optest.numerics import Array, dtype_of, round_to, widen
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

ELEMENTWISE = frozenset({"activation", "bitwise", "comparison", "conversion", "elementwise", "logic"})
_VALUES = (Reason.VALUE, Reason.NAN)
_SORTED = ("values", "indices")
_SUBNORMAL = "subnormal operands"
_UNDECLARED = 'right if they are read as zeros; a device that does so declares Numerics(denormals="flush")'


def with_worst_operands(case: TestCase, inputs: Sequence[Array], verdict: Verdict) -> Verdict:
    """Add the operands of the worst element to the details of a failure, if every operand has one there."""
    if verdict.status is not Status.FAILED or verdict.reason not in _VALUES:
        return verdict
    if case.descriptor.category not in ELEMENTWISE:
        return verdict
    wrong = [measure for measure in verdict.measures if measure.mismatched and measure.worst_index is not None]
    if len(wrong) != 1:
        return verdict
    operands = [_operand_of_worst(array, wrong[0]) for array in inputs]
    if not operands or None in operands:
        return verdict
    words = [f"{argument.name} {value}" for argument, value in zip(case.inputs, operands, strict=True)]
    return replace(verdict, details={**verdict.details, "operands_there": ", ".join(words)})


def with_definition(case: TestCase, verdict: Verdict) -> Verdict:
    """Add the operator's description to the details of a failure that the numbers do not explain.

    That is a wrong dtype of integers, a rule with one right result, or a result or an operand that is no number.
    """
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


def _operand_of_worst(array: Array, measure: Measure) -> str | None:
    """Return the element of an operand that is broadcast to the worst one; None if shapes leave it open."""
    assert measure.worst_index is not None
    lead = len(measure.shape) - array.ndim
    if lead < 0:
        return None
    index = []
    for size, broadcast, coordinate in zip(array.shape, measure.shape[lead:], measure.worst_index[lead:], strict=True):
        if size not in (1, broadcast):
            return None
        index.append(coordinate if size == broadcast else 0)
    return str(array[tuple(index)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Other inputs, the outputs and numerics to compare with, and the name of a pass, which ``is_right`` allows."""

    inputs: Sequence[Array]
    outputs: Sequence[Any]
    numerics: Numerics
    name: str
    words: str
    is_right: bool


def accept_other_readings(comparison: Comparison, verdict: Verdict) -> Verdict:
    """Return ``verdict``, or a pass with a note if another accepted reading makes wrong values right."""
    if verdict.status is not Status.FAILED or verdict.reason not in _VALUES:
        return verdict
    for reading in chain(_readings_of_promotion(comparison), _readings_of_subnormals(comparison)):
        with_reading = comparison.with_inputs(reading.inputs)
        if isinstance(with_reading, str):
            return verdict
        with_reading = with_reading._replace(outputs=reading.outputs)
        other_verdict = with_reading.verdict(numerics=reading.numerics, checks=verdict.checks)
        if other_verdict.status is not Status.PASSED:
            continue
        if not reading.is_right:
            return replace(verdict, details={**verdict.details, reading.name.replace(" ", "_"): reading.words})
        note = Check(name=reading.name, state=CheckState.NOTE, detail=reading.words)
        return replace(other_verdict, checks=(*other_verdict.checks, note))
    return verdict


def _readings_of_promotion(comparison: Comparison) -> Iterator[_Reading]:
    """Yield readings of operands of several dtypes: 0-d ones rounded or not, integers not rounded."""
    # A 0-d operand does not widen the arithmetic of a tensor (torch.result_type). Libraries and their kernels round it
    # to the tensor's dtype, to float32, or not at all: all of it is right. Integers with dimensions are rounded to the
    # common dtype first, everywhere.
    common, inputs = _common_dtype(comparison.case), comparison.inputs
    if common is None:
        return
    unchanged: dict[str, Any] = {"outputs": comparison.outputs, "numerics": comparison.numerics}
    dtypes = [dtype_of(array.dtype) for array in inputs]
    finer = [kind.is_integer or (kind.is_inexact and kind.precision > common.precision) for kind in dtypes]
    scalars = [not array.ndim and is_finer for array, is_finer in zip(inputs, finer, strict=True)]
    for read in dict.fromkeys((None, dtype("float32"), common)):
        others = _rounded_operands(inputs, scalars, read)
        if others is not None:
            words = f"right if they are {f'rounded to {read}' if read else 'not rounded'}, as in some libraries"
            yield _Reading(inputs=others, **unchanged, name="0-d operands", words=words, is_right=True)
    integers = [bool(array.ndim) and array.dtype.kind in "iu" for array in inputs]
    unrounded = _rounded_operands(inputs, integers, None)
    if unrounded is not None:
        words = f"right if they are not rounded to {common}, the common dtype, before the computation"
        yield _Reading(inputs=unrounded, **unchanged, name="integer operands", words=words, is_right=False)


def _common_dtype(case: TestCase) -> DType | None:
    """Return the inexact dtype to which operands of several dtypes are promoted; None if there is none."""
    specs = [argument.spec for argument in case.inputs]
    if not case.descriptor.is_promoting or len({spec.dtype for spec in specs}) < 2:
        return None
    try:
        common = promote_tensors(specs)
    except UnfitArguments:
        return None
    return common if common.is_inexact else None


def _rounded_operands(inputs: Sequence[Array], chosen: Sequence[bool], read: DType | None) -> list[Array] | None:
    """Return the inputs with the chosen ones widened and rounded to ``read``, if given; None if none is chosen."""
    if not any(chosen):
        return None
    return [_widen_and_round(array, read) if each else array for array, each in zip(inputs, chosen, strict=True)]


def _widen_and_round(array: Array, read: DType | None) -> Array:
    """Return an array in float64 (complex128), rounded to ``read`` or to its complex or real counterpart."""
    wide = np.asarray(widen(array))
    wide = wide if wide.dtype.kind == "c" else wide.astype(np.float64)
    if read is None:
        return wide
    if wide.dtype.kind != "c":
        part = {"complex64": "float32", "complex128": "float64"}.get(read.name, read.name)
        return widen(round_to(wide, dtype(part)))
    return widen(round_to(wide, read if read.is_complex else dtype("complex64")))


def _readings_of_subnormals(comparison: Comparison) -> Iterator[_Reading]:
    """Yield the reading of subnormal operands as zeros; it is right if the backend declares flushing."""
    zeroed = [_without_subnormals(array) for array in comparison.inputs]
    if all(new is old for new, old in zip(zeroed, comparison.inputs, strict=True)):
        return
    outputs = _outputs_for_zeros(comparison)
    if outputs is None:
        return
    flushing = replace(comparison.numerics, denormals="flush")
    declared = comparison.numerics == flushing
    words = "read as zeros, as the backend declares" if declared else _UNDECLARED
    yield _Reading(inputs=zeroed, outputs=outputs, numerics=flushing, name=_SUBNORMAL, words=words, is_right=declared)


def _outputs_for_zeros(comparison: Comparison) -> Sequence[Any] | None:
    """Return the outputs to compare if operands are read as zeros; None if the operator only moves elements."""
    # An operator that only moves elements reads none of them. A sort compares them, and moves them as they are: its
    # values must be the elements that its indices name.
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
    """Return the array with subnormal numbers replaced by zeros; the same object if there are none."""
    entry = dtype_of(array.dtype)
    if not entry.is_inexact:
        return array
    flushed = round_to(array, entry, denormals="flush")
    return flushed if np.any(flushed != array) and np.any(_became_zero(flushed, array)) else array


def _became_zero(flushed: Array, array: Array) -> Any:
    """Return a mask of elements of which a nonzero number, or a part of a complex one, became zero."""
    if array.dtype.kind != "c":
        return (flushed == 0) & (array != 0)
    return ((flushed.real == 0) & (array.real != 0)) | ((flushed.imag == 0) & (array.imag != 0))

"""Operands that a backend reads otherwise than the reference: a failed answer is held against what is right then.

Right by another reading is a pass with a note where that reading is right too, and else a failure that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from optest.backends import BackendDriver, declared_numerics
from optest.compare.verdict import judge
from optest.core.border import Border
from optest.core.expected import expected_of_other_inputs
from optest.core.phases import REFERENCE, Clock
from optest.numerics import dtype_of, round_to, widen
from optest.operators.shapes import promote_tensors
from optest.spec import (
    Check,
    CheckState,
    DType,
    Numerics,
    Reason,
    RuleClass,
    Status,
    TestCase,
    UnfitArguments,
    Verdict,
    dtype,
)

__all__ = ["judged_by_readings"]

Array = np.ndarray[Any, Any]

_VALUES = (Reason.VALUE, Reason.NAN)
_SORTED = ("values", "indices")
_SUBNORMAL = "subnormal operands"
_UNDECLARED = 'right for zeros in their place; a device that reads them so declares Numerics(denormals="flush")'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Other inputs, what of the answer is judged by them, and what a pass is called; ``is_right`` makes it one."""

    inputs: Sequence[Array]
    outputs: Sequence[Any]
    numerics: Numerics
    name: str
    words: str
    is_right: bool


def judged_by_readings(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[Any],
    verdict: Verdict,
    *,
    clock: Clock,
    interrupted: Callable[[], bool] | None,
) -> Verdict:
    """``verdict``, unless values are wrong that are right by another reading of the operands.

    The reference that is asked once more is told to the ``clock``.
    """
    if verdict.status is not Status.FAILED or verdict.reason not in _VALUES:
        return verdict
    numerics = declared_numerics(driver, case)
    for reading in chain(_of_promotion(case, inputs, outputs, numerics), _of_zeros(case, inputs, outputs, numerics)):
        with clock.announced(REFERENCE):
            expected = expected_of_other_inputs(case, reading.inputs, driver, interrupted)
        if isinstance(expected, str):
            return verdict
        with Border("the comparison", Reason.INTERNAL):
            judged = judge(
                case,
                reading.outputs,
                expected,
                numerics=reading.numerics,
                inputs=reading.inputs,
                checks=verdict.checks,
            )
        if judged.status is Status.PASSED:
            return _with_reading(verdict, judged, reading)
    return verdict


def _with_reading(verdict: Verdict, judged: Verdict, reading: _Reading) -> Verdict:
    if not reading.is_right:
        return replace(verdict, details={**verdict.details, reading.name.replace(" ", "_"): reading.words})
    note = Check(name=reading.name, state=CheckState.NOTE, detail=reading.words)
    return replace(judged, checks=(*judged.checks, note))


def _of_promotion(
    case: TestCase, inputs: Sequence[Array], outputs: Sequence[Any], numerics: Numerics
) -> Iterator[_Reading]:
    """An operand without dimensions does not widen the arithmetic of a tensor beside it (torch.result_type).

    Whether it is rounded to the tensor's dtype, or to float32, or not at all, differs between libraries and between
    their kernels: all of it is right. Integers with dimensions are rounded to the common dtype first, everywhere.
    """
    common = _common_dtype(case)
    if common is None:
        return
    scalars = [not array.ndim and _is_finer(array, common) for array in inputs]
    for read in dict.fromkeys((None, dtype("float32"), common)):
        others = _converted(inputs, scalars, read)
        if others is not None:
            words = f"right where they are {f'rounded to {read}' if read else 'not rounded'}, as in some libraries"
            yield _Reading(
                inputs=others, outputs=outputs, numerics=numerics, name="0-d operands", words=words, is_right=True
            )
    integers = [bool(array.ndim) and array.dtype.kind in "iu" for array in inputs]
    unrounded = _converted(inputs, integers, None)
    if unrounded is not None:
        words = f"right for ones that are not rounded to {common}, the common dtype, before anything is computed"
        yield _Reading(
            inputs=unrounded, outputs=outputs, numerics=numerics, name="integer operands", words=words, is_right=False
        )


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


def _of_zeros(
    case: TestCase, inputs: Sequence[Array], outputs: Sequence[Any], numerics: Numerics
) -> Iterator[_Reading]:
    """Every subnormal operand is a zero of its sign: right of a backend that declares ``denormals="flush"``.

    What only moves elements reads none of them; what sorts compares them, and moves them as they are.
    """
    zeroed = _zeroed(inputs)
    answered = _answered(case, inputs, outputs) if zeroed is not None else None
    if zeroed is None or answered is None:
        return
    flushing = replace(numerics, denormals="flush")
    declared = numerics == flushing
    words = "read as zeros, as the backend declares" if declared else _UNDECLARED
    yield _Reading(inputs=zeroed, outputs=answered, numerics=flushing, name=_SUBNORMAL, words=words, is_right=declared)


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

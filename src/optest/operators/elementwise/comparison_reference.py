"""What comparisons, logic and choices give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import Array, Attributes, Inputs, Reference, converted, inferred, quiet_hooks, widen
from optest.operators.elementwise.arithmetic_reference import meet
from optest.operators.elementwise.logic import infer_bitwise, infer_bitwise_not
from optest.operators.elementwise.selection import infer_clip, infer_where


def _of_both(function: Callable[[Array, Array], Any]) -> Reference:
    """A function of two numbers of the common dtype. NaN is unequal to everything and in no order; the larger and the
    smaller of both are NaN where either is."""

    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        _, a, b = meet(inputs)
        return (np.asarray(function(a, b)),)

    return reference


eq_reference = _of_both(np.equal)
ne_reference = _of_both(np.not_equal)
lt_reference = _of_both(np.less)
le_reference = _of_both(np.less_equal)
gt_reference = _of_both(np.greater)
ge_reference = _of_both(np.greater_equal)


def _truth(array: Any) -> Array:
    """Whatever is not 0 is true, NaN too."""
    return np.asarray(widen(np.asarray(array)) != 0)


def _logic(combine: Callable[[Array, Array], Any]) -> Reference:
    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        return (np.asarray(combine(_truth(inputs[0]), _truth(inputs[1]))),)

    return reference


logical_and_reference = _logic(np.logical_and)
logical_or_reference = _logic(np.logical_or)
logical_xor_reference = _logic(np.logical_xor)


def logical_not_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    return (np.asarray(~_truth(inputs[0])),)


def _bitwise(combine: Callable[[Array, Array], Any]) -> Reference:
    """Bits of integers in two's complement; of bool, its logic."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        inferred(infer_bitwise, inputs, attributes)
        _, a, b = meet(inputs)
        return (np.asarray(combine(a, b)),)

    return reference


bitwise_and_reference = _bitwise(np.bitwise_and)
bitwise_or_reference = _bitwise(np.bitwise_or)
bitwise_xor_reference = _bitwise(np.bitwise_xor)


def bitwise_not_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), _ = inferred(infer_bitwise_not, inputs, attributes)
    return (np.asarray(np.invert(array)),)


maximum_reference = _of_both(np.maximum)
minimum_reference = _of_both(np.minimum)


def clip_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """min(max(input, min), max): max where min is above it; NaN stays NaN."""
    (array,), (spec,) = inferred(infer_clip, inputs, attributes)
    values = converted(array, spec.dtype) if spec.dtype != dtype_of(array.dtype) else widen(array)
    low, high = attributes.get("min"), attributes.get("max")
    if low is not None:
        values = np.maximum(values, values.dtype.type(low))
    if high is not None:
        values = np.minimum(values, values.dtype.type(high))
    return (np.asarray(values),)


def where_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input where condition is true, else other; both moved as they are unless their dtypes differ."""
    (condition, left, right), (spec,) = inferred(infer_where, inputs, attributes)
    if left.dtype != right.dtype:
        left, right = converted(left, spec.dtype), converted(right, spec.dtype)
    return (np.asarray(np.where(condition, left, right)),)


quiet_hooks(globals())

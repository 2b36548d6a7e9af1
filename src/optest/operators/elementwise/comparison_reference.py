"""References of comparisons, logic and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    Reference,
    infer_from_arrays,
    quiet_hooks,
    round_to_operand_dtype,
    widen,
)
from optest.operators.elementwise.arithmetic_reference import promote_inputs
from optest.operators.elementwise.logic import infer_bitwise, infer_bitwise_not
from optest.operators.elementwise.selection import infer_clip, infer_where


def _on_common_dtype(function: Callable[[Array, Array], Any]) -> Reference:
    """Return the reference that applies ``function`` to two operands in their common dtype."""

    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        _, a, b = promote_inputs(inputs)
        return (np.asarray(function(a, b)),)

    return reference


# NumPy's functions treat NaN as the operators do: unequal to everything, not less or greater than anything, and the
# maximum and minimum of any pair that has one.
eq_reference = _on_common_dtype(np.equal)
ne_reference = _on_common_dtype(np.not_equal)
lt_reference = _on_common_dtype(np.less)
le_reference = _on_common_dtype(np.less_equal)
gt_reference = _on_common_dtype(np.greater)
ge_reference = _on_common_dtype(np.greater_equal)
maximum_reference = _on_common_dtype(np.maximum)
minimum_reference = _on_common_dtype(np.minimum)


def _is_true(array: Any) -> Array:
    """Return which elements are not 0; NaN is not."""
    return np.asarray(widen(np.asarray(array)) != 0)


def _logical(combine: Callable[[Array, Array], Any]) -> Reference:
    """Return the reference that applies ``combine`` to the truth of two operands."""

    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        return (np.asarray(combine(_is_true(inputs[0]), _is_true(inputs[1]))),)

    return reference


logical_and_reference = _logical(np.logical_and)
logical_or_reference = _logical(np.logical_or)
logical_xor_reference = _logical(np.logical_xor)


def logical_not_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return which elements of the input are 0 or False."""
    return (np.asarray(~_is_true(inputs[0])),)


def _bitwise(combine: Callable[[Array, Array], Any]) -> Reference:
    """Return the reference that applies ``combine`` to the bits of two integers or bools in their common dtype."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        infer_from_arrays(infer_bitwise, inputs, attributes)
        _, a, b = promote_inputs(inputs)
        return (np.asarray(combine(a, b)),)

    return reference


bitwise_and_reference = _bitwise(np.bitwise_and)
bitwise_or_reference = _bitwise(np.bitwise_or)
bitwise_xor_reference = _bitwise(np.bitwise_xor)


def bitwise_not_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the bitwise complement of an integer, the negation of bool."""
    (array,), _ = infer_from_arrays(infer_bitwise_not, inputs, attributes)
    return (np.asarray(np.invert(array)),)


def clip_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return min(max(input, min), max), which is max where min is above it; NaN stays NaN."""
    (array,), (spec,) = infer_from_arrays(infer_clip, inputs, attributes)
    values = round_to_operand_dtype(array, spec.dtype) if spec.dtype != dtype_of(array.dtype) else widen(array)
    low, high = attributes.get("min"), attributes.get("max")
    if low is not None:
        values = np.maximum(values, values.dtype.type(low))
    if high is not None:
        values = np.minimum(values, values.dtype.type(high))
    return (np.asarray(values),)


def where_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input where condition is true, else other; both in their common dtype."""
    (condition, left, right), (spec,) = infer_from_arrays(infer_where, inputs, attributes)
    # Operands of one dtype are copied bit for bit, NaN payloads included.
    if left.dtype != right.dtype:
        left, right = round_to_operand_dtype(left, spec.dtype), round_to_operand_dtype(right, spec.dtype)
    return (np.asarray(np.where(condition, left, right)),)


quiet_hooks(globals())

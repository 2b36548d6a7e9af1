"""Choices between operands: nothing is computed."""

from __future__ import annotations

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import Array, Attributes, Inputs, converted, quiet, spec_of, widen
from optest.operators.elementwise.inference import infer_clip, infer_where
from optest.operators.elementwise.operands import meet

__all__ = ["clip_reference", "maximum_reference", "minimum_reference", "where_reference"]


@quiet
def maximum_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """The larger of both; NaN where either is NaN."""
    _, a, b = meet(inputs)
    return (np.asarray(np.maximum(a, b)),)


@quiet
def minimum_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """The smaller of both; NaN where either is NaN."""
    _, a, b = meet(inputs)
    return (np.asarray(np.minimum(a, b)),)


@quiet
def clip_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """min(max(input, min), max): max where min is above it; NaN stays NaN."""
    array = np.asarray(inputs[0])
    (spec,) = infer_clip((spec_of(array),), attributes)
    values = converted(array, spec.dtype) if spec.dtype != dtype_of(array.dtype) else widen(array)
    low, high = attributes.get("min"), attributes.get("max")
    if low is not None:
        values = np.maximum(values, values.dtype.type(low))
    if high is not None:
        values = np.minimum(values, values.dtype.type(high))
    return (np.asarray(values),)


def where_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input where condition is true, else other; both moved as they are unless their dtypes differ."""
    condition, left, right = (np.asarray(each) for each in inputs)
    (spec,) = infer_where((spec_of(condition), spec_of(left), spec_of(right)), attributes)
    if left.dtype != right.dtype:
        left, right = converted(left, spec.dtype), converted(right, spec.dtype)
    return (np.asarray(np.where(condition, left, right)),)

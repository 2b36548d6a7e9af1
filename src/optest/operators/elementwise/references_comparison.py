"""Comparison, logic and bits: one right answer each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, spec_of, widen
from optest.operators.elementwise.inference import infer_bitwise, infer_bitwise_not
from optest.operators.elementwise.operands import meet

__all__ = [
    "bitwise_and_reference",
    "bitwise_not_reference",
    "bitwise_or_reference",
    "bitwise_xor_reference",
    "eq_reference",
    "ge_reference",
    "gt_reference",
    "le_reference",
    "logical_and_reference",
    "logical_not_reference",
    "logical_or_reference",
    "logical_xor_reference",
    "lt_reference",
    "ne_reference",
]

Reference = Callable[[Inputs, Attributes], tuple[Array, ...]]


def _comparison(compare: Callable[[Array, Array], Any]) -> Reference:
    """Two numbers of the common dtype compared; NaN is unequal to everything and in no order."""

    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        _, a, b = meet(inputs)
        return (np.asarray(compare(a, b)),)

    return reference


eq_reference = _comparison(np.equal)
ne_reference = _comparison(np.not_equal)
lt_reference = _comparison(np.less)
le_reference = _comparison(np.less_equal)
gt_reference = _comparison(np.greater)
ge_reference = _comparison(np.greater_equal)


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
        infer_bitwise((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
        _, a, b = meet(inputs)
        return (np.asarray(combine(a, b)),)

    return reference


bitwise_and_reference = _bitwise(np.bitwise_and)
bitwise_or_reference = _bitwise(np.bitwise_or)
bitwise_xor_reference = _bitwise(np.bitwise_xor)


def bitwise_not_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    infer_bitwise_not((spec_of(array),), attributes)
    return (np.asarray(np.invert(array)),)

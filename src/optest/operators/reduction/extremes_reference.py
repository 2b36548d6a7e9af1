"""Extremes, their places, and truth over dimensions."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, quiet, widen
from optest.operators.reduction.sums_reference import Rows, rows_of


def _rows(inputs: Inputs, attributes: Attributes) -> Rows:
    return rows_of(widen(np.asarray(inputs[0])), attributes)


@quiet
def amax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    rows = _rows(inputs, attributes)
    return (rows.placed(rows.values.max(-1)),)


@quiet
def amin_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    rows = _rows(inputs, attributes)
    return (rows.placed(rows.values.min(-1)),)


@quiet
def argmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal elements; NaN is larger than all, and ±0 are equal."""
    rows = _rows(inputs, attributes)
    return (rows.placed(rows.values.argmax(-1).astype(np.int64)),)


@quiet
def argmin_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal elements; NaN is less than all, and ±0 are equal."""
    rows = _rows(inputs, attributes)
    return (rows.placed(rows.values.argmin(-1).astype(np.int64)),)


def max_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    values = amax_reference(inputs, attributes)
    return values if attributes.get("dim") is None else (*values, *argmax_reference(inputs, attributes))


def min_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    values = amin_reference(inputs, attributes)
    return values if attributes.get("dim") is None else (*values, *argmin_reference(inputs, attributes))


@quiet
def all_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Whatever is not 0 is true, NaN too; true of nothing; uint8 stays uint8."""
    rows = _rows(inputs, attributes)
    return (rows.placed(_truth(inputs, (rows.values != 0).all(-1))),)


@quiet
def any_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Whatever is not 0 is true, NaN too; false of nothing; uint8 stays uint8."""
    rows = _rows(inputs, attributes)
    return (rows.placed(_truth(inputs, (rows.values != 0).any(-1))),)


def _truth(inputs: Inputs, found: Array) -> Array:
    array = np.asarray(found)
    return array.astype(np.uint8) if np.asarray(inputs[0]).dtype == np.uint8 else array

"""The outputs of one call, compared with those of another by their bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optest.numerics import Array

__all__ = ["Answer", "elements_kept", "first_index", "where_different"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs of one call, by name."""

    outputs: dict[str, Array]

    def is_same(self, other: Answer) -> bool:
        return all(array.tobytes() == other.outputs[name].tobytes() for name, array in self.outputs.items())


def first_index(where: Array) -> list[int]:
    """Of the first True."""
    return [int(axis[0]) for axis in np.nonzero(np.atleast_1d(where))][: where.ndim]


def where_different(first: Answer, other: Answer) -> str:
    """The first element with other bits, in words."""
    for name, array in first.outputs.items():
        if array.tobytes() == other.outputs[name].tobytes():
            continue
        index = first_index(_differ(array, other.outputs[name]).reshape(array.shape))
        return f"element {index} of output {name}"
    return "an output"


def elements_kept(first: Answer, other: Answer) -> int:
    """How many elements have the same bits in both."""
    return sum(int((~_differ(array, other.outputs[name])).sum()) for name, array in first.outputs.items())


def _differ(one: Array, other: Array) -> Array:
    """Which elements have other bits, in one dimension."""
    size = one.dtype.itemsize
    first, second = (np.frombuffer(each.tobytes(), np.uint8).reshape(-1, size) for each in (one, other))
    different: Array = (first != second).any(axis=1)
    return different

"""Outputs of calls of a case, compared bit by bit, and the results of a probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from optest.backends import ExtraOutput
from optest.core.reproducible import is_reproducible
from optest.numerics import Array
from optest.spec import Check, CheckState, Reason

_MAX_FURTHER = 8


@dataclass(frozen=True, slots=True)
class CallOutputs:
    """Outputs of one call, by name."""

    outputs: dict[str, Array]

    def is_same(self, other: CallOutputs) -> bool:
        return all(array.tobytes() == other.outputs[name].tobytes() for name, array in self.outputs.items())


def where_different(first: CallOutputs, other: CallOutputs) -> str:
    """Return which element has other bits first: ``element [0, 2] of output y``."""
    for name, array in first.outputs.items():
        if array.tobytes() != other.outputs[name].tobytes():
            where = _bits_differ(array, other.outputs[name]).reshape(np.atleast_1d(array).shape)
            # atleast_1d added a dimension to a scalar
            index = [int(axis[0]) for axis in np.nonzero(where)][: array.ndim]
            return f"element {index} of output {name}"
    return "an output"


def where_reproducibly_different(unchanged: Callable[[], CallOutputs], changed: Callable[[], CallOutputs]) -> str:
    """Return which element differs between two ways to call; empty unless each way reproduces its own outputs."""
    first, other = unchanged(), changed()
    if first.is_same(other) or not is_reproducible(
        lambda: first.is_same(unchanged()), lambda: other.is_same(changed())
    ):
        return ""
    return where_different(first, other)


def _bits_differ(first: Array, other: Array) -> Array:
    """Return a one-dimensional mask of the elements with other bits."""
    size = first.dtype.itemsize
    left, right = (np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (first, other))
    different: Array = (left != right).any(axis=1)
    return different


@dataclass(slots=True, kw_only=True)
class ProbeResult:
    """Outputs of the first call, outputs with other bits, and the checks of the probe."""

    outputs: dict[str, Array]
    further: list[ExtraOutput] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, answer: CallOutputs, how: str, reason: Reason | None) -> None:
        if len(self.further) < _MAX_FURTHER:  # each is compared with the reference
            self.further.append(ExtraOutput(outputs=answer.outputs, how=how, reason=reason))

    def add_of_other_values(self, answer: CallOutputs, name: str, values: Array, first: CallOutputs) -> None:
        """Add outputs for other values of the input ``name``; as STATE if every element has the first call's bits."""
        kept = sum(int((~_bits_differ(array, answer.outputs[name])).sum()) for name, array in first.outputs.items())
        total = sum(array.size for array in answer.outputs.values())
        how = f"with other values of input {name}" + f" ({kept} of {total} elements as in the first call)" * bool(kept)
        reason = Reason.STATE if kept == total else None  # all as in the first call: the library cached them
        self.further.append(
            ExtraOutput(outputs=answer.outputs, how=how, reason=reason, inputs={name: np.array(values)})
        )

    def note(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOTE, detail))

    def done(self, name: str, detail: str = "") -> None:
        self.checks.append(_check(name, CheckState.DONE, detail))

    def impossible(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOT_POSSIBLE, detail))


# A case has nine checks, the same for most cases; building one takes 2 µs.
@lru_cache(maxsize=512)
def _check(name: str, state: CheckState, detail: str) -> Check:
    return Check(name=name, state=state, detail=detail)

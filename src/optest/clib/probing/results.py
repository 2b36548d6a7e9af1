"""What calls of a case gave: answers, compared by their bits, and what a probe found and looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from optest.backends import FurtherAnswer
from optest.core.reproducible import is_reproducible
from optest.numerics import Array
from optest.spec import Check, CheckState, Reason

_MOST_FURTHER = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs of one call, by name."""

    outputs: dict[str, Array]

    def is_same(self, other: Answer) -> bool:
        return all(array.tobytes() == other.outputs[name].tobytes() for name, array in self.outputs.items())


def where_different(first: Answer, other: Answer) -> str:
    """The first element with other bits, in words."""
    for name, array in first.outputs.items():
        if array.tobytes() != other.outputs[name].tobytes():
            where = _differ(array, other.outputs[name]).reshape(np.atleast_1d(array).shape)
            index = [int(axis[0]) for axis in np.nonzero(where)][: array.ndim]
            return f"element {index} of output {name}"
    return "an output"


def where_always_different(unchanged: Callable[[], Answer], changed: Callable[[], Answer]) -> str:
    """Where two ways to call give different answers, in words; empty unless each gives its own one every time."""
    one, other = unchanged(), changed()
    if one.is_same(other) or not is_reproducible(lambda: one.is_same(unchanged()), lambda: other.is_same(changed())):
        return ""
    return where_different(one, other)


def _differ(one: Array, other: Array) -> Array:
    """Which elements have other bits, in one dimension."""
    size = one.dtype.itemsize
    first, second = (np.frombuffer(each.tobytes(), np.uint8).reshape(-1, size) for each in (one, other))
    different: Array = (first != second).any(axis=1)
    return different


@dataclass(slots=True, kw_only=True)
class ProbeResult:
    """The first answer, those with other bits, and what was looked at."""

    outputs: dict[str, Array]
    further: list[FurtherAnswer] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, answer: Answer, how: str, reason: Reason | None) -> None:
        if len(self.further) < _MOST_FURTHER:
            self.further.append(FurtherAnswer(outputs=answer.outputs, how=how, reason=reason))

    def add_of_other_values(self, answer: Answer, name: str, values: Array, first: Answer) -> None:
        """An answer to other values of the input ``name``: STATE if all of it is wrong and has the first one's bits."""
        kept = sum(int((~_differ(array, answer.outputs[name])).sum()) for name, array in first.outputs.items())
        of_all = sum(array.size for array in answer.outputs.values())
        how = f"with other values of input {name}" + f" ({kept} of {of_all} elements as in the first call)" * bool(kept)
        reason = Reason.STATE if kept == of_all else None
        self.further.append(
            FurtherAnswer(outputs=answer.outputs, how=how, reason=reason, inputs={name: np.array(values)})
        )

    def note(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOTE, detail))

    def done(self, name: str, detail: str = "") -> None:
        self.checks.append(_check(name, CheckState.DONE, detail))

    def impossible(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOT_POSSIBLE, detail))


@lru_cache(maxsize=512)
def _check(name: str, state: CheckState, detail: str) -> Check:
    """Nine of each case, the same for most of them; 2 µs each."""
    return Check(name=name, state=state, detail=detail)

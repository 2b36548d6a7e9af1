"""What may be different from call to call and must not matter (memory around, what ran before, which descriptors are
alive), and calls of a case under such conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from optest.clib.ffi.held import heap_bytes, no_collector
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import Filling, Place
from optest.clib.library.subject import Subject
from optest.clib.probing.policy import ALIGNED, Policy
from optest.clib.probing.results import Answer
from optest.memory.heap_garbage import HeapGarbage
from optest.memory.poisons import Poison
from optest.numerics import Array
from optest.spec import Reason

__all__ = [
    "FIRST",
    "OF_HEAP",
    "SECOND",
    "SUSPECTS",
    "THIRD",
    "Before",
    "Call",
    "CallConditions",
    "ConditionedCalls",
    "Suspect",
    "garbage",
]

Call = Callable[[Mapping[str, Any]], None]

FIRST_FILLING = Filling()


class Before(Enum):
    """What was called just before: with other values in the same memory, in other memory, or the same call."""

    OTHER_VALUES = "other values"
    ELSEWHERE = "elsewhere"
    THE_SAME = "the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConditions:
    """``other_descriptors`` says whether another descriptor of the operator is alive, younger than the one that runs;
    ``garbage`` is the byte that fresh and freed heap memory holds, None for what happens to stand there."""

    filling: Filling = FIRST_FILLING
    before: Before = Before.OTHER_VALUES
    other_descriptors: bool = False
    garbage: int | None = None


_GARBAGE = 0xFF
"""NaN as a float of any width, -1 as an integer."""

_LARGE = 0x5A
"""A large number as a float of any width, which wins every maximum; NaN wins none."""

FIRST = CallConditions()
SECOND = CallConditions(
    filling=Filling(outputs=Poison.FF, workspace=0x00, inputs=Poison.HIGH),
    before=Before.THE_SAME,
    other_descriptors=True,
)
THIRD = CallConditions(
    filling=Filling(outputs=Poison.X5A, workspace=_LARGE, inputs=Poison.LOW),
    before=Before.THE_SAME,
    other_descriptors=True,
    garbage=_GARBAGE,
)
"""Between them every circumstance changes: equal bits in all three are the proof that none of them matters."""


@contextmanager
def garbage(conditions: CallConditions) -> Iterator[Callable[[], int]]:
    """While inside, the heap holds the garbage; what is yielded says by how many bytes that made it grow."""
    if conditions.garbage is None:
        yield lambda: 0
        return
    before = heap_bytes() or 0
    with no_collector():
        HeapGarbage.scribble(conditions.garbage)
        grown = (heap_bytes() or 0) - before
        try:
            yield lambda: grown
        finally:
            HeapGarbage.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Conditions that differ from their ``base`` in one thing, and what that is called if the result differs too."""

    base: CallConditions = FIRST
    conditions: CallConditions
    reason: Reason
    what: str


def _with(**filling: object) -> CallConditions:
    return replace(FIRST, filling=replace(FIRST_FILLING, **filling))  # type: ignore[arg-type]


_OUTPUTS = "what the outputs held before the call"
_INPUTS = "memory outside the elements of the inputs"
_WORKSPACE = "what the workspace held before the call"
_CALLS = "which calls were made before"
OF_HEAP = Suspect(
    conditions=replace(FIRST, garbage=_GARBAGE),
    base=replace(FIRST, garbage=0x00),
    reason=Reason.STATE,
    what="what fresh or freed heap memory held",
)
SUSPECTS = (
    OF_HEAP,
    Suspect(conditions=_with(outputs=Poison.X5A), reason=Reason.UNWRITTEN, what=_OUTPUTS),
    Suspect(conditions=_with(outputs=Poison.FF), reason=Reason.UNWRITTEN, what=_OUTPUTS),
    Suspect(conditions=_with(workspace=0x00), reason=Reason.WORKSPACE, what=_WORKSPACE),
    Suspect(conditions=_with(workspace=_LARGE), reason=Reason.WORKSPACE, what=_WORKSPACE),
    Suspect(conditions=_with(inputs=Poison.HIGH), reason=Reason.READ_OUT_OF_BOUNDS, what=_INPUTS),
    Suspect(conditions=_with(inputs=Poison.LOW), reason=Reason.READ_OUT_OF_BOUNDS, what=_INPUTS),
    Suspect(conditions=replace(FIRST, before=Before.THE_SAME), reason=Reason.STATE, what=_CALLS),
    Suspect(conditions=replace(FIRST, before=Before.ELSEWHERE), reason=Reason.STATE, what=_CALLS),
    Suspect(
        conditions=replace(FIRST, other_descriptors=True),
        reason=Reason.STATE,
        what="which other descriptors are alive, or what became of destroyed ones",
    ),
)


class ConditionedCalls:
    """Calls one case under the circumstances asked for."""

    def __init__(self, memory: CaseMemory, subject: Subject, call: Call, policy: Policy) -> None:
        """``call`` is the subject's, with whatever is watched around it."""
        self._memory = memory
        self._subject = subject
        self._call = call
        self._policy = policy
        self._other_values: dict[str, Array] | None = None

    @property
    def other_values(self) -> Mapping[str, Array]:
        """Other values than those of the case."""
        if self._other_values is None:
            self._other_values = _other_values(self._memory.values)
        return self._other_values

    def answer(self, conditions: CallConditions, place: Place) -> Answer:
        """One call in these conditions; who else is alive is the caller's to see to."""
        memory = self._memory
        if conditions.before is Before.OTHER_VALUES:
            self._call_before(place, conditions, self.other_values)
        elif conditions.before is Before.ELSEWHERE:
            self._call_before(memory.place(self._policy.at(ALIGNED)), conditions, memory.values)
        place.fill(conditions.filling, memory.values)
        with garbage(conditions):
            return self.called(place)

    def _call_before(self, place: Place, conditions: CallConditions, values: Mapping[str, Array]) -> None:
        """A call whose answer nobody asks for; a library may refuse the values, too."""
        place.fill(conditions.filling, values)
        with suppress(StatusError):
            self._call(self._memory.pointers(place))

    def called(self, place: Place) -> Answer:
        self._call(self._memory.pointers(place))
        return Answer(place.collect())

    def renewed_answer(self, conditions: CallConditions, home: Place) -> Answer:
        """With a descriptor of its own, after calls that leave behind the same whatever ran before them."""
        memory = self._memory
        with ExitStack() as stack:
            stack.enter_context(garbage(conditions))
            stack.enter_context(self._subject.renewed())
            stack.enter_context(
                self._subject.with_other_descriptors() if conditions.other_descriptors else nullcontext()
            )
            self._call_before(memory.place(self._policy.at(ALIGNED)), conditions, memory.values)
            if conditions.before is not Before.OTHER_VALUES:
                values = memory.values if conditions.before is Before.THE_SAME else self.other_values
                self._call_before(home, conditions, values)
            return self.answer(conditions, home)


def _other_values(values: Mapping[str, Array]) -> dict[str, Array]:
    """Legal values other than those: backwards, since any order of them is; a single number that is no index halved."""
    return {key: _other(array) for key, array in values.items()}


def _other(array: Array) -> Array:
    if array.size != 1:
        return np.flip(array)
    if not np.issubdtype(array.dtype, np.inexact):
        return array
    halved: Array = (array * array.dtype.type(0.5)).astype(array.dtype)
    return halved.reshape(array.shape)

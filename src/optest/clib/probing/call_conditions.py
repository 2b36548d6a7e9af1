"""Conditions of a call that must not affect its outputs, calls under them, and the search for one that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from optest.clib.ffi.calls import StatusError
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import BufferSet, Filling
from optest.clib.library.subject import Subject
from optest.clib.probing.policy import ALIGNED, ANYWHERE, SAME_BITS, Policy
from optest.clib.probing.results import CallOutputs, ProbeResult, where_reproducibly_different
from optest.memory import heap_garbage
from optest.memory.buffers import require_written
from optest.memory.heap import heap_bytes
from optest.memory.poisons import Poison
from optest.numerics import Array
from optest.spec import Fault, Reason
from optest.timing import no_collector

Call = Callable[[Mapping[str, Any]], None]

FIRST_FILLING = Filling()


class Before(Enum):
    """The call just before: other values in the same memory, the same values in other memory, or the same call."""

    OTHER_VALUES = "other values"
    ELSEWHERE = "elsewhere"
    SAME = "the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConditions:
    """Conditions of one call; ``garbage`` is the byte of fresh and freed heap memory, None to leave it as it is."""

    filling: Filling = FIRST_FILLING
    before: Before = Before.OTHER_VALUES
    other_descriptors: bool = False  # a younger descriptor of the operator is alive
    garbage: int | None = None


# NaN as a float of any width, -1 as an integer.
_GARBAGE = 0xFF

# A large number as a float of any width: it wins every maximum, while NaN wins none.
_LARGE = 0x5A

# Every condition changes between the three: equal bits in all of them prove that none matters.
FIRST = CallConditions()
SECOND = CallConditions(
    filling=Filling(outputs=Poison.FF, workspace=0x00, inputs=Poison.HIGH),
    before=Before.SAME,
    other_descriptors=True,
)
THIRD = CallConditions(
    filling=Filling(outputs=Poison.X5A, workspace=_LARGE, inputs=Poison.LOW),
    before=Before.SAME,
    other_descriptors=True,
    garbage=_GARBAGE,
)


@contextmanager
def garbage(conditions: CallConditions) -> Iterator[Callable[[], int]]:
    """Fill the heap with garbage within the block; yield a function that returns the bytes that the filling added."""
    if conditions.garbage is None:
        yield lambda: 0
        return
    bytes_before = heap_bytes() or 0
    with no_collector():  # which would free blocks or take them
        heap_garbage.scribble(conditions.garbage)
        grown = (heap_bytes() or 0) - bytes_before
        try:
            yield lambda: grown
        finally:
            heap_garbage.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Conditions that differ from ``base`` in one respect, with the fault to report if the outputs differ, too."""

    base: CallConditions = FIRST
    conditions: CallConditions
    reason: Reason
    description: str


def _first_with_filling(**filling: object) -> CallConditions:
    return replace(FIRST, filling=replace(FIRST_FILLING, **filling))  # type: ignore[arg-type]


_OUTPUTS = "the content of the outputs before the call"
_INPUTS = "memory outside the elements of the inputs"
_WORKSPACE = "the content of the workspace before the call"
_CALLS = "the calls before it"
_HEAP_SUSPECT = Suspect(
    conditions=replace(FIRST, garbage=_GARBAGE),
    base=replace(FIRST, garbage=0x00),
    reason=Reason.STATE,
    description="the content of fresh or freed heap memory",
)
SUSPECTS = (
    _HEAP_SUSPECT,
    Suspect(conditions=_first_with_filling(outputs=Poison.X5A), reason=Reason.UNWRITTEN, description=_OUTPUTS),
    Suspect(conditions=_first_with_filling(outputs=Poison.FF), reason=Reason.UNWRITTEN, description=_OUTPUTS),
    Suspect(conditions=_first_with_filling(workspace=0x00), reason=Reason.WORKSPACE, description=_WORKSPACE),
    Suspect(conditions=_first_with_filling(workspace=_LARGE), reason=Reason.WORKSPACE, description=_WORKSPACE),
    Suspect(conditions=_first_with_filling(inputs=Poison.HIGH), reason=Reason.READ_OUT_OF_BOUNDS, description=_INPUTS),
    Suspect(conditions=_first_with_filling(inputs=Poison.LOW), reason=Reason.READ_OUT_OF_BOUNDS, description=_INPUTS),
    Suspect(conditions=replace(FIRST, before=Before.SAME), reason=Reason.STATE, description=_CALLS),
    Suspect(conditions=replace(FIRST, before=Before.ELSEWHERE), reason=Reason.STATE, description=_CALLS),
    Suspect(
        conditions=replace(FIRST, other_descriptors=True),
        reason=Reason.STATE,
        description="other descriptors that are alive or were destroyed",
    ),
)


@dataclass(frozen=True, slots=True)
class DifferentAnswer:
    """Outputs that differ from the first call's, with their conditions and place."""

    answer: CallOutputs
    conditions: CallConditions
    place: BufferSet


class ConditionedCalls:
    """Calls one case under given conditions and finds the condition that changes its outputs."""

    def __init__(self, memory: CaseMemory, subject: Subject, call: Call, policy: Policy) -> None:
        """Store the arguments; ``call`` runs the subject and checks its side effects."""
        self.memory = memory
        self.subject = subject
        self.call = call
        self.policy = policy

    @cached_property
    def other_values(self) -> Mapping[str, Array]:
        """Legal values that differ from the case's, by key: the elements reversed; a single inexact number halved."""
        return {key: _different_values(array) for key, array in self.memory.values.items()}

    def call_under(self, conditions: CallConditions, place: BufferSet) -> CallOutputs:
        """Call once under these conditions and return the outputs; the caller keeps other descriptors alive."""
        memory = self.memory
        if conditions.before is Before.OTHER_VALUES:
            self._call_before(place, conditions, self.other_values)
        elif conditions.before is Before.ELSEWHERE:
            self._call_before(memory.place(self.policy.at(ALIGNED)), conditions, memory.values)
        place.fill(conditions.filling, memory.values)
        with garbage(conditions):
            return self.call_filled(place)

    def _call_before(self, place: BufferSet, conditions: CallConditions, values: Mapping[str, Array]) -> None:
        """Call with ``values`` and ignore the outputs and a failure status, since a library may refuse the values."""
        place.fill(conditions.filling, values)
        with suppress(StatusError):
            self.call(self.memory.pointers(place))

    def call_filled(self, place: BufferSet, pointers: Mapping[str, Any] | None = None) -> CallOutputs:
        """Call once at a place that is filled and return the outputs."""
        self.call(self.memory.pointers(place) if pointers is None else pointers)
        return CallOutputs(place.collect())

    def call_with(
        self, values: Mapping[str, Array], place: BufferSet, pointers: Mapping[str, Any] | None = None
    ) -> CallOutputs:
        """Fill the place with these values, call once and return the outputs."""
        place.fill(FIRST.filling, values)
        return self.call_filled(place, pointers)

    def repeat(self, place: BufferSet) -> Iterator[CallOutputs]:
        """Yield the outputs of the same call without end."""
        place.fill(FIRST.filling, self.memory.values)
        while True:
            yield self.call_filled(place)
            # Collecting small outputs restores what they held, which saves the filling.
            if not place.is_restored:
                place.fill(FIRST.filling, self.memory.values)

    def call_with_new_descriptor(self, conditions: CallConditions, home: BufferSet) -> CallOutputs:
        """Call once under these conditions with a new descriptor after a fixed sequence of calls."""
        memory = self.memory
        with ExitStack() as stack:
            stack.enter_context(garbage(conditions))
            stack.enter_context(self.subject.renewed())
            if conditions.other_descriptors:
                stack.enter_context(self.subject.with_other_descriptors())
            self._call_before(memory.place(self.policy.at(ALIGNED)), conditions, memory.values)
            if conditions.before is not Before.OTHER_VALUES:
                values = memory.values if conditions.before is Before.SAME else self.other_values
                self._call_before(home, conditions, values)
            return self.call_under(conditions, home)

    def explain_differences(
        self, first: CallOutputs, others: Sequence[DifferentAnswer], result: ProbeResult, home: BufferSet
    ) -> None:
        """Raise Fault for a condition that reproducibly changes outputs, else add ``others`` to the result."""
        if not others:
            result.done(ANYWHERE)
            return
        self.require_written(home)
        with self.subject.with_other_descriptors():
            at_home = [self.call_under(conditions, home) for conditions in (SECOND, THIRD)]
            if all(map(first.is_same, at_home)) and all(
                differing.answer.is_same(self.call_under(differing.conditions, differing.place)) for differing in others
            ):
                self._report_address_dependence(others, result)
                return
        for suspect in SUSPECTS:
            self._require_independence(suspect, home)
        result.note(SAME_BITS, "the same call with the same arguments returned other bits; all outputs were compared")
        for answer in (*(differing.answer for differing in others), *at_home):
            result.add(answer, "in another call with the same arguments", Reason.NONDETERMINISTIC)

    def _report_address_dependence(self, others: Sequence[DifferentAnswer], result: ProbeResult) -> None:
        """Add the outputs with a note; raise NONDETERMINISTIC if the library is declared invariant."""
        detail = "other bits if the tensors are at other addresses; all outputs were compared"
        if self.policy.invariant:
            raise Fault(Reason.NONDETERMINISTIC, f"the library is declared invariant, but returns {detail}")
        result.note(ANYWHERE, detail)
        for other in others:
            result.add(other.answer, "with the tensors at other addresses", None)

    def require_heap_independence(self, home: BufferSet) -> None:
        """Raise STATE if the outputs depend on the content of fresh or freed heap memory."""
        self._require_independence(_HEAP_SUSPECT, home)

    def _require_independence(self, suspect: Suspect, home: BufferSet) -> None:
        """Raise the suspect's fault if its conditions reproducibly change the outputs."""
        where = where_reproducibly_different(
            lambda: self.call_with_new_descriptor(suspect.base, home),
            lambda: self.call_with_new_descriptor(suspect.conditions, home),
        )
        if where:
            raise Fault(suspect.reason, f"{where} depends on {suspect.description}")

    def require_written(self, place: BufferSet) -> None:
        """Raise UNWRITTEN if an element without initial value keeps each of two poisons over a call."""
        memory = self.memory
        untouched: list[Mapping[str, Array]] = []
        outputs: Mapping[str, Array] = {}
        for poison in (Poison.A5, Poison.X5A):  # complementary: no value equals both
            place.fill(Filling(outputs=poison), memory.values)
            self.call(memory.pointers(place))
            untouched.append(place.untouched())
            outputs = place.collect()
        poisoned = [name for name in outputs if f"output:{name}" not in memory.values]
        require_written({name: (outputs[name], untouched[0][name] & untouched[1][name]) for name in poisoned})


def _different_values(array: Array) -> Array:
    """Return the elements reversed, a single inexact number halved, any other single number unchanged."""
    if array.size != 1:
        return np.flip(array)  # any order of legal values is legal
    if not np.issubdtype(array.dtype, np.inexact):  # Another index may be out of range.
        return array
    halved: Array = (array * array.dtype.type(0.5)).astype(array.dtype)
    return halved.reshape(array.shape)

"""Conditions of a call that must not affect its outputs, calls under them, and the search for one that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from optest.clib.ffi.calls import StatusError
from optest.clib.library.memory import CaseMemory, Run
from optest.clib.library.subject import Subject
from optest.clib.probing.policy import (
    ALIGNED,
    ANYWHERE,
    SAME_BITS,
    CallOutputs,
    Policy,
    ProbeResult,
    where_reproducibly_different,
)
from optest.memory.buffer_sets import BufferSet, Filling
from optest.memory.buffers import require_written
from optest.memory.heap import end_scribbling, heap_bytes, scribble
from optest.memory.poisons import Poison
from optest.numerics import Array
from optest.spec import Fault, Reason
from optest.timing import no_collector

_FILLING = Filling()


class Before(Enum):
    """The call just before: other values in the same memory, the same values in other memory, or the same call."""

    OTHER_VALUES = "other values"
    ELSEWHERE = "elsewhere"
    SAME = "the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConditions:
    """Conditions of one call; ``garbage`` is the byte of fresh and freed heap memory, None to leave it as it is."""

    filling: Filling = _FILLING
    before: Before = Before.OTHER_VALUES
    other_descriptors: bool = False  # a younger descriptor of the operator is alive
    garbage: int | None = None


# NaN as a float of any width, -1 as an integer.
_GARBAGE = 0xFF

# A large number as a float of any width: it wins every maximum, while NaN wins none.
_LARGE = 0x5A

# Every condition changes between the three: equal bits in all of them prove that none matters.
FIRST = CallConditions()
UNPRECEDED = CallConditions(before=Before.SAME)  # no other calls before
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
        scribble(conditions.garbage)
        grown = (heap_bytes() or 0) - bytes_before
        try:
            yield lambda: grown
        finally:
            end_scribbling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A circumstance that must not affect the outputs: its description, and the reason if calls under both differ."""

    varied: str
    reason: Reason
    changed: CallConditions
    base: CallConditions = FIRST


def _filled(varied: str, reason: Reason, **filling: Any) -> Condition:
    """Return a condition of the bytes that the memory holds before the call."""
    return Condition(varied=varied, reason=reason, changed=replace(FIRST, filling=Filling(**filling)))


def _state(varied: str, base: CallConditions = FIRST, **changes: Any) -> Condition:
    return Condition(varied=varied, reason=Reason.STATE, changed=replace(FIRST, **changes), base=base)


_OUTPUTS = "the content of the outputs before the call"
_INPUTS = "memory outside the elements of the inputs"
_WORKSPACE = "the content of the workspace before the call"
HEAP = _state("the content of fresh or freed heap memory", replace(FIRST, garbage=0x00), garbage=_GARBAGE)
CONDITIONS = (
    HEAP,
    _filled(_OUTPUTS, Reason.UNWRITTEN, outputs=Poison.X5A),
    _filled(_OUTPUTS, Reason.UNWRITTEN, outputs=Poison.FF),
    _filled(_WORKSPACE, Reason.WORKSPACE, workspace=0x00),
    _filled(_WORKSPACE, Reason.WORKSPACE, workspace=_LARGE),
    _filled(_INPUTS, Reason.READ_OUT_OF_BOUNDS, inputs=Poison.HIGH),
    _filled(_INPUTS, Reason.READ_OUT_OF_BOUNDS, inputs=Poison.LOW),
    _state("the calls before it", before=Before.SAME),
    _state("the calls before it", before=Before.ELSEWHERE),
    _state("other descriptors that are alive or were destroyed", other_descriptors=True),
)


class DifferentCall(NamedTuple):
    """A call with other outputs than the first, under other conditions and in other buffers."""

    outputs: CallOutputs
    conditions: CallConditions
    place: BufferSet


class ConditionedCalls:
    """Calls one case under given conditions and finds the condition that changes its outputs."""

    def __init__(self, memory: CaseMemory, subject: Subject, run: Run, policy: Policy) -> None:
        """Store the arguments; ``run`` runs the subject with pointers and checks its side effects."""
        self.memory = memory
        self.subject = subject
        self.run = run
        self.policy = policy

    @cached_property
    def other_values(self) -> Mapping[str, Array]:
        """Legal values that differ from the case's, by key: the elements reversed; a single inexact number halved."""
        return {key: _different_values(array) for key, array in self.memory.values.items()}

    def call(
        self,
        conditions: CallConditions,
        place: BufferSet,
        values: Mapping[str, Array] | None = None,
        pointers: Mapping[str, Any] | None = None,
    ) -> CallOutputs:
        """Call once under these conditions and return the outputs; the caller keeps other descriptors alive.

        ``values`` and ``pointers`` replace those of the case.
        """
        memory = self.memory
        if conditions.before is Before.OTHER_VALUES:
            self._call_before(place, conditions, self.other_values)
        elif conditions.before is Before.ELSEWHERE:
            self._call_before(memory.place(self.policy.at(ALIGNED)), conditions, memory.values)
        place.fill(conditions.filling, memory.values if values is None else values)
        with garbage(conditions):
            return self.call_filled(place, pointers)

    def _call_before(self, place: BufferSet, conditions: CallConditions, values: Mapping[str, Array]) -> None:
        """Call with ``values`` and ignore the outputs and a failure status, since a library may refuse the values."""
        place.fill(conditions.filling, values)
        with suppress(StatusError):
            self.run(self.memory.pointers(place))

    def call_filled(self, place: BufferSet, pointers: Mapping[str, Any] | None = None) -> CallOutputs:
        """Call once with buffers that are filled and return the outputs."""
        self.run(self.memory.pointers(place) if pointers is None else pointers)
        return CallOutputs(place.collect())

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
            return self.call(conditions, home)

    def explain_differences(
        self, first: CallOutputs, others: Sequence[DifferentCall], result: ProbeResult, home: BufferSet
    ) -> None:
        """Raise Fault for a condition that reproducibly changes outputs, else add ``others`` to the result."""
        if not others:
            result.done(ANYWHERE)
            return
        self.require_written(home)
        with self.subject.with_other_descriptors():
            at_home = [self.call(conditions, home) for conditions in (SECOND, THIRD)]
            if all(map(first.is_same, at_home)) and all(
                other.outputs.is_same(self.call(other.conditions, other.place)) for other in others
            ):
                detail = "other bits if the tensors are at other addresses; all outputs were compared"
                if self.policy.invariant:
                    raise Fault(Reason.NONDETERMINISTIC, f"the library is declared invariant, but returns {detail}")
                result.note(ANYWHERE, detail)
                for other in others:
                    result.add(other.outputs, "with the tensors at other addresses", None)
                return
        for condition in CONDITIONS:
            self.require_independence(condition, home)
        result.note(SAME_BITS, "the same call with the same arguments returned other bits; all outputs were compared")
        for outputs in (*(other.outputs for other in others), *at_home):
            result.add(outputs, "in another call with the same arguments", Reason.NONDETERMINISTIC)

    def require_independence(self, condition: Condition, home: BufferSet) -> None:
        """Raise the condition's fault if it reproducibly changes the outputs."""
        where = where_reproducibly_different(
            lambda: self.call_with_new_descriptor(condition.base, home),
            lambda: self.call_with_new_descriptor(condition.changed, home),
        )
        if where:
            raise Fault(condition.reason, f"{where} depends on {condition.varied}")

    def require_written(self, place: BufferSet) -> None:
        """Raise UNWRITTEN if an element without initial value keeps each of two poisons over a call."""
        memory = self.memory
        untouched: list[Mapping[str, Array]] = []
        outputs: Mapping[str, Array] = {}
        for poison in (Poison.A5, Poison.X5A):  # complementary: no value equals both
            place.fill(Filling(outputs=poison), memory.values)
            self.run(memory.pointers(place))
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

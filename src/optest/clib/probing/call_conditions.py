"""What may be different from call to call and must not matter (memory around, what ran before, which descriptors are
alive), calls of a case under such conditions, and which of them makes a difference."""

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
from optest.clib.library.places import Filling, Place
from optest.clib.library.subject import Subject
from optest.clib.probing.policy import ALIGNED, ANYWHERE, SAME_BITS, Policy
from optest.clib.probing.results import Answer, ProbeResult, where_always_different
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
        heap_garbage.scribble(conditions.garbage)
        grown = (heap_bytes() or 0) - before
        try:
            yield lambda: grown
        finally:
            heap_garbage.end()


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
_OF_HEAP = Suspect(
    conditions=replace(FIRST, garbage=_GARBAGE),
    base=replace(FIRST, garbage=0x00),
    reason=Reason.STATE,
    what="what fresh or freed heap memory held",
)
SUSPECTS = (
    _OF_HEAP,
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


@dataclass(frozen=True, slots=True)
class OtherAnswer:
    """Another answer than the first, and where it came from."""

    answer: Answer
    conditions: CallConditions
    place: Place


class ConditionedCalls:
    """Calls one case under stated circumstances, and finds out which of them makes a difference."""

    def __init__(self, memory: CaseMemory, subject: Subject, call: Call, policy: Policy) -> None:
        """``call`` is the subject's, with whatever is watched around it."""
        self.memory = memory
        self.subject = subject
        self.call = call
        self.policy = policy

    @cached_property
    def other_values(self) -> Mapping[str, Array]:
        """Legal values other than the case's: backwards, since any order of them is; a single number that is no index
        halved."""
        return {key: _other(array) for key, array in self.memory.values.items()}

    def answer(self, conditions: CallConditions, place: Place) -> Answer:
        """One call in these conditions; which other descriptors are alive is the caller's to see to."""
        memory = self.memory
        if conditions.before is Before.OTHER_VALUES:
            self._call_before(place, conditions, self.other_values)
        elif conditions.before is Before.ELSEWHERE:
            self._call_before(memory.place(self.policy.at(ALIGNED)), conditions, memory.values)
        place.fill(conditions.filling, memory.values)
        with garbage(conditions):
            return self.called(place)

    def _call_before(self, place: Place, conditions: CallConditions, values: Mapping[str, Array]) -> None:
        """A call whose answer does not count; a library may refuse the values, too."""
        place.fill(conditions.filling, values)
        with suppress(StatusError):
            self.call(self.memory.pointers(place))

    def called(self, place: Place, pointers: Mapping[str, Any] | None = None) -> Answer:
        """One call of a place that is filled."""
        self.call(self.memory.pointers(place) if pointers is None else pointers)
        return Answer(place.collect())

    def answer_to(self, values: Mapping[str, Array], place: Place, pointers: Mapping[str, Any] | None = None) -> Answer:
        """One call with these values, whatever was called before."""
        place.fill(FIRST.filling, values)
        return self.called(place, pointers)

    def repeated(self, place: Place) -> Iterator[Answer]:
        """The same call without end; small outputs hold what they held before, so that nothing has to be filled."""
        place.fill(FIRST.filling, self.memory.values)
        while True:
            yield self.called(place)
            if not place.is_restored:
                place.fill(FIRST.filling, self.memory.values)

    def renewed_answer(self, conditions: CallConditions, home: Place) -> Answer:
        """With a descriptor of its own, after calls that leave behind the same whatever ran before them."""
        memory = self.memory
        with ExitStack() as stack:
            stack.enter_context(garbage(conditions))
            stack.enter_context(self.subject.renewed())
            if conditions.other_descriptors:
                stack.enter_context(self.subject.with_other_descriptors())
            self._call_before(memory.place(self.policy.at(ALIGNED)), conditions, memory.values)
            if conditions.before is not Before.OTHER_VALUES:
                values = memory.values if conditions.before is Before.THE_SAME else self.other_values
                self._call_before(home, conditions, values)
            return self.answer(conditions, home)

    def explain_others(self, first: Answer, others: Sequence[OtherAnswer], result: ProbeResult, home: Place) -> None:
        """Find out why other answers than the first came out of other conditions, if they did.

        Raises:
            Fault: for a circumstance that alone makes the difference, again and again.
        """
        if not others:
            result.done(ANYWHERE)
            return
        self.require_written(home)
        with self.subject.with_other_descriptors():
            at_home = [self.answer(conditions, home) for conditions in (SECOND, THIRD)]
            if all(map(first.is_same, at_home)) and all(
                other.answer.is_same(self.answer(other.conditions, other.place)) for other in others
            ):
                self._depends_on_addresses(others, result)
                return
        for suspect in SUSPECTS:
            self._require_no_difference(suspect, home)
        result.note(SAME_BITS, "the same call with the same arguments gave other bits; all answers were compared")
        for answer in (*(other.answer for other in others), *at_home):
            result.add(answer, "in another call with the same arguments", Reason.NONDETERMINISTIC)

    def _depends_on_addresses(self, others: Sequence[OtherAnswer], result: ProbeResult) -> None:
        detail = "other bits where the tensors lie at other addresses; all answers were compared"
        if self.policy.invariant:
            raise Fault(Reason.NONDETERMINISTIC, f"the library is declared invariant, but gives {detail}")
        result.note(ANYWHERE, detail)
        for other in others:
            result.add(other.answer, "with the tensors at other addresses", None)

    def require_same_in_other_heap(self, home: Place) -> None:
        """Raise STATE for an answer that depends on what fresh or freed heap memory held."""
        self._require_no_difference(_OF_HEAP, home)

    def _require_no_difference(self, suspect: Suspect, home: Place) -> None:
        """Raise where the suspect's conditions always give another answer, each time anew."""
        where = where_always_different(
            lambda: self.renewed_answer(suspect.base, home),
            lambda: self.renewed_answer(suspect.conditions, home),
        )
        if where:
            raise Fault(suspect.reason, f"{where} depends on {suspect.what}")

    def require_written(self, place: Place) -> None:
        """Raise where an element holds each of two poisons after two calls, of outputs that began with nothing else."""
        memory = self.memory
        untouched: list[Mapping[str, Array]] = []
        outputs: Mapping[str, Array] = {}
        for poison in (Poison.A5, Poison.X5A):
            place.fill(Filling(outputs=poison), memory.values)
            self.call(memory.pointers(place))
            untouched.append(place.untouched())
            outputs = place.collect()
        began = [name for name in outputs if f"output:{name}" not in memory.values]
        require_written({name: (outputs[name], untouched[0][name] & untouched[1][name]) for name in began})


def _other(array: Array) -> Array:
    if array.size != 1:
        return np.flip(array)
    if not np.issubdtype(array.dtype, np.inexact):
        return array
    halved: Array = (array * array.dtype.type(0.5)).astype(array.dtype)
    return halved.reshape(array.shape)

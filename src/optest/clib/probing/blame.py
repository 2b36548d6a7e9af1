"""Why a case gave other answers in other conditions: the one circumstance that makes the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import Filling, Place
from optest.clib.library.subject import Subject
from optest.clib.probing.call_conditions import SECOND, SUSPECTS, THIRD, Call, CallConditions, ConditionedCalls, Suspect
from optest.clib.probing.policy import ANYWHERE, SAME_BITS, Policy
from optest.clib.probing.results import Answer, ProbeResult, is_reproducible, where_different
from optest.memory.buffers import require_written
from optest.memory.poisons import Poison
from optest.numerics import Array
from optest.spec import Fault, Reason

__all__ = ["Blame", "OtherAnswer"]


@dataclass(frozen=True, slots=True)
class OtherAnswer:
    """Another answer than the first, and where it came from."""

    answer: Answer
    conditions: CallConditions
    place: Place


class Blame:
    """Asks again, with one circumstance changed at a time."""

    def __init__(
        self, memory: CaseMemory, subject: Subject, call: Call, calls: ConditionedCalls, policy: Policy
    ) -> None:
        self._memory = memory
        self._subject = subject
        self._call = call
        self._calls = calls
        self._policy = policy

    def compare(self, first: Answer, others: Sequence[OtherAnswer], result: ProbeResult, home: Place) -> None:
        """Find out why other answers than the first came out of other conditions, if they did.

        Raises:
            Fault: for a circumstance that alone makes the difference, again and again.
        """
        if not others:
            result.done(ANYWHERE)
            return
        self.require_written(home)
        with self._subject.with_other_descriptors():
            at_home = [self._calls.answer(conditions, home) for conditions in (SECOND, THIRD)]
            if all(map(first.is_same, at_home)) and all(map(self._is_reproducible, others)):
                self._depends_on_addresses(others, result)
                return
        for suspect in SUSPECTS:
            self.require_no_difference(suspect, home)
        result.note(SAME_BITS, "the same call with the same arguments gave other bits; all answers were compared")
        for answer in (*(other.answer for other in others), *at_home):
            result.add(answer, "in another call with the same arguments", Reason.NONDETERMINISTIC)

    def _is_reproducible(self, other: OtherAnswer) -> bool:
        return other.answer.is_same(self._calls.answer(other.conditions, other.place))

    def _depends_on_addresses(self, others: Sequence[OtherAnswer], result: ProbeResult) -> None:
        detail = "other bits where the tensors lie at other addresses; all answers were compared"
        if self._policy.invariant:
            raise Fault(Reason.NONDETERMINISTIC, f"the library is declared invariant, but gives {detail}")
        result.note(ANYWHERE, detail)
        for other in others:
            result.add(other.answer, "with the tensors at other addresses", None)

    def require_no_difference(self, suspect: Suspect, home: Place) -> None:
        """Raise where the suspect's conditions give another answer than the first, each time anew."""
        one, other = (
            self._calls.renewed_answer(suspect.base, home),
            self._calls.renewed_answer(suspect.conditions, home),
        )
        if one.is_same(other):
            return
        if is_reproducible(
            lambda: one.is_same(self._calls.renewed_answer(suspect.base, home)),
            lambda: other.is_same(self._calls.renewed_answer(suspect.conditions, home)),
        ):
            raise Fault(suspect.reason, f"{where_different(one, other)} depends on {suspect.what}")

    def _untouched(self, place: Place) -> dict[str, Array]:
        """Which elements hold what the poison was, of outputs that began with nothing else."""
        starts = self._memory.values
        return {name: each for name, each in place.untouched().items() if f"output:{name}" not in starts}

    def require_written(self, place: Place) -> None:
        """Raise where an element holds each of two poisons after two calls."""
        never: dict[str, Array] = {}
        outputs: Mapping[str, Array] = {}
        for poison in (Poison.A5, Poison.X5A):
            place.fill(Filling(outputs=poison), self._memory.values)
            self._call(self._memory.pointers(place))
            untouched = self._untouched(place)
            outputs = place.collect(copied=True)
            never = {name: each & never.get(name, each) for name, each in untouched.items()}
        require_written({name: (outputs[name], each) for name, each in never.items()})

"""Calls of a case in a situation: what ran before, what memory holds, who else is alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import numpy as np

from optest.clib.ffi.statuses import StatusError
from optest.clib.library.answers import Answer
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import Place
from optest.clib.library.policy import ALIGNED, Policy
from optest.clib.library.situations import Before, Situation, garbage
from optest.clib.library.subject import Subject
from optest.numerics import Array

__all__ = ["Call", "SituatedCalls"]

Call = Callable[[Mapping[str, Any]], None]


class SituatedCalls:
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

    def answer(self, situation: Situation, place: Place) -> Answer:
        """One call in a situation; who else is alive is the caller's to see to."""
        memory = self._memory
        if situation.before is Before.OTHER_VALUES:
            self._call_before(place, situation, self.other_values)
        elif situation.before is Before.ELSEWHERE:
            self._call_before(memory.place(self._policy.at(ALIGNED)), situation, memory.values)
        place.fill(situation.filling, memory.values)
        with garbage(situation):
            return self.called(place)

    def _call_before(self, place: Place, situation: Situation, values: Mapping[str, Array]) -> None:
        """A call whose answer nobody asks for; a library may refuse the values, too."""
        place.fill(situation.filling, values)
        with suppress(StatusError):
            self._call(self._memory.pointers(place))

    def called(self, place: Place) -> Answer:
        self._call(self._memory.pointers(place))
        return Answer(place.collect())

    def renewed_answer(self, situation: Situation, home: Place) -> Answer:
        """With a descriptor of its own, after calls that leave behind the same whatever ran before them."""
        memory = self._memory
        with ExitStack() as stack:
            stack.enter_context(garbage(situation))
            stack.enter_context(self._subject.renewed())
            stack.enter_context(self._subject.disturbed() if situation.others else nullcontext())
            self._call_before(memory.place(self._policy.at(ALIGNED)), situation, memory.values)
            if situation.before is not Before.OTHER_VALUES:
                values = memory.values if situation.before is Before.THE_SAME else self.other_values
                self._call_before(home, situation, values)
            return self.answer(situation, home)


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

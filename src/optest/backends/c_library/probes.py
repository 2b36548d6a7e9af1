"""How often a case is called, under which circumstances, and what is blamed when the answers differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from optest.backends.c_library.answers import Answer, first_index, where_different
from optest.backends.c_library.closer import CloserLook, has_nan, other_caller
from optest.backends.c_library.manners import require_no_leak
from optest.backends.c_library.memory import CaseMemory
from optest.backends.c_library.places import Filling, Place, Where
from optest.backends.c_library.situations import (
    FIRST,
    OF_HEAP,
    SECOND,
    SUSPECTS,
    THIRD,
    Before,
    Situation,
    Suspect,
    garbage,
)
from optest.backends.c_library.subject import Subject
from optest.backends.c_library.threads import ThreadCounts
from optest.backends.further import FurtherAnswer
from optest.ffi.garbage import HeapGarbage
from optest.ffi.held import heap_bytes
from optest.ffi.poisons import Poison
from optest.ffi.regions import Placement
from optest.ffi.statuses import StatusError
from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason

__all__ = ["ONE_CALL_ASKED", "Examined", "Policy", "Probe", "checks_of_one_call"]

_SMALL_BYTES = 1 << 20
"""Up to here a case is called under every circumstance."""

_MIDDLE_BYTES = 1 << 24
"""Up to here it is called twice, above once: a second call would cost more than the verdict."""

_PARALLEL_ELEMENTS = 4096
"""Fewer elements than these no library splits among threads."""

_REPEATS = 60
_REPEATS_S = 0.04
_LEAST_REPEATS = 10
_LEAST_REPEATS_S = 0.3
_REPEATED_COUNTS = 3
"""Numbers of threads with which a call is repeated; further ones find what is wrong with splitting."""

_MOST_FURTHER = 8
_BESIDE_OTHERS = 30
_BESIDE_OTHERS_S = 0.1
_TURNS = 3
"""What goes wrong now and then seems to depend on something once in a while, but hardly four times."""

_ALIGNED, _SHIFTED = Where(), Where(shift=1)
_AT_END, _AT_START = Where(placement=Placement.PAGES_END), Where(placement=Placement.PAGES_START)
_ELSEWHERE = Where(shift=2)
_ALONE = replace(FIRST, before=Before.THE_SAME)
"""Without other calls before."""

_PLACES = {
    None: (_SHIFTED, _AT_END, _AT_START),
    "heap": (_SHIFTED, _ALIGNED, Where(shift=2)),
    "pages": (_AT_END, _AT_START, _AT_END),
}
ONE_CALL_ASKED = "not asked: probes: guards"
_SAME_BITS = "same bits in a second call"
_ANYWHERE = "same bits wherever the tensors lie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """``is_brief`` asks for one call while nothing is wrong. ``guard`` is heap or pages, None for both in turns;
    ``invariant`` promises equal bits at every address and with every number of ``threads``; ``counts_leaks`` looks for
    leaks too where the heap does not seem to grow, since malloc gives small pieces out of a store that counts as used.
    ``looks_closer`` and ``calls_often`` ask what is asked of few cases only (``closer``); ``has_other_callers`` says
    that several threads may call the library at once.
    """

    is_brief: bool = False
    guard: str | None = None
    invariant: bool = False
    threads: tuple[int, ...] = ()
    counts_leaks: bool = False
    looks_closer: bool = False
    calls_often: bool = False
    has_other_callers: bool = False
    alignment: int = 1

    def at(self, where: Where) -> Where:
        """There, as far as the pointers that the library needs allow it."""
        return where if self.alignment == 1 else replace(where, alignment=self.alignment)

    @property
    def places(self) -> tuple[Where, Where, Where]:
        """Where the three calls of a small case find their tensors: one by alignment, one off it."""
        one, two, three = _PLACES[self.guard]
        return self.at(one), self.at(two), self.at(three)

    @property
    def may_lend(self) -> bool:
        """Whether large inputs may lie where they are: not where forbidden pages are asked for."""
        return self.guard is None and self.alignment == 1

    @property
    def place_of_one_call(self) -> Where:
        return self.at(_SHIFTED if self.guard == "heap" else _AT_END)


@dataclass(frozen=True, slots=True)
class _Other:
    """Another answer than the first, and where it came from."""

    answer: Answer
    situation: Situation
    place: Place


@dataclass(slots=True, kw_only=True)
class Examined:
    """The first answer, those with other bits, and what was looked at."""

    outputs: dict[str, Array]
    further: list[FurtherAnswer] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, answer: Answer, how: str, reason: Reason | None) -> None:
        if len(self.further) < _MOST_FURTHER:
            self.further.append(FurtherAnswer(outputs=answer.outputs, how=how, reason=reason))

    def note(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOTE, detail))

    def done(self, name: str, detail: str = "") -> None:
        self.checks.append(_check(name, CheckState.DONE, detail))

    def impossible(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOT_POSSIBLE, detail))


@lru_cache(maxsize=512)
def _check(name: str, state: CheckState, detail: str) -> Check:
    """The same for every case of which the same is said."""
    return Check(name=name, state=state, detail=detail)


Call = Callable[[Mapping[str, Any]], None]


class Probe:
    """Calls one case again and again and finds out on what its answer depends."""

    def __init__(
        self, memory: CaseMemory, subject: Subject, call: Call, policy: Policy, threads: ThreadCounts | None
    ) -> None:
        """``call`` is the subject's, with whatever is watched around it."""
        self._memory = memory
        self._subject = subject
        self._call = call
        self._policy = policy
        self._threads = threads
        self._other_values: dict[str, Array] | None = None

    @property
    def _others(self) -> Mapping[str, Array]:
        """Other values than those of the case."""
        if self._other_values is None:
            self._other_values = _other_values(self._memory.values)
        return self._other_values

    def examine(self) -> Examined:
        """Call as often as the size of the case allows.

        Raises:
            Fault: for whatever the memory or equal bits show to be wrong.
            StatusError: if the library refuses.
        """
        nbytes = self._memory.nbytes
        if self._policy.is_brief:
            return self._examine_once(ONE_CALL_ASKED)
        if nbytes > _MIDDLE_BYTES:
            return self._examine_once(f"one call above {_MIDDLE_BYTES >> 20} MiB")
        places = [self._memory.place(where) for where in self._policy.places]
        with self._memory.watched(*places):
            return self._examine_small(places) if nbytes <= _SMALL_BYTES else self._examine_middle(places[:2])

    def blame(self) -> None:
        """Look closer at a small case whose answer was wrong.

        Raises:
            Fault: for heap memory that the answer depends on, which may have held the same in every call.
        """
        if self._memory.nbytes <= _SMALL_BYTES and HeapGarbage.is_possible():
            home = self._memory.place(self._policy.places[0])
            with self._memory.watched(home, self._memory.place(self._policy.at(_ALIGNED))):
                self._require_no_difference(OF_HEAP, home)

    def _examine_small(self, places: Sequence[Place]) -> Examined:
        home = places[0]
        # What a library keeps by address is not to know the right values of the place where other ones come first.
        very_first = self._answer(_ALONE, places[-1]) if self._policy.calls_often else None
        first = self._answer(FIRST, home)
        examined = Examined(outputs=first.outputs)
        if very_first is not None and not first.is_same(very_first):
            examined.add(very_first, "in the first call of all", Reason.STATE)
        others, grew = self._answers_beside_others(first, places[1:])
        late = home.written_since()
        if late is not None:
            raise Fault(Reason.UNWRITTEN, f"{late} was still written after the call had returned")
        _say_what_was_done(examined, self._memory, self._policy, calls=3)
        self._compare(first, others, examined, home)
        self._repeat(first, examined, home)
        self._beside_other_callers(first, examined, home)
        self._look_closer(first, examined, home)
        self._with_threads(first, examined, home)
        self._look_for_leaks(examined, home, grew)
        return examined

    def _answers_beside_others(self, first: Answer, places: Sequence[Place]) -> tuple[list[_Other], bool]:
        """Answers other than the first in the situations that follow, and whether the heap grew meanwhile.

        Whatever Python keeps is made before, and answers that are the same are dropped at once, so that a heap that
        grew is the library's.
        """
        situated = list(zip((SECOND, THIRD), places, strict=False))
        for situation, place in situated:
            place.fill(situation.filling, self._memory.values)
        before = heap_bytes()
        others = []
        with self._subject.disturbed():
            for situation, place in situated:
                with garbage(situation) as taken:
                    answer = self._called(place)
                before = None if before is None else before + taken()
                if not first.is_same(answer):
                    others.append(_Other(answer, situation, place))
                del answer  # else the last one is what the heap grew by
        after = heap_bytes()
        return others, before is not None and after is not None and after > before

    def _examine_middle(self, places: Sequence[Place]) -> Examined:
        home = places[0]
        first = self._answer(_ALONE, home)
        examined = Examined(outputs=first.outputs)
        others, _ = self._answers_beside_others(first, places[1:])
        _say_what_was_done(examined, self._memory, self._policy, calls=2)
        self._compare(first, others, examined, home)
        self._repeat(first, examined, home)
        self._beside_other_callers(first, examined, home)
        self._with_threads(first, examined, home)
        examined.impossible("leaks", f"not looked for above {_SMALL_BYTES >> 20} MiB")
        return examined

    def _examine_once(self, why: str) -> Examined:
        """One call, ``why`` no more; others only where an element holds what it held before, and for threads."""
        where = self._policy.place_of_one_call
        place = self._memory.place_of_its_own(where) if self._policy.may_lend else self._memory.place(where)
        with self._memory.watched(place):
            place.fill(Filling(), self._memory.values)
            self._call(self._memory.pointers(place))
            is_written = not place.has_untouched(self._memory.values)
            outputs = place.collect(copied=not is_written or bool(self._policy.threads))
            if not is_written:
                self._require_written(place)
            examined = Examined(outputs=outputs)
            examined.checks += checks_of_one_call(self._policy, why)
            self._with_threads(Answer(outputs), examined, place)
        return examined

    def _answer(self, situation: Situation, place: Place) -> Answer:
        """One call in a situation; who else is alive is the caller's to see to."""
        memory = self._memory
        if situation.before is Before.OTHER_VALUES:
            self._call_before(place, situation, self._others)
        elif situation.before is Before.ELSEWHERE:
            self._call_before(memory.place(self._policy.at(_ALIGNED)), situation, memory.values)
        place.fill(situation.filling, memory.values)
        with garbage(situation):
            return self._called(place)

    def _call_before(self, place: Place, situation: Situation, values: Mapping[str, Array]) -> None:
        """A call whose answer nobody asks for; a library may refuse the values, too."""
        place.fill(situation.filling, values)
        with suppress(StatusError):
            self._call(self._memory.pointers(place))

    def _called(self, place: Place) -> Answer:
        self._call(self._memory.pointers(place))
        return Answer(place.collect())

    def _compare(self, first: Answer, others: Sequence[_Other], examined: Examined, home: Place) -> None:
        """Find out why other answers than the first came out of other situations, if they did.

        Raises:
            Fault: for a circumstance that alone makes the difference, again and again.
        """
        if not others:
            examined.done(_ANYWHERE)
            return
        self._require_written(home)
        with self._subject.disturbed():
            at_home = [self._answer(situation, home) for situation in (SECOND, THIRD)]
            if all(map(first.is_same, at_home)) and all(map(self._comes_again, others)):
                self._depends_on_addresses(others, examined)
                return
        for suspect in SUSPECTS:
            self._require_no_difference(suspect, home)
        examined.note(_SAME_BITS, "the same call with the same arguments gave other bits; all answers were compared")
        for answer in (*(other.answer for other in others), *at_home):
            examined.add(answer, "in another call with the same arguments", Reason.NONDETERMINISTIC)

    def _comes_again(self, other: _Other) -> bool:
        return other.answer.is_same(self._answer(other.situation, other.place))

    def _depends_on_addresses(self, others: Sequence[_Other], examined: Examined) -> None:
        detail = "other bits where the tensors lie at other addresses; all answers were compared"
        if self._policy.invariant:
            raise Fault(Reason.NONDETERMINISTIC, f"the library is declared invariant, but gives {detail}")
        examined.note(_ANYWHERE, detail)
        for other in others:
            examined.add(other.answer, "with the tensors at other addresses", None)

    def _require_no_difference(self, suspect: Suspect, home: Place) -> None:
        """Raise where the suspect's situation gives another answer than the first, in turns and always the same two."""
        one, other = self._renewed_answer(suspect.base, home), self._renewed_answer(suspect.situation, home)
        if one.is_same(other):
            return
        for _ in range(_TURNS):
            if not one.is_same(self._renewed_answer(suspect.base, home)):
                return
            if not other.is_same(self._renewed_answer(suspect.situation, home)):
                return
        raise Fault(suspect.reason, f"{where_different(one, other)} depends on {suspect.what}")

    def _renewed_answer(self, situation: Situation, home: Place) -> Answer:
        """With a descriptor of its own, after calls that leave behind the same whatever ran before them."""
        memory = self._memory
        with ExitStack() as stack:
            stack.enter_context(garbage(situation))
            stack.enter_context(self._subject.renewed())
            stack.enter_context(self._subject.disturbed() if situation.others else nullcontext())
            self._call_before(memory.place(self._policy.at(_ALIGNED)), situation, memory.values)
            if situation.before is not Before.OTHER_VALUES:
                values = memory.values if situation.before is Before.THE_SAME else self._others
                self._call_before(home, situation, values)
            return self._answer(situation, home)

    def _untouched(self, place: Place) -> dict[str, Array]:
        """Which elements hold what the poison was, of outputs that began with nothing else."""
        starts = self._memory.values
        return {name: each for name, each in place.untouched().items() if f"output:{name}" not in starts}

    def _require_written(self, place: Place) -> None:
        """Raise where an element holds each of two poisons after two calls."""
        never: dict[str, Array] = {}
        for poison in (Poison.A5, Poison.X5A):
            place.fill(Filling(outputs=poison), self._memory.values)
            self._call(self._memory.pointers(place))
            untouched = self._untouched(place)
            place.collect(copied=False)
            never = {name: each & never.get(name, each) for name, each in untouched.items()}
        for name, each in never.items():
            if each.any():
                index = first_index(each)
                raise Fault(
                    Reason.UNWRITTEN,
                    f"{int(each.sum())} of {each.size} elements of output {name} were never written; "
                    f"the first at {index}",
                    details={"output": name, "index": index},
                )

    def _repeat(self, first: Answer, examined: Examined, home: Place, how: str = "in a repeated call") -> None:
        """Call tensors that are worth several threads again: a race shows itself now and then."""
        if self._memory.most_elements < _PARALLEL_ELEMENTS:
            return
        began = perf_counter()
        home.fill(FIRST.filling, self._memory.values)
        count = 0
        while perf_counter() < began + (_LEAST_REPEATS_S if count < _LEAST_REPEATS else _REPEATS_S):
            if count == _REPEATS:
                break
            if count and not home.is_restored:
                home.fill(FIRST.filling, self._memory.values)
            count += 1
            answer = self._called(home)
            if not first.is_same(answer):
                examined.add(answer, how, Reason.NONDETERMINISTIC)
        examined.done("races", f"{count} more calls {how.removeprefix('in a repeated call')}".strip())

    def _beside_other_callers(self, first: Answer, examined: Examined, home: Place) -> None:
        """Call large tensors while another thread calls with a descriptor, tensors and values of its own."""
        if (
            self._memory.most_elements < _PARALLEL_ELEMENTS
            or not self._policy.has_other_callers
            or not self._subject.has_descriptors
            or examined.further
        ):
            return
        place = self._memory.place(self._policy.at(_ELSEWHERE))
        place.fill(FIRST.filling, self._others)
        pointers = self._memory.pointers(place)
        with suppress(StatusError), self._memory.watched(home, place), self._subject.apart(pointers) as call:
            theirs = Answer(place.collect())
            place.fill(FIRST.filling, self._others)
            how = "while another thread called it too"
            began = perf_counter()
            count = 0
            with other_caller(call):
                while count < _BESIDE_OTHERS and perf_counter() < began + _BESIDE_OTHERS_S:
                    count += 1
                    home.fill(FIRST.filling, self._memory.values)
                    answer = self._called_beside(home)
                    if not first.is_same(answer):
                        examined.add(answer, how, Reason.STATE)
            examined.done("callers at once", f"{count} calls beside those of another thread")
            if not theirs.is_same(Answer(place.collect())):
                detail = "the other of two threads that called at the same time got other bits than alone"
                examined.note("same bits for two callers", detail)

    def _called_beside(self, home: Place) -> Answer:
        """Raises:
        Fault: STATE if the library refuses what it takes alone.
        """
        try:
            return self._called(home)
        except StatusError as error:
            said = f"the library refused a call that it takes alone, while another thread called it too: {error}"
            raise Fault(Reason.STATE, said) from None

    def _look_closer(self, first: Answer, examined: Examined, home: Place) -> None:
        """What is asked of cases with NaN, of those without elements, and of a few."""
        look = CloserLook(self._memory, self._subject, self._call, home, first)
        if has_nan(first):
            answer = look.with_other_nans()
            if answer is not None:
                examined.add(answer, "with NaNs of the other sign", None)
            examined.done("NaNs of both signs")
        if not all(array.size for array in (*self._memory.values.values(), *first.outputs.values())):
            refused = look.note_of_null()
            if refused:
                examined.note("NULL for tensors without elements", refused)
            else:
                examined.done("NULL for tensors without elements")
        if not examined.further:
            pairs = look.require_same_when_shared(but_alike=not self._policy.looks_closer)
            if pairs:
                examined.done("inputs in one memory", f"{pairs} pair{'' if pairs == 1 else 's'}")
        if self._policy.looks_closer and not examined.further:
            look.require_layouts_copied()
        if self._policy.calls_often and not examined.further:
            look.require_same_after_many()
            examined.done("many calls")

    def _with_threads(self, first: Answer, examined: Examined, home: Place) -> None:
        """The same with every number of threads that was asked for."""
        threads = self._threads
        if threads is None:
            return
        if not threads.is_possible:
            examined.impossible("threads", threads.why_not)
            return
        for count in self._policy.threads:
            with threads.set(count), self._subject.renewed():
                self._memory.take_workspace(self._subject.workspace_bytes)
                place = self._memory.place(home.key[0])
                with self._memory.watched(place):
                    answer = self._answer(_ALONE, place)
                    how = f"with {count} thread{'' if count == 1 else 's'}"
                    if not first.is_same(answer):
                        self._differs_by_threads(answer, examined, how)
                    if count in self._policy.threads[:_REPEATED_COUNTS]:
                        self._repeat(answer, examined, place, how)
        examined.done("threads", f"{', '.join(map(str, self._policy.threads))} by {threads.means}")

    def _differs_by_threads(self, answer: Answer, examined: Examined, how: str) -> None:
        if self._policy.invariant:
            raise Fault(Reason.NONDETERMINISTIC, f"the library is declared invariant, but gives other bits {how}")
        examined.note("same bits with every number of threads", f"other bits {how}; all answers were compared")
        examined.add(answer, how, None)

    def _look_for_leaks(self, examined: Examined, home: Place, grew: bool) -> None:
        if heap_bytes() is None:
            examined.impossible("leaks", "the heap is not glibc's")
            return
        if grew or self._policy.counts_leaks:
            home.fill(FIRST.filling, self._memory.values)
            pointers = self._memory.pointers(home)
            require_no_leak(self._subject, lambda: self._call(pointers))
        how = "calls were counted" if grew or self._policy.counts_leaks else "the heap did not grow in two calls"
        examined.done("leaks", how)


def _say_alignment(examined: Examined, policy: Policy) -> None:
    if policy.alignment > 1:
        detail = f"tensors begin at multiples of {policy.alignment} bytes alone, as the mapping says"
        examined.impossible("other alignments", detail)


def _say_what_was_done(examined: Examined, memory: CaseMemory, policy: Policy, *, calls: int) -> None:
    where = {"heap": "256 bytes on each side", "pages": "forbidden pages"}.get(
        policy.guard or "", "256 bytes on each side, then forbidden pages"
    )
    examined.done("guard zones", f"{where}, and all gaps, of inputs, outputs and workspace")
    examined.done("outputs written", "two poisons")
    _say_alignment(examined, policy)
    examined.done("nothing else read", f"{calls} calls, {calls} poisons around inputs")
    examined.done("workspace", f"{memory.workspace_bytes} bytes, {calls} contents")
    examined.done("state", "after other calls, beside other descriptors" if calls > 2 else "beside other descriptors")
    if calls > 2 and HeapGarbage.is_possible():
        examined.done("heap memory as it was found", "two contents")


def checks_of_one_call(policy: Policy, why: str) -> tuple[Check, ...]:
    """What is said of a case that was called once, ``why`` no more."""
    return _what_one_call_shows(policy.guard, policy.alignment, why)


@lru_cache(maxsize=64)
def _what_one_call_shows(guard: str | None, alignment: int, why: str) -> tuple[Check, ...]:
    examined, policy = Examined(outputs={}), Policy(guard=guard, alignment=alignment)
    where = "256 bytes on each side" if policy.guard == "heap" else "forbidden pages"
    examined.done("guard zones", f"{where}, and all gaps, of inputs, outputs and workspace")
    examined.done("outputs written", "two poisons")
    _say_alignment(examined, policy)
    for name in ("nothing else read", "workspace", "state", _SAME_BITS, "leaks"):
        examined.impossible(name, why)
    return tuple(examined.checks)


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

"""How often a case is called and under which circumstances."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter

from optest.clib.ffi.collector import no_collector
from optest.clib.ffi.held import heap_bytes
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.answers import Answer
from optest.clib.library.blame import Blame, OtherAnswer
from optest.clib.library.closer import CloserLook, has_nan, other_caller
from optest.clib.library.examined import ONE_CALL_ASKED, Examined, checks_of_one_call, say_what_was_done
from optest.clib.library.manners import require_no_leak
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import Filling, Place
from optest.clib.library.policy import ALIGNED, ELSEWHERE, Policy
from optest.clib.library.situated import Call, SituatedCalls
from optest.clib.library.situations import FIRST, OF_HEAP, SECOND, THIRD, Before, garbage
from optest.clib.library.subject import Subject
from optest.clib.library.threads import ThreadCounts
from optest.memory.heap_garbage import HeapGarbage
from optest.spec import Fault, Reason

__all__ = ["Probe"]

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
_AT_ANY_LOAD = 3
"""Calls that are made though this process was kept off the processor for all of the time."""

_REPEATED_COUNTS = 3
"""Numbers of threads with which a call is repeated; further ones find what is wrong with splitting."""

_BESIDE_OTHERS = 30
_BESIDE_OTHERS_S = 0.1
_ALONE = replace(FIRST, before=Before.THE_SAME)
"""Without other calls before."""


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
        self._calls = SituatedCalls(memory, subject, call, policy)
        self._blame = Blame(memory, subject, call, self._calls, policy)

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
            with self._memory.watched(home, self._memory.place(self._policy.at(ALIGNED))):
                self._blame.require_no_difference(OF_HEAP, home)

    def _examine_small(self, places: Sequence[Place]) -> Examined:
        home = places[0]
        # What a library keeps by address is not to know the right values of the place where other ones come first.
        very_first = self._calls.answer(_ALONE, places[-1]) if self._policy.calls_often else None
        first = self._calls.answer(FIRST, home)
        examined = Examined(outputs=first.outputs)
        others, grew = self._answers_beside_others(first, places[1:])
        if very_first is not None and not first.is_same(very_first):
            there = [other.answer for other in others if other.place is places[-1]]
            if not any(very_first.is_same(answer) for answer in there):  # else it is the place, and no first call
                examined.add(very_first, "in the first call of all", Reason.STATE)
        late = home.written_since()
        if late is not None:
            raise Fault(Reason.UNWRITTEN, f"{late} was still written after the call had returned")
        say_what_was_done(examined, self._memory, self._policy, calls=3)
        self._blame.compare(first, others, examined, home)
        self._repeat(first, examined, home)
        self._beside_other_callers(first, examined, home)
        self._look_closer(first, examined, home)
        self._with_other_values(first, examined, home)
        self._with_threads(first, examined, home)
        self._look_for_leaks(examined, home, grew)
        return examined

    def _answers_beside_others(self, first: Answer, places: Sequence[Place]) -> tuple[list[OtherAnswer], bool]:
        """Answers other than the first in the situations that follow, and whether the heap grew meanwhile.

        Whatever Python keeps is made before, and answers that are the same are dropped at once, so that a heap that
        grew is the library's.
        """
        situated = list(zip((SECOND, THIRD), places, strict=False))
        for situation, place in situated:
            place.fill(situation.filling, self._memory.values)
        others = []
        with no_collector():
            before = heap_bytes()
            with self._subject.disturbed():
                for situation, place in situated:
                    with garbage(situation) as taken:
                        answer = self._calls.called(place)
                    before = None if before is None else before + taken()
                    if not first.is_same(answer):
                        others.append(OtherAnswer(answer, situation, place))
                    del answer  # else the last one is what the heap grew by
            after = heap_bytes()
        return others, before is not None and after is not None and after > before

    def _examine_middle(self, places: Sequence[Place]) -> Examined:
        home = places[0]
        first = self._calls.answer(_ALONE, home)
        examined = Examined(outputs=first.outputs)
        others, _ = self._answers_beside_others(first, places[1:])
        say_what_was_done(examined, self._memory, self._policy, calls=2)
        self._blame.compare(first, others, examined, home)
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
                self._blame.require_written(place)
            examined = Examined(outputs=outputs)
            examined.checks += checks_of_one_call(self._policy, why)
            self._with_threads(Answer(outputs), examined, place)
        return examined

    def _repeat(self, first: Answer, examined: Examined, home: Place, how: str = "in a repeated call") -> None:
        """Call tensors that are worth several threads again: a race shows itself now and then."""
        if self._memory.most_elements < _PARALLEL_ELEMENTS:
            return
        began = perf_counter()
        home.fill(FIRST.filling, self._memory.values)
        count = 0
        while count < _AT_ANY_LOAD or perf_counter() < began + (
            _LEAST_REPEATS_S if count < _LEAST_REPEATS else _REPEATS_S
        ):
            if count == _REPEATS:
                break
            if count and not home.is_restored:
                home.fill(FIRST.filling, self._memory.values)
            count += 1
            answer = self._calls.called(home)
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
        place = self._memory.place(self._policy.at(ELSEWHERE))
        place.fill(FIRST.filling, self._calls.other_values)
        pointers = self._memory.pointers(place)
        with suppress(StatusError), self._memory.watched(home, place), self._subject.apart(pointers) as call:
            theirs = Answer(place.collect())
            place.fill(FIRST.filling, self._calls.other_values)
            how = "while another thread called it too"
            began = perf_counter()
            count = 0
            with other_caller(call):
                while count < _BESIDE_OTHERS and (count < _AT_ANY_LOAD or perf_counter() < began + _BESIDE_OTHERS_S):
                    count += 1
                    home.fill(FIRST.filling, self._memory.values)
                    answer = self._called_beside(home)
                    if not first.is_same(answer):
                        examined.add(answer, how, Reason.STATE)
            examined.done("callers at once", f"{count} calls beside those of another thread")
            if not theirs.is_same(Answer(place.collect())):
                detail = "the other of two threads that called at the same time got other bits than alone"
                examined.note("same bits for two callers", detail)

    def _with_other_values(self, first: Answer, examined: Examined, home: Place) -> None:
        """Change one input after the other where the first call of all had the values of the case: what a library keeps
        of that is right in every call of these values, and wrong in others. Whoever judges says what came of it."""
        if not self._policy.calls_often or examined.further:
            return
        for key, name in self._memory.inputs_as_given().items():
            other = self._calls.other_values[key]
            if other.tobytes() == self._memory.values[key].tobytes():
                continue
            home.fill(FIRST.filling, {**self._memory.values, key: other})
            try:
                answer = self._calls.called(home)
            except StatusError as error:
                examined.impossible("other values", f"input {name}: the library refuses others: {error}")
            else:
                examined.add_of_other_values(answer, name, other, first)

    def _called_beside(self, home: Place) -> Answer:
        """Raises:
        Fault: STATE if the library refuses what it takes alone.
        """
        try:
            return self._calls.called(home)
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
                    answer = self._calls.answer(_ALONE, place)
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
            why = "the heap is not glibc's, Python's own objects are in it, or it keeps hundreds of free blocks"
            examined.impossible("leaks", why)
            return
        if grew or self._policy.counts_leaks:
            home.fill(FIRST.filling, self._memory.values)
            pointers = self._memory.pointers(home)
            require_no_leak(self._subject, lambda: self._call(pointers))
        how = "calls were counted" if grew or self._policy.counts_leaks else "the heap did not grow in two calls"
        examined.done("leaks", how)

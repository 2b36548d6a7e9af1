"""How often a case is called and under which circumstances."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from time import perf_counter

from optest.clib.ffi.calls import StatusError
from optest.clib.library.places import Filling, Place
from optest.clib.probing.call_conditions import FIRST, SECOND, THIRD, Before, ConditionedCalls, OtherAnswer, garbage
from optest.clib.probing.extra_probes import ExtraProbes, has_nan, other_caller
from optest.clib.probing.policy import ALIGNED, ELSEWHERE, ONE_CALL_ASKED, ThreadCounts
from optest.clib.probing.results import Answer, ProbeResult
from optest.clib.probing.side_effects import require_no_leak
from optest.memory import heap_garbage
from optest.memory.heap import heap_bytes
from optest.spec import Fault, Reason
from optest.timing import no_collector

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


class CaseProbe:
    """Calls one case again and again and finds out on what its answer depends."""

    def __init__(self, calls: ConditionedCalls, threads: ThreadCounts | None) -> None:
        self._memory, self._subject, self._policy = calls.memory, calls.subject, calls.policy
        self._threads = threads
        self._calls = calls

    def run(self) -> ProbeResult:
        """Call as often as the size of the case allows.

        Raises:
            Fault: for whatever the memory or equal bits show to be wrong.
            StatusError: if the library refuses.
        """
        nbytes = self._memory.nbytes
        if self._policy.is_brief:
            return self._call_once(ONE_CALL_ASKED)
        if nbytes > _MIDDLE_BYTES:
            return self._call_once(f"one call above {_MIDDLE_BYTES >> 20} MiB")
        places = [self._memory.place(where) for where in self._policy.places]
        with self._memory.watched(*places):
            is_small = nbytes <= _SMALL_BYTES
            return self._call_in_turns(places if is_small else places[:2], is_small=is_small)

    def blame(self) -> None:
        """Ask a small case again whose answer was wrong.

        Raises:
            Fault: for heap memory that the answer depends on, which may have held the same in every call.
        """
        if self._memory.nbytes <= _SMALL_BYTES and heap_garbage.is_possible():
            home = self._memory.place(self._policy.places[0])
            with self._memory.watched(home, self._memory.place(self._policy.at(ALIGNED))):
                self._calls.require_same_in_other_heap(home)

    def _call_in_turns(self, places: Sequence[Place], *, is_small: bool) -> ProbeResult:
        """One call at each place, each in other conditions, and what the size of the case allows beside them."""
        home = places[0]
        # What a library keeps by address is not to know the right values of the place where other ones come first.
        very_first = self._calls.answer(_ALONE, places[-1]) if is_small and self._policy.calls_often else None
        first = self._calls.answer(FIRST if is_small else _ALONE, home)
        result = ProbeResult(outputs=first.outputs)
        others, grew = self._answers_that_differ(first, places[1:])
        if very_first is not None and not first.is_same(very_first):
            there = [other.answer for other in others if other.place is places[-1]]
            if not any(very_first.is_same(answer) for answer in there):  # else it is the place, and no first call
                result.add(very_first, "in the first call of all", Reason.STATE)
        late = home.written_since()
        if late is not None:
            raise Fault(Reason.UNWRITTEN, f"{late} was still written after the call had returned")
        self._policy.say_what_was_done(result, self._memory, calls=len(places))
        self._calls.explain_others(first, others, result, home)
        self._repeat(first, result, home)
        self._beside_other_callers(first, result, home)
        if is_small:
            self._extra_probes(first, result, home)
            self._with_other_values(first, result, home)
        self._with_threads(first, result, home)
        if is_small:
            self._look_for_leaks(result, home, grew)
        else:
            result.impossible("leaks", f"not looked for above {_SMALL_BYTES >> 20} MiB")
        return result

    def _answers_that_differ(self, first: Answer, places: Sequence[Place]) -> tuple[list[OtherAnswer], bool]:
        """Answers other than the first in the conditions that follow, and whether the heap grew meanwhile.

        Whatever Python keeps is made before, and answers that are the same are dropped at once, so that a heap that
        grew is the library's.
        """
        with_places = list(zip((SECOND, THIRD), places, strict=False))
        for conditions, place in with_places:
            place.fill(conditions.filling, self._memory.values)
        others = []
        with self._subject.with_other_descriptors():
            pass
        with no_collector():
            before = heap_bytes()
            with self._subject.with_other_descriptors():
                for conditions, place in with_places:
                    with garbage(conditions) as taken:
                        answer = self._calls.called(place)
                    before = None if before is None else before + taken()
                    if not first.is_same(answer):
                        others.append(OtherAnswer(answer, conditions, place))
                    del answer  # else the last one is what the heap grew by
            after = heap_bytes()
        return others, before is not None and after is not None and after > before

    def _call_once(self, why: str) -> ProbeResult:
        """One call, ``why`` no more; others only where an element holds what it held before, and for threads."""
        place = self._memory.place(self._policy.place_of_one_call)
        with self._memory.watched(place):
            place.fill(Filling(), self._memory.values)
            self._calls.call(self._memory.pointers(place))
            is_written = not place.has_untouched(self._memory.values)
            outputs = place.collect(copied=not is_written or bool(self._policy.threads))
            if not is_written:
                self._calls.require_written(place)
            result = ProbeResult(outputs=outputs)
            self._policy.say_what_one_call_shows(result, why)
            self._with_threads(Answer(outputs), result, place)
        return result

    def _repeat(self, first: Answer, result: ProbeResult, home: Place, how: str = "in a repeated call") -> None:
        """Call tensors that are worth several threads again: a race shows itself now and then."""
        if self._memory.most_elements < _PARALLEL_ELEMENTS:
            return
        began, count = perf_counter(), 0
        for count, answer in enumerate(islice(self._calls.repeated(home), _REPEATS), 1):
            if not first.is_same(answer):
                result.add(answer, how, Reason.NONDETERMINISTIC)
            limit_s = _LEAST_REPEATS_S if count < _LEAST_REPEATS else _REPEATS_S
            if count >= _AT_ANY_LOAD and perf_counter() >= began + limit_s:
                break
        result.done("races", f"{count} more calls {how.removeprefix('in a repeated call')}".strip())

    def _beside_other_callers(self, first: Answer, result: ProbeResult, home: Place) -> None:
        """Call large tensors while another thread calls with a descriptor, tensors and values of its own."""
        if (
            self._memory.most_elements < _PARALLEL_ELEMENTS
            or not self._policy.has_other_callers
            or not self._subject.has_descriptors
            or result.further
        ):
            return
        place = self._memory.place(self._policy.at(ELSEWHERE))
        place.fill(FIRST.filling, self._calls.other_values)
        pointers = self._memory.pointers(place)
        with suppress(StatusError), self._memory.watched(home, place), self._subject.apart(pointers) as call:
            theirs = Answer(place.collect())
            place.fill(FIRST.filling, self._calls.other_values)
            began, count = perf_counter(), 0
            with other_caller(call):
                while count < _BESIDE_OTHERS and (count < _AT_ANY_LOAD or perf_counter() < began + _BESIDE_OTHERS_S):
                    count += 1
                    answer = self._called_beside(home)
                    if not first.is_same(answer):
                        result.add(answer, "while another thread called it too", Reason.STATE)
            result.done("callers at once", f"{count} calls beside those of another thread")
            if not theirs.is_same(Answer(place.collect())):
                detail = "the other of two threads that called at the same time got other bits than alone"
                result.note("same bits for two callers", detail)

    def _with_other_values(self, first: Answer, result: ProbeResult, home: Place) -> None:
        """Change one input after the other where the first call of all had the values of the case: what a library keeps
        of that is right in every call of these values, and wrong in others. Whoever judges says what came of it."""
        if not self._policy.calls_often or result.further:
            return
        for key, name in self._memory.inputs_as_given().items():
            other = self._calls.other_values[key]
            if other.tobytes() == self._memory.values[key].tobytes():
                continue
            try:
                answer = self._calls.answer_to(self._memory.values_with(key, other), home)
            except StatusError as error:
                result.impossible("other values", f"input {name}: the library refuses others: {error}")
            else:
                result.add_of_other_values(answer, name, other, first)

    def _called_beside(self, home: Place) -> Answer:
        """Raises:
        Fault: STATE if the library refuses what it takes alone.
        """
        try:
            return self._calls.answer_to(self._memory.values, home)
        except StatusError as error:
            message = f"the library refused a call that it takes alone, while another thread called it too: {error}"
            raise Fault(Reason.STATE, message) from None

    def _extra_probes(self, first: Answer, result: ProbeResult, home: Place) -> None:
        """Of cases with NaN, of those without elements, and of a few."""
        extra = ExtraProbes(self._calls, home, first)
        if has_nan(first):
            answer = extra.with_other_nans()
            if answer is not None:
                result.add(answer, "with NaNs of the other sign", None)
            result.done("NaNs of both signs")
        if not all(array.size for array in (*self._memory.values.values(), *first.outputs.values())):
            refused = extra.note_of_null()
            if refused:
                result.note("NULL for tensors without elements", refused)
            else:
                result.done("NULL for tensors without elements")
        if not result.further:
            pairs = extra.require_same_when_shared(but_alike=not self._policy.has_extra_probes)
            if pairs:
                result.done("inputs in one memory", f"{pairs} pair{'' if pairs == 1 else 's'}")
        if self._policy.has_extra_probes and not result.further:
            extra.require_layouts_copied()
        if self._policy.calls_often and not result.further:
            extra.require_same_after_many()
            result.done("many calls")

    def _with_threads(self, first: Answer, result: ProbeResult, home: Place) -> None:
        """The same with every number of threads that was asked for."""
        threads = self._threads
        if threads is None:
            return
        if not threads.means:
            why = "the mapping names no variable under `threads`, and the library has no function to set their number"
            result.impossible("threads", why)
            return
        for count in self._policy.threads:
            with threads.set(count), self._subject.renewed():
                self._memory.take_workspace(self._subject.workspace_bytes)
                place = self._memory.place(home.key[0])
                with self._memory.watched(place):
                    answer = self._calls.answer(_ALONE, place)
                    how = f"with {count} thread{'' if count == 1 else 's'}"
                    if not first.is_same(answer):
                        if self._policy.invariant:
                            message = f"the library is declared invariant, but gives other bits {how}"
                            raise Fault(Reason.NONDETERMINISTIC, message)
                        note = f"other bits {how}; all answers were compared"
                        result.note("same bits with every number of threads", note)
                        result.add(answer, how, None)
                    if count in self._policy.threads[:_REPEATED_COUNTS]:
                        self._repeat(answer, result, place, how)
        result.done("threads", f"{', '.join(map(str, self._policy.threads))} by {threads.means}")

    def _look_for_leaks(self, result: ProbeResult, home: Place, grew: bool) -> None:
        if heap_bytes() is None:
            why = "the heap is not glibc's, Python's own objects are in it, or it keeps hundreds of free blocks"
            result.impossible("leaks", why)
            return
        if grew or self._policy.counts_leaks:
            home.fill(FIRST.filling, self._memory.values)
            pointers = self._memory.pointers(home)
            require_no_leak(self._subject, lambda: self._calls.call(pointers))
        how = "calls were counted" if grew or self._policy.counts_leaks else "the heap did not grow in two calls"
        result.done("leaks", how)

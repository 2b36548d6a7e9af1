"""Number and conditions of the calls of one case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from time import perf_counter
from typing import Any

from optest.clib.ffi.calls import StatusError
from optest.clib.ffi.libraries import Library
from optest.clib.probing.call_conditions import (
    FIRST,
    HEAP,
    SECOND,
    THIRD,
    UNPRECEDED,
    ConditionedCalls,
    DifferentCall,
    garbage,
)
from optest.clib.probing.extra_probes import ExtraProbes, has_nan, other_caller
from optest.clib.probing.policy import ALIGNED, ELSEWHERE, ONE_CALL_REQUESTED, CallOutputs, ProbeResult
from optest.clib.probing.side_effects import require_no_leak
from optest.memory.buffer_sets import BufferSet, Filling
from optest.memory.glibc import has_glibc_malloc
from optest.memory.heap import heap_bytes
from optest.settings import variables_set
from optest.spec import Fault, Reason
from optest.timing import no_collector

# Up to this size a case is called under every condition.
_SMALL_BYTES = 1 << 20

# Up to this size a case is called twice, above once: a second call would cost more than comparing the outputs.
_MIDDLE_BYTES = 1 << 24

# With fewer elements no library splits its work among threads.
_PARALLEL_ELEMENTS = 4096

_REPEATS = 60
_REPEATS_S = 0.04
_MIN_REPEATS = 10
_MIN_REPEATS_S = 0.3
# Calls that are made even if this process got no processor time at all.
_AT_ANY_LOAD = 3

# Numbers of threads for which a call is repeated; more would only find faults of splitting.
_REPEATED_COUNTS = 3

_CONCURRENT = 30
_CONCURRENT_S = 0.1


# Functions of common runtimes: the setter of the number of threads and its getter.
_KNOWN_FUNCTIONS = {
    "openblas_set_num_threads": "openblas_get_num_threads",
    "omp_set_num_threads": "omp_get_max_threads",
    "MKL_Set_Num_Threads": "MKL_Get_Max_Threads",
}


class ThreadCounts:
    """Sets a library's number of threads, by functions and by environment variables that it reads at each call."""

    def __init__(self, functions: Sequence[str], variables: Sequence[str], library: Library) -> None:
        """Find the setters: ``functions`` of the mapping, and those of known runtimes that the library exports."""

        def symbol(name: str) -> Any:
            return library.symbol(name) if name and library.has(name) else None

        names = (*functions, *_KNOWN_FUNCTIONS)
        self._functions = {name: function for name in names if (function := symbol(name)) is not None}
        getters = {name: symbol(_KNOWN_FUNCTIONS.get(name, "")) for name in self._functions}
        # 1 without a getter.
        self._counts = {name: getters[name]() if getters[name] is not None else 1 for name in self._functions}
        self._variables = tuple(variables)

    @property
    def setter_names(self) -> str:
        """Names of the functions and variables that set the number; may be empty."""
        return ", ".join((*self._functions, *self._variables))

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Set the number of threads within the block; then reset functions to their initial number, or 1."""
        with variables_set(dict.fromkeys(self._variables, str(count))):
            for function in self._functions.values():
                function(count)
            try:
                yield
            finally:
                for name, function in self._functions.items():
                    function(self._counts[name])


class CaseProbe:
    """Calls one case repeatedly and determines whether anything but the input values affects its outputs."""

    def __init__(self, calls: ConditionedCalls, threads: ThreadCounts | None) -> None:
        self._memory, self._subject, self._policy = calls.memory, calls.subject, calls.policy
        self._threads = threads
        self._calls = calls

    def run(self) -> ProbeResult:
        """Call as often as the size of the case allows; raise Fault for a fault, StatusError for a refusal."""
        nbytes = self._memory.nbytes
        if self._policy.is_brief:
            return self._call_once(ONE_CALL_REQUESTED)
        if nbytes > _MIDDLE_BYTES:
            return self._call_once(f"only one call above {_MIDDLE_BYTES >> 20} MiB")
        places = [self._memory.place(where) for where in self._policy.places]
        with self._memory.watched(*places):
            is_small = nbytes <= _SMALL_BYTES
            return self._probe_at(places if is_small else places[:2], is_small=is_small)

    def require_heap_independence(self) -> None:
        """Raise STATE if a small case, whose outputs were wrong, depends on the content of heap memory."""
        # The heap may have had the same content in every call before.
        if self._memory.nbytes <= _SMALL_BYTES and has_glibc_malloc():
            home = self._memory.place(self._policy.places[0])
            with self._memory.watched(home, self._memory.place(self._policy.at(ALIGNED))):
                self._calls.require_independence(HEAP, home)

    def _probe_at(self, places: Sequence[BufferSet], *, is_small: bool) -> ProbeResult:
        """Call once in each set of buffers, under different conditions; then run the probes that the size allows."""
        home = places[0]
        # A library may cache by address: the first call of all has the right values where later calls have others.
        very_first = self._calls.call(UNPRECEDED, places[-1]) if is_small and self._policy.calls_often else None
        first = self._calls.call(FIRST if is_small else UNPRECEDED, home)
        result = ProbeResult(outputs=first.outputs)
        others, heap_grew = self._call_under_other_conditions(first, places[1:])
        if very_first is not None and not first.is_same(very_first):
            at_place = [other.outputs for other in others if other.place is places[-1]]
            # Otherwise the place makes the difference, not that it was the first call.
            if not any(very_first.is_same(answer) for answer in at_place):
                result.add(very_first, "in the first call of all", Reason.STATE)
        late_write = home.written_since()
        if late_write is not None:
            message = f"{late_write} was written after the call had returned; join all threads before returning"
            raise Fault(Reason.UNWRITTEN, message)
        self._policy.report_probes(result, self._memory, calls=len(places))
        self._calls.explain_differences(first, others, result, home)
        self._repeat(first, result, home)
        self._call_concurrently(first, result, home)
        if is_small:
            self._run_extra_probes(first, result, home)
            self._call_with_other_values(first, result, home)
        self._call_with_threads(first, result, home)
        if is_small:
            self._check_leaks(result, home, heap_grew)
        else:
            result.impossible("leaks", f"not checked above {_SMALL_BYTES >> 20} MiB")
        return result

    def _call_under_other_conditions(
        self, first: CallOutputs, places: Sequence[BufferSet]
    ) -> tuple[list[DifferentCall], bool]:
        """Return outputs that differ from the first call's, and whether the heap grew during these calls."""
        # Python's own objects are created before the calls, and equal outputs are dropped at once, so that only the
        # library makes the heap grow.
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
                        answer = self._calls.call_filled(place)
                    before = None if before is None else before + taken()
                    if not first.is_same(answer):
                        others.append(DifferentCall(answer, conditions, place))
                    del answer  # the last one would count as growth of the heap
            after = heap_bytes()
        return others, before is not None and after is not None and after > before

    def _call_once(self, why: str) -> ProbeResult:
        """Call once, for the reason ``why``; again only if an element may be unwritten, and for numbers of threads."""
        place = self._memory.place(self._policy.place_of_one_call)
        with self._memory.watched(place):
            place.fill(Filling(), self._memory.values)
            self._calls.run(self._memory.pointers(place))
            is_written = not place.has_untouched(self._memory.values)
            # further calls would overwrite them
            outputs = place.collect(copied=not is_written or bool(self._policy.threads))
            if not is_written:
                self._calls.require_written(place)
            result = ProbeResult(outputs=outputs)
            self._policy.report_single_call(result, why)
            self._call_with_threads(CallOutputs(outputs), result, place)
        return result

    def _repeat(
        self, first: CallOutputs, result: ProbeResult, home: BufferSet, how: str = "in a repeated call"
    ) -> None:
        """Repeat the call for tensors that are large enough for several threads, to find races."""
        if self._memory.most_elements < _PARALLEL_ELEMENTS:
            return
        start, count = perf_counter(), 0
        for count, answer in enumerate(islice(self._calls.repeat(home), _REPEATS), 1):
            if not first.is_same(answer):
                result.add(answer, how, Reason.NONDETERMINISTIC)
            limit_s = _MIN_REPEATS_S if count < _MIN_REPEATS else _REPEATS_S
            if count >= _AT_ANY_LOAD and perf_counter() >= start + limit_s:
                break
        result.done("races", f"{count} more calls {how.removeprefix('in a repeated call')}".strip())

    def _call_concurrently(self, first: CallOutputs, result: ProbeResult, home: BufferSet) -> None:
        """Call large tensors while another thread calls with its own descriptor, tensors and values."""
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
        with suppress(StatusError), self._memory.watched(home, place), self._subject.separate_call(pointers) as call:
            other_outputs = CallOutputs(place.collect())
            place.fill(FIRST.filling, self._calls.other_values)
            start, count = perf_counter(), 0
            with other_caller(call):
                while count < _CONCURRENT and (count < _AT_ANY_LOAD or perf_counter() < start + _CONCURRENT_S):
                    count += 1
                    answer = self._call_beside_other_caller(home)
                    if not first.is_same(answer):
                        result.add(answer, "while another thread called it, too", Reason.STATE)
            result.done("callers at once", f"{count} calls while another thread called")
            if not other_outputs.is_same(CallOutputs(place.collect())):
                detail = "the second thread got other bits than in its call before the concurrent ones"
                result.note("same bits for two callers", detail)

    def _call_with_other_values(self, first: CallOutputs, result: ProbeResult, home: BufferSet) -> None:
        """Change one input at a time and add the outputs, which the caller of the probe compares."""
        # What a library cached in the first call of all is right for these values and wrong for others.
        if not self._policy.calls_often or result.further:
            return
        for key, name in self._memory.inputs_as_given().items():
            values = self._calls.other_values[key]
            if values.tobytes() == self._memory.values[key].tobytes():  # nothing would change
                continue
            try:
                answer = self._calls.call(UNPRECEDED, home, self._memory.values_with(key, values))
            except StatusError as error:
                result.impossible("other values", f"input {name}: the library refuses other values: {error}")
            else:
                result.add_of_other_values(answer, name, values, first)

    def _call_beside_other_caller(self, home: BufferSet) -> CallOutputs:
        """Call with the case's values; raise STATE if the library now refuses these accepted values."""
        try:
            return self._calls.call(UNPRECEDED, home)
        except StatusError as error:
            message = f"the library refused a call only while another thread called it, too: {error}"
            raise Fault(Reason.STATE, message) from None

    def _run_extra_probes(self, first: CallOutputs, result: ProbeResult, home: BufferSet) -> None:
        """Run the extra probes that the case needs: with NaN, without elements, and those of a few cases by policy."""
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

    def _call_with_threads(self, first: CallOutputs, result: ProbeResult, home: BufferSet) -> None:
        """Call with each requested number of threads and compare with the first outputs."""
        threads = self._threads
        if threads is None:
            return
        if not threads.setter_names:
            why = "the mapping names no variable under `threads`, and the library has no function to set their number"
            result.impossible("threads", why)
            return
        for count in self._policy.threads:
            with threads.set(count), self._subject.renewed():
                # its size may depend on the number of threads
                self._memory.take_workspace(self._subject.workspace_bytes)
                place = self._memory.place(home.key[0])
                with self._memory.watched(place):
                    answer = self._calls.call(UNPRECEDED, place)
                    how = f"with {count} thread{'' if count == 1 else 's'}"
                    if not first.is_same(answer):
                        if self._policy.invariant:
                            message = f"the library is declared invariant, but returns other bits {how}"
                            raise Fault(Reason.NONDETERMINISTIC, message)
                        note = f"other bits {how}; all outputs were compared"
                        result.note("same bits with every number of threads", note)
                        result.add(answer, how, None)
                    if count in self._policy.threads[:_REPEATED_COUNTS]:
                        self._repeat(answer, result, place, how)
        result.done("threads", f"{', '.join(map(str, self._policy.threads))} by {threads.setter_names}")

    def _check_leaks(self, result: ProbeResult, home: BufferSet, grew: bool) -> None:
        """Count leaks if the heap grew before or the policy requests it; add a check with the result."""
        if heap_bytes() is None:
            why = "the heap is not glibc's, contains Python's own objects, or keeps hundreds of free blocks"
            result.impossible("leaks", why)
        elif grew or self._policy.counts_leaks:
            home.fill(FIRST.filling, self._memory.values)
            pointers = self._memory.pointers(home)
            require_no_leak(self._subject, lambda: self._calls.run(pointers))
            result.done("leaks", "calls were counted")
        else:
            result.done("leaks", "the heap did not grow in two calls")

"""State that a library must leave unchanged: floating-point mode, standard output, heap, process-wide state."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median
from time import sleep
from typing import Any

from optest.clib.library.subject import Subject
from optest.memory.heap import blocks_kept, heap_bytes
from optest.process.float_control import FloatControl
from optest.process.standard_output import Printed
from optest.process.state import ProcessState, count_resources
from optest.spec import Check, CheckState, Fault, Reason
from optest.timing import no_collector

_OUTPUT = "standard output"
_CYCLES = 12
_REPETITIONS = 3
# glibc moves up to seven free blocks of a size into a thread's own store at once, where they count as used: with equal
# blocks that are lost, the heap grows by eight at every eighth, and while free blocks run out by any number. With
# ``GLIBC_TUNABLES=glibc.malloc.tcache_count=16`` it is seventeen at every seventeenth; a block in every second call is
# then one in 34. So repetitions get longer with that number (:func:`_cycles`, :func:`_cycles_long`).
_CYCLES_LONG = 64

# Free blocks run out in fewer than half of these.
_REPETITIONS_LONG = 5

# Caches fill up eventually, and so do malloc's stores if Python takes its objects from them, too (PYTHONMALLOC).
_TIMES_LOST = 3

_WAIT_S = 0.1
# Threads may end by themselves, on a busy machine one at a time.
_ATTEMPTS = 3

# Size of malloc's smallest block: a library cannot lose less.
_MIN_BYTES = 16


class SideEffects:
    """Watches the calls of one case, which run while ``printed`` captures standard output."""

    def __init__(
        self, run: Callable[[Mapping[str, Any]], None], printed: Printed, *, looks_at_process: bool = False
    ) -> None:
        """Store the arguments; ``looks_at_process`` compares process-wide state, which takes as long as many a case."""
        self._run = run
        self._printed = printed
        self._process = ProcessState() if looks_at_process else None
        self._float = FloatControl()
        self._calls = 0
        self._printing_calls = 0
        self._size = 0

    def call(self, pointers: Mapping[str, Any]) -> None:
        """Call the subject; raise STATE if it changed the floating-point mode, which is then restored."""
        self._run(pointers)
        self._calls += 1
        size = self._printed.mark()
        self._printing_calls += size > self._size
        self._size = size
        float_mode = self._float.changed()
        if float_mode:
            message = f"the library changed the floating-point mode: {float_mode}; it was restored"
            raise Fault(Reason.STATE, message, details={"float_mode": float_mode})

    @property
    def has_printed(self) -> bool:
        return self._printing_calls > 0

    def checks(self) -> tuple[Check, ...]:
        """Return the checks after all calls; raise STATE if every call printed or process-wide state changed."""
        changes = [] if self._process is None else self._process.changes()
        harmful = [f"{_OUTPUT}: it was closed or replaced"] if self._printed.was_taken else []
        harmful += [change.said for change in changes if change.is_harmful]
        if harmful:
            message = f"the library changed process-wide state: {'; '.join(harmful)}; it was restored"
            raise Fault(Reason.STATE, message, details={"process": harmful})
        text = self._printed.text()
        if text and self._printing_calls == self._calls:
            printed = "\n".join(dict.fromkeys(text.strip().split("\n")))[:200]  # every call prints the same lines
            message = f"every call printed to standard output: {printed!r}"
            raise Fault(Reason.STATE, message, details={"printed": printed})
        noted = "; ".join(change.said for change in changes)
        state = [Check(name="state of the process", state=CheckState.NOTE, detail=noted)] if noted else []
        mode = CheckState.DONE if FloatControl.is_possible() else CheckState.NOT_POSSIBLE
        output = Check(name=_OUTPUT, state=CheckState.DONE)
        if text:
            output = Check(name=_OUTPUT, state=CheckState.NOTE, detail=f"printed: {text.strip()[:500]}")
        return *state, Check(name="floating-point mode", state=mode), output


def require_no_leak(subject: Subject, call: Callable[[], None]) -> None:
    """Create, call and destroy a descriptor repeatedly; raise LEAK if heap, files or threads grow in every cycle."""
    # A cache that is filled once, or a pool that grows to its size, is no leak: the heap has to grow in every
    # repetition, by at least malloc's smallest block for each cycle.

    def cycle() -> None:
        with subject.renewed():
            call()

    lost = _bytes_lost_or_fault(cycle, "calls, each with its own descriptor if the library has any,")
    if not lost:
        return
    by_call = _bytes_lost(call)
    is_of_call = by_call or not subject.has_descriptors
    culprit = "each call" if is_of_call else "each operator descriptor, created and destroyed,"
    count = by_call or lost
    raise Fault(Reason.LEAK, f"{culprit} loses {count} bytes of the heap", details={"bytes": count})


def require_no_leak_of_refusals(refused: Callable[[], None]) -> None:
    """Repeat a refused call; raise LEAK if the heap, open files or threads grow in every call."""
    lost = _bytes_lost_or_fault(refused, "refused calls")
    if lost:
        message = f"each refused call loses {lost} bytes of the heap"
        raise Fault(Reason.LEAK, message, details={"bytes": lost})


def _bytes_lost_or_fault(cycle: Callable[[], None], calls: str) -> int:
    """Return the bytes of the heap that every cycle loses, 0 for none; raise LEAK for files or threads that remain."""
    # Files that garbage holds may be closed at any moment, which would hide as many that remain.
    gc.collect()
    before = count_resources()
    may_grow = _heap_may_grow(cycle)
    _require_none_left(before, calls)
    return _bytes_lost(cycle) if may_grow else 0


def _require_none_left(before: Mapping[str, int], calls: str) -> None:
    """Raise LEAK if files or threads increased by one per cycle; wait while their number still falls."""
    cycles = _REPETITIONS * _cycles()
    increase, attempts = _increase_since(before), _ATTEMPTS
    while attempts and any(count >= cycles for count in increase.values()):
        sleep(_WAIT_S)
        current = _increase_since(before)
        attempts = _ATTEMPTS if any(current[resource] < count for resource, count in increase.items()) else attempts - 1
        increase = current
    for resource, count in increase.items():
        if count >= cycles:
            message = f"{cycles} {calls} left {count} {resource}"
            raise Fault(Reason.LEAK, message, details={resource: count})


def _increase_since(before: Mapping[str, int]) -> dict[str, int]:
    return {resource: count - before[resource] for resource, count in count_resources().items()}


def _heap_may_grow(cycle: Callable[[], None]) -> bool:
    """Return whether the heap grew in any of the short repetitions; all of them are run."""
    cycle()
    # The collector would free blocks for the library, and hide a loss.
    with no_collector():
        # sum, not any: all repetitions have to run
        return sum(_growth(cycle, _cycles()) > 0 for _ in range(_REPETITIONS)) > 0


def _bytes_lost(cycle: Callable[[], None]) -> int:
    """Return the median of the bytes that a cycle loses, measured last; 0 once a measurement shows no loss."""
    by_cycle = 0
    for _ in range(_TIMES_LOST):
        cycle()
        with no_collector():
            grown = [_growth(cycle, _cycles_long()) for _ in range(_REPETITIONS_LONG)]
        by_cycle = int(median(grown)) // _cycles_long()  # not the mean: free blocks run out at any moment
        if min(grown) <= 0 or by_cycle < _MIN_BYTES:
            return 0
    return by_cycle


def _cycles() -> int:
    """Return so many cycles that a block lost in every second call uses up a thread's store of free blocks."""
    return max(_CYCLES, -(-2 * (blocks_kept() + 2) // _REPETITIONS))  # rounded up


def _cycles_long() -> int:
    """Return a multiple of the calls after which the heap grows again, by a block in each or in every second call."""
    step = 4 * (blocks_kept() + 1)
    return step * -(-_CYCLES_LONG // step)


def _growth(cycle: Callable[[], None], cycles: int) -> int:
    before = heap_bytes() or 0
    for _ in range(cycles):
        cycle()
    return (heap_bytes() or 0) - before

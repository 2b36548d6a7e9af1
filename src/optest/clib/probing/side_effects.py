"""What a library must leave as it was in the process that calls it: floating-point mode, standard output, the heap,
and what a process has one of for all code in it (``process/state``).
"""

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
from optest.process.state import ProcessState, counted
from optest.spec import Check, CheckState, Fault, Reason
from optest.timing import no_collector

_OUTPUT = "standard output"
_CYCLES = 12
_ROUNDS = 3
_CYCLES_LONG = 64
"""glibc moves up to seven free blocks of a size into a thread's own store at once, where they count as used: of equal
blocks that are lost the heap grows by eight at every eighth, and while it runs out of free ones by any number. With
``GLIBC_TUNABLES=glibc.malloc.tcache_count=16`` it is seventeen at every seventeenth, of which a block in every second
call is one in 34. So rounds get longer with that number (:func:`_cycles`, :func:`_cycles_long`)."""

_ROUNDS_LONG = 5
"""Those in which it runs out are fewer than half."""

_TIMES_LOST = 3
"""A cache fills up at last, and so do malloc's stores where Python takes its objects from them too (PYTHONMALLOC)."""

_WHILE_S = 0.1
_LOOKS = 3
"""For threads that end by themselves, on a busy machine one by one."""

_LEAST_BYTES = 16
"""Less than malloc's smallest piece a library cannot lose."""


class SideEffects:
    """Watches the calls of one case, which are made while ``printed`` catches standard output."""

    def __init__(
        self, run: Callable[[Mapping[str, Any]], None], printed: Printed, *, looks_at_process: bool = False
    ) -> None:
        """``looks_at_process`` compares what the process has one of, which takes as long as many a case."""
        self._run = run
        self._printed = printed
        self._process = ProcessState() if looks_at_process else None
        self._float = FloatControl()
        self._calls = 0
        self._printing_calls = 0
        self._size = 0

    def call(self, pointers: Mapping[str, Any]) -> None:
        """Call, and look at what the call left behind.

        Raises:
            Fault: STATE for another floating-point mode.
        """
        self._run(pointers)
        self._calls += 1
        size = self._printed.mark()
        self._printing_calls += size > self._size
        self._size = size
        left = self._float.changed()
        if left:
            message = f"the library left the processor in another mode: {left}; it was put back"
            raise Fault(Reason.STATE, message, details={"float_mode": left})

    @property
    def has_printed(self) -> bool:
        return self._printing_calls > 0

    def checks(self) -> tuple[Check, ...]:
        """What was found, when the calls are over and standard output is given back.

        Raises:
            Fault: STATE for a library that prints in every call, or that changed what all code of a process shares.
        """
        changes = [] if self._process is None else self._process.changes()
        harmful = [f"{_OUTPUT}: it was closed, or is another file"] if self._printed.was_taken else []
        harmful += [each.said for each in changes if each.is_harmful]
        if harmful:
            message = f"the library changed what all code of the process shares: {'; '.join(harmful)}; it was put back"
            raise Fault(Reason.STATE, message, details={"process": harmful})
        text = self._printed.text()
        if text and self._printing_calls == self._calls:
            printed = "\n".join(dict.fromkeys(text.strip().split("\n")))[:200]
            message = f"every call printed to standard output: {printed!r}"
            raise Fault(Reason.STATE, message, details={"printed": printed})
        noted = "; ".join(each.said for each in changes)
        state = [Check(name="state of the process", state=CheckState.NOTE, detail=noted)] if noted else []
        mode = CheckState.DONE if FloatControl.is_possible() else CheckState.NOT_POSSIBLE
        output = Check(name=_OUTPUT, state=CheckState.DONE)
        if text:
            output = Check(name=_OUTPUT, state=CheckState.NOTE, detail=f"printed: {text.strip()[:500]}")
        return *state, Check(name="floating-point mode", state=mode), output


def require_no_leak(subject: Subject, call: Callable[[], None]) -> None:
    """Make, use and end the descriptor again and again while the heap is watched.

    It has to grow in every round, and for each cycle by what malloc's smallest piece takes: a cache that is filled
    once, or a pool that grows to its size, is no leak.

    Raises:
        Fault: LEAK, with bytes; or with files or threads, if there is one more for every cycle.
    """

    def cycle() -> None:
        with subject.renewed():
            call()

    lost = _lost_or_left(cycle, "calls, each with a descriptor of its own where there are any,")
    if not lost:
        return
    by_call = _lost(call)
    what = "each call" if by_call or not subject.has_descriptors else "each operator descriptor, made and destroyed,"
    count = by_call or lost
    raise Fault(Reason.LEAK, f"{what} loses {count} bytes of the heap", details={"bytes": count})


def require_no_leak_of_refusals(refused: Callable[[], None]) -> None:
    """Ask for what is refused again and again while the heap is watched.

    Raises:
        Fault: LEAK, with bytes; or with files or threads, if there is one more for every call.
    """
    lost = _lost_or_left(refused, "refused calls")
    if lost:
        message = f"each call that is refused loses {lost} bytes of the heap"
        raise Fault(Reason.LEAK, message, details={"bytes": lost})


def _lost_or_left(cycle: Callable[[], None], calls: str) -> int:
    """Bytes of the heap that every cycle loses, 0 for none.

    Raises:
        Fault: LEAK for files or threads that are left.
    """
    gc.collect()  # files that garbage holds are closed at any moment, and would hide as many that stay
    before = counted()
    may_lose = _may_lose(cycle)
    _require_none_left(before, calls)
    return _lost(cycle) if may_lose else 0


def _require_none_left(before: Mapping[str, int], calls: str) -> None:
    """Raise for files or threads that have become more by one for each cycle, when they get no fewer any more."""
    cycles = _ROUNDS * _cycles()
    more, looks = _more_than(before), _LOOKS
    while looks and any(count >= cycles for count in more.values()):
        sleep(_WHILE_S)
        now = _more_than(before)
        looks = _LOOKS if any(now[what] < count for what, count in more.items()) else looks - 1
        more = now
    for what, count in more.items():
        if count >= cycles:
            message = f"{cycles} {calls} left {count} {what}"
            raise Fault(Reason.LEAK, message, details={what: count})


def _more_than(before: Mapping[str, int]) -> dict[str, int]:
    return {what: count - before[what] for what, count in counted().items()}


def _may_lose(cycle: Callable[[], None]) -> bool:
    """Whether the heap grew in any round, which is soon seen; all of them are made. The collector would give a library
    blocks first, and what it loses would not show."""
    cycle()
    with no_collector():
        return sum(_growth(cycle, _cycles()) > 0 for _ in range(_ROUNDS)) > 0


def _lost(cycle: Callable[[], None]) -> int:
    """Bytes that every cycle loses, 0 for none; those of the last time, when everything has settled."""
    by_cycle = 0
    for _ in range(_TIMES_LOST):
        cycle()
        with no_collector():
            grown = [_growth(cycle, _cycles_long()) for _ in range(_ROUNDS_LONG)]
        by_cycle = int(median(grown)) // _cycles_long()
        if min(grown) <= 0 or by_cycle < _LEAST_BYTES:
            return 0
    return by_cycle


def _cycles() -> int:
    """So many that in all rounds together a block in every second call uses up what a thread keeps."""
    return max(_CYCLES, -(-2 * (blocks_kept() + 2) // _ROUNDS))


def _cycles_long() -> int:
    """A multiple of the calls after which the heap grows again, by a block in each or in every second one."""
    step = 4 * (blocks_kept() + 1)
    return step * -(-_CYCLES_LONG // step)


def _growth(cycle: Callable[[], None], cycles: int) -> int:
    before = heap_bytes() or 0
    for _ in range(cycles):
        cycle()
    return (heap_bytes() or 0) - before

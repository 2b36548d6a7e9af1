"""What may be different from call to call and must not matter: memory around, what ran before, who else is alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from optest.clib.ffi.collector import no_collector
from optest.clib.ffi.held import heap_bytes
from optest.clib.library.places import Filling
from optest.memory.heap_garbage import HeapGarbage
from optest.memory.poisons import Poison
from optest.spec import Reason

__all__ = ["FIRST", "OF_HEAP", "SECOND", "SUSPECTS", "THIRD", "Before", "Situation", "Suspect", "garbage"]


FIRST_FILLING = Filling()


class Before(Enum):
    """What was called just before: with other values in the same memory, in other memory, or the same call."""

    OTHER_VALUES = "other values"
    ELSEWHERE = "elsewhere"
    THE_SAME = "the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """``others`` says whether another descriptor of the operator is alive, younger than the one that runs; ``garbage``
    is the byte that fresh and freed heap memory holds, None for what happens to stand there."""

    filling: Filling = FIRST_FILLING
    before: Before = Before.OTHER_VALUES
    others: bool = False
    garbage: int | None = None


_GARBAGE = 0xFF
"""NaN as a float of any width, -1 as an integer."""

_LARGE = 0x5A
"""A large number as a float of any width, which wins every maximum; NaN wins none."""

FIRST = Situation()
SECOND = Situation(
    filling=Filling(outputs=Poison.FF, workspace=0x00, inputs=Poison.HIGH), before=Before.THE_SAME, others=True
)
THIRD = Situation(
    filling=Filling(outputs=Poison.X5A, workspace=_LARGE, inputs=Poison.LOW),
    before=Before.THE_SAME,
    others=True,
    garbage=_GARBAGE,
)
"""Between them every circumstance changes: equal bits in all three are the proof that none of them matters."""


@contextmanager
def garbage(situation: Situation) -> Iterator[Callable[[], int]]:
    """While inside, the heap holds the situation's garbage; what is yielded tells by how much that made it grow."""
    if situation.garbage is None:
        yield lambda: 0
        return
    before = heap_bytes() or 0
    with no_collector():
        HeapGarbage.scribble(situation.garbage)
        grown = (heap_bytes() or 0) - before
        try:
            yield lambda: grown
        finally:
            HeapGarbage.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A situation that differs from its ``base`` in one thing, and what it is called if the result differs too."""

    base: Situation = FIRST
    situation: Situation
    reason: Reason
    what: str


def _with(**filling: object) -> Situation:
    return replace(FIRST, filling=replace(FIRST_FILLING, **filling))  # type: ignore[arg-type]


_OUTPUTS = "what the outputs held before the call"
_INPUTS = "memory outside the elements of the inputs"
_WORKSPACE = "what the workspace held before the call"
_CALLS = "which calls were made before"
OF_HEAP = Suspect(
    situation=replace(FIRST, garbage=_GARBAGE),
    base=replace(FIRST, garbage=0x00),
    reason=Reason.STATE,
    what="what fresh or freed heap memory held",
)
SUSPECTS = (
    OF_HEAP,
    Suspect(situation=_with(outputs=Poison.X5A), reason=Reason.UNWRITTEN, what=_OUTPUTS),
    Suspect(situation=_with(outputs=Poison.FF), reason=Reason.UNWRITTEN, what=_OUTPUTS),
    Suspect(situation=_with(workspace=0x00), reason=Reason.WORKSPACE, what=_WORKSPACE),
    Suspect(situation=_with(workspace=_LARGE), reason=Reason.WORKSPACE, what=_WORKSPACE),
    Suspect(situation=_with(inputs=Poison.HIGH), reason=Reason.READ_OUT_OF_BOUNDS, what=_INPUTS),
    Suspect(situation=_with(inputs=Poison.LOW), reason=Reason.READ_OUT_OF_BOUNDS, what=_INPUTS),
    Suspect(situation=replace(FIRST, before=Before.THE_SAME), reason=Reason.STATE, what=_CALLS),
    Suspect(situation=replace(FIRST, before=Before.ELSEWHERE), reason=Reason.STATE, what=_CALLS),
    Suspect(
        situation=replace(FIRST, others=True),
        reason=Reason.STATE,
        what="which other descriptors are alive, or what became of destroyed ones",
    ),
)

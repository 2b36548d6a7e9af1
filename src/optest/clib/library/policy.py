"""How closely the calls of a case are watched, and where its tensors lie meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from optest.clib.library.places import Where
from optest.memory.regions import Placement

__all__ = ["ALIGNED", "ELSEWHERE", "Policy"]

ALIGNED, ELSEWHERE = Where(), Where(shift=2)
_SHIFTED = Where(shift=1)
_AT_END, _AT_START = Where(placement=Placement.PAGES_END), Where(placement=Placement.PAGES_START)

_PLACES = {
    None: (_SHIFTED, _AT_END, _AT_START),
    "heap": (_SHIFTED, ALIGNED, ELSEWHERE),
    "pages": (_AT_END, _AT_START, _AT_END),
}


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

"""How closely the calls of a case are watched, where its tensors lie and how many threads are used, and what is said of
that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from optest.clib.ffi.libraries import Library
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import Where
from optest.clib.probing.results import ProbeResult
from optest.memory import heap_garbage
from optest.memory.regions import Placement
from optest.settings import variables_set

ANYWHERE = "same bits wherever the tensors lie"
ONE_CALL_ASKED = "not asked: probes: guards"
SAME_BITS = "same bits in a second call"

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
    """``is_brief`` makes one call while nothing is wrong. ``guard`` is heap or pages, None for both in turns;
    ``invariant`` promises equal bits at every address and with every number of ``threads``. ``has_extra_probes`` and
    ``calls_often`` are for few cases only; ``has_other_callers``: several threads may call the library at once.
    """

    is_brief: bool = False
    guard: str | None = None
    invariant: bool = False
    threads: tuple[int, ...] = ()
    has_extra_probes: bool = False
    calls_often: bool = False
    has_other_callers: bool = False
    alignment: int = 1

    @property
    def counts_leaks(self) -> bool:
        """Whether leaks are looked for too where the heap does not seem to grow, since malloc gives small pieces out of
        a store that counts as used."""
        return self.has_extra_probes or self.calls_often

    def at(self, where: Where) -> Where:
        """There, as far as the pointers that the library needs allow it."""
        return where if self.alignment == 1 else replace(where, alignment=self.alignment)

    @property
    def places(self) -> tuple[Where, Where, Where]:
        """Where the three calls of a small case find their tensors: one by alignment, one off it."""
        one, two, three = _PLACES[self.guard]
        return self.at(one), self.at(two), self.at(three)

    @property
    def place_of_one_call(self) -> Where:
        return self.at(_SHIFTED if self.guard == "heap" else _AT_END)

    def _say_guards(self, result: ProbeResult, where: str) -> None:
        result.done("guard zones", f"{where}, and all gaps, of inputs, outputs and workspace")
        result.done("outputs written", "two poisons")
        if self.alignment > 1:
            detail = f"tensors begin at multiples of {self.alignment} bytes alone, as the mapping says"
            result.impossible("other alignments", detail)

    def say_what_was_done(self, result: ProbeResult, memory: CaseMemory, *, calls: int) -> None:
        where = {"heap": "256 bytes on each side", "pages": "forbidden pages"}.get(
            self.guard or "", "256 bytes on each side, then forbidden pages"
        )
        self._say_guards(result, where)
        result.done("nothing else read", f"{calls} calls, {calls} poisons around inputs")
        result.done("workspace", f"{memory.workspace_bytes} bytes, {calls} contents")
        result.done("state", "after other calls, beside other descriptors" if calls > 2 else "beside other descriptors")
        if calls > 2 and heap_garbage.is_possible():
            result.done("heap memory as it was found", "two contents")

    def say_what_one_call_shows(self, result: ProbeResult, why: str) -> None:
        """Of a case that was called once, ``why`` no more."""
        where = "256 bytes on each side" if self.guard == "heap" else "forbidden pages"
        self._say_guards(result, where)
        for name in ("nothing else read", "workspace", "state", SAME_BITS, "leaks"):
            result.impossible(name, why)


_KNOWN_FUNCTIONS = {
    "openblas_set_num_threads": "openblas_get_num_threads",
    "omp_set_num_threads": "omp_get_max_threads",
    "MKL_Set_Num_Threads": "MKL_Get_Max_Threads",
}
"""What sets the number in runtimes that libraries bring along, and what tells it."""


class ThreadCounts:
    """Functions that take the number, and variables that are read whenever a descriptor is made or a call begins."""

    def __init__(self, functions: Sequence[str], variables: Sequence[str], library: Library) -> None:
        """``functions`` are the mapping's own; those of known runtimes are used where the library has them."""

        def symbol(name: str) -> Any:
            return library.symbol(name) if name and library.has(name) else None

        names = (*functions, *_KNOWN_FUNCTIONS)
        self._functions = {name: found for name in names if (found := symbol(name)) is not None}
        getters = {name: symbol(_KNOWN_FUNCTIONS.get(name, "")) for name in self._functions}
        self._counts = {name: getters[name]() if getters[name] is not None else 1 for name in self._functions}
        self._variables = tuple(variables)

    @property
    def means(self) -> str:
        """What sets the number, in words; empty if nothing does."""
        return ", ".join((*self._functions, *self._variables))

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """While inside, the library uses ``count`` threads, as far as it listens."""
        with variables_set(dict.fromkeys(self._variables, str(count))):
            for function in self._functions.values():
                function(count)
            try:
                yield
            finally:
                for name, function in self._functions.items():
                    function(self._counts[name])

"""Policy of a case's probes: placement of tensors, numbers of threads, extent, and the checks reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from optest.clib.ffi.libraries import Library
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import BufferPlacement
from optest.clib.probing.results import ProbeResult
from optest.memory import heap_garbage
from optest.memory.regions import Placement
from optest.settings import variables_set

ANYWHERE = "same bits wherever the tensors lie"
ONE_CALL_REQUESTED = "not run because of probes: guards"
SAME_BITS = "same bits in a second call"

ALIGNED, ELSEWHERE = BufferPlacement(), BufferPlacement(shift=2)
_SHIFTED = BufferPlacement(shift=1)
_AT_END, _AT_START = BufferPlacement(placement=Placement.PAGES_END), BufferPlacement(placement=Placement.PAGES_START)

_PLACES = {
    None: (_SHIFTED, _AT_END, _AT_START),
    "heap": (_SHIFTED, ALIGNED, ELSEWHERE),
    "pages": (_AT_END, _AT_START, _AT_END),
}

_HEAP, _PAGES = "256 bytes on each side", "forbidden pages"
_GUARD_TEXTS = {None: f"{_HEAP}, then {_PAGES}", "heap": _HEAP, "pages": _PAGES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Extent of the probes of one case.

    ``is_brief``: one call as long as nothing is wrong. ``guard``: heap or pages, None for both in turn. ``invariant``:
    the library promises equal bits at every address and with every number of ``threads``. ``has_extra_probes`` and
    ``calls_often`` hold for few cases only. ``has_other_callers``: several threads may call the library at once.
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
        """Whether leaks are counted even if the heap does not seem to grow."""
        # malloc takes small blocks from a store that counts as used.
        return self.has_extra_probes or self.calls_often

    def at(self, where: BufferPlacement) -> BufferPlacement:
        """Return `where` with the alignment of pointers that the library needs."""
        return where if self.alignment == 1 else replace(where, alignment=self.alignment)

    @property
    def places(self) -> tuple[BufferPlacement, BufferPlacement, BufferPlacement]:
        """Places of the tensors in the three calls of a small case: one call by alignment, one off it."""
        first, second, third = _PLACES[self.guard]
        return self.at(first), self.at(second), self.at(third)

    @property
    def place_of_one_call(self) -> BufferPlacement:
        return self.at(_SHIFTED if self.guard == "heap" else _AT_END)

    def _report_guards(self, result: ProbeResult, where: str) -> None:
        result.done("guard zones", f"{where}, and all gaps, of inputs, outputs and workspace")
        result.done("outputs written", "two poisons")
        if self.alignment > 1:
            detail = f"tensors begin only at multiples of {self.alignment} bytes, as the mapping specifies"
            result.impossible("other alignments", detail)

    def report_probes(self, result: ProbeResult, memory: CaseMemory, *, calls: int) -> None:
        """Add the checks of a case that was called several times."""
        self._report_guards(result, _GUARD_TEXTS[self.guard])
        result.done("nothing else read", f"{calls} calls, {calls} poisons around inputs")
        result.done("workspace", f"{memory.workspace_bytes} bytes, {calls} contents")
        result.done("state", "after other calls, " * (calls > 2) + "with other descriptors alive")
        if calls > 2 and heap_garbage.is_possible():
            result.done("heap memory as it was found", "two contents")

    def report_single_call(self, result: ProbeResult, why: str) -> None:
        """Add the checks of a case that was called only once, for the reason ``why``."""
        self._report_guards(result, _GUARD_TEXTS[self.guard or "pages"])
        for name in ("nothing else read", "workspace", "state", SAME_BITS, "leaks"):
            result.impossible(name, why)


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

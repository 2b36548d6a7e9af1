"""Extent of a case's probes: placement of tensors and numbers of threads; their outputs, compared bit by bit, and the
checks reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from optest.backends import ExtraOutput
from optest.clib.library.memory import CaseMemory
from optest.core.further_calls import is_reproducible
from optest.memory.buffer_sets import BufferPlacement
from optest.memory.glibc import has_glibc_malloc
from optest.memory.regions import Placement
from optest.numerics import Array
from optest.spec import Check, CheckState, Reason

_MAX_FURTHER = 8
ANYWHERE = "same bits at every address of the tensors"
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


@dataclass(frozen=True, slots=True)
class CallOutputs:
    """Outputs of one call, by name."""

    outputs: dict[str, Array]

    def is_same(self, other: CallOutputs) -> bool:
        return all(array.tobytes() == other.outputs[name].tobytes() for name, array in self.outputs.items())


def where_different(first: CallOutputs, other: CallOutputs) -> str:
    """Return which element has other bits first: ``element [0, 2] of output y``."""
    for name, array in first.outputs.items():
        if array.tobytes() != other.outputs[name].tobytes():
            where = _bits_differ(array, other.outputs[name]).reshape(np.atleast_1d(array).shape)
            # atleast_1d added a dimension to a scalar
            index = [int(axis[0]) for axis in np.nonzero(where)][: array.ndim]
            return f"element {index} of output {name}"
    return "an output"


def where_reproducibly_different(unchanged: Callable[[], CallOutputs], changed: Callable[[], CallOutputs]) -> str:
    """Return which element differs between two ways to call; empty unless each way reproduces its own outputs."""
    first, other = unchanged(), changed()
    if first.is_same(other) or not is_reproducible(
        lambda: first.is_same(unchanged()), lambda: other.is_same(changed())
    ):
        return ""
    return where_different(first, other)


def _bits_differ(first: Array, other: Array) -> Array:
    """Return a one-dimensional mask of the elements with other bits."""
    size = first.dtype.itemsize
    left, right = (np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (first, other))
    different: Array = (left != right).any(axis=1)
    return different


@dataclass(slots=True, kw_only=True)
class ProbeResult:
    """Outputs of the first call, outputs with other bits, and the checks of the probe."""

    outputs: dict[str, Array]
    further: list[ExtraOutput] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, answer: CallOutputs, how: str, reason: Reason | None) -> None:
        """Keep the outputs of one more call, to be compared with the reference; drop those after the first eight."""
        if len(self.further) < _MAX_FURTHER:  # each is compared with the reference
            self.further.append(ExtraOutput(outputs=answer.outputs, how=how, reason=reason))

    def add_of_other_values(self, answer: CallOutputs, name: str, values: Array, first: CallOutputs) -> None:
        """Add outputs for other values of the input ``name``; as STATE if every element has the first call's bits."""
        kept = sum(int((~_bits_differ(array, answer.outputs[name])).sum()) for name, array in first.outputs.items())
        total = sum(array.size for array in answer.outputs.values())
        how = f"with other values of input {name}" + f" ({kept} of {total} elements as in the first call)" * bool(kept)
        reason = Reason.STATE if kept == total else None  # all as in the first call: the library cached them
        self.further.append(
            ExtraOutput(outputs=answer.outputs, how=how, reason=reason, inputs={name: np.array(values)})
        )

    def note(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOTE, detail))

    def done(self, name: str, detail: str = "") -> None:
        self.checks.append(_check(name, CheckState.DONE, detail))

    def impossible(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOT_POSSIBLE, detail))


# A case has nine checks, the same for most cases; building one takes 2 µs.
@lru_cache(maxsize=512)
def _check(name: str, state: CheckState, detail: str) -> Check:
    return Check(name=name, state=state, detail=detail)


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
        """Return whether leaks are counted even if the heap does not seem to grow."""
        # malloc takes small blocks from a store that counts as used.
        return self.has_extra_probes or self.calls_often

    def at(self, where: BufferPlacement) -> BufferPlacement:
        """Return `where` with the alignment of pointers that the library needs."""
        return where if self.alignment == 1 else replace(where, alignment=self.alignment)

    @property
    def places(self) -> tuple[BufferPlacement, BufferPlacement, BufferPlacement]:
        """Placements of the buffers in the three calls of a small case: one call by alignment, one off it."""
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
        if calls > 2 and has_glibc_malloc():
            result.done("heap memory as it was found", "two contents")

    def report_single_call(self, result: ProbeResult, why: str) -> None:
        """Add the checks of a case that was called only once, for the reason ``why``."""
        self._report_guards(result, _GUARD_TEXTS[self.guard or "pages"])
        for name in ("nothing else read", "workspace", "state", SAME_BITS, "leaks"):
            result.impossible(name, why)

"""What came out of the calls of a case: answers, and what was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from optest.backends import FurtherAnswer
from optest.clib.library.answers import Answer, elements_kept
from optest.clib.library.memory import CaseMemory
from optest.clib.library.policy import Policy
from optest.memory.heap_garbage import HeapGarbage
from optest.numerics import Array
from optest.spec import Check, CheckState, Reason

__all__ = ["ANYWHERE", "ONE_CALL_ASKED", "SAME_BITS", "Examined", "checks_of_one_call", "say_what_was_done"]

ANYWHERE = "same bits wherever the tensors lie"
ONE_CALL_ASKED = "not asked: probes: guards"
SAME_BITS = "same bits in a second call"
_MOST_FURTHER = 8


@dataclass(slots=True, kw_only=True)
class Examined:
    """The first answer, those with other bits, and what was looked at."""

    outputs: dict[str, Array]
    further: list[FurtherAnswer] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, answer: Answer, how: str, reason: Reason | None) -> None:
        if len(self.further) < _MOST_FURTHER:
            self.further.append(FurtherAnswer(outputs=answer.outputs, how=how, reason=reason))

    def add_of_other_values(self, answer: Answer, name: str, values: Array, first: Answer) -> None:
        """An answer to other values of the input ``name``: STATE if all of it is wrong and has the first one's bits."""
        kept, of_all = elements_kept(first, answer), sum(array.size for array in answer.outputs.values())
        how = f"with other values of input {name}" + f" ({kept} of {of_all} elements as in the first call)" * bool(kept)
        reason = Reason.STATE if kept == of_all else None
        self.further.append(
            FurtherAnswer(outputs=answer.outputs, how=how, reason=reason, inputs={name: np.array(values)})
        )

    def note(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOTE, detail))

    def done(self, name: str, detail: str = "") -> None:
        self.checks.append(_check(name, CheckState.DONE, detail))

    def impossible(self, name: str, detail: str) -> None:
        self.checks.append(_check(name, CheckState.NOT_POSSIBLE, detail))


@lru_cache(maxsize=512)
def _check(name: str, state: CheckState, detail: str) -> Check:
    """The same for every case of which the same is said."""
    return Check(name=name, state=state, detail=detail)


def _say_alignment(examined: Examined, policy: Policy) -> None:
    if policy.alignment > 1:
        detail = f"tensors begin at multiples of {policy.alignment} bytes alone, as the mapping says"
        examined.impossible("other alignments", detail)


def say_what_was_done(examined: Examined, memory: CaseMemory, policy: Policy, *, calls: int) -> None:
    where = {"heap": "256 bytes on each side", "pages": "forbidden pages"}.get(
        policy.guard or "", "256 bytes on each side, then forbidden pages"
    )
    examined.done("guard zones", f"{where}, and all gaps, of inputs, outputs and workspace")
    examined.done("outputs written", "two poisons")
    _say_alignment(examined, policy)
    examined.done("nothing else read", f"{calls} calls, {calls} poisons around inputs")
    examined.done("workspace", f"{memory.workspace_bytes} bytes, {calls} contents")
    examined.done("state", "after other calls, beside other descriptors" if calls > 2 else "beside other descriptors")
    if calls > 2 and HeapGarbage.is_possible():
        examined.done("heap memory as it was found", "two contents")


def checks_of_one_call(policy: Policy, why: str) -> tuple[Check, ...]:
    """What is said of a case that was called once, ``why`` no more."""
    return _what_one_call_shows(policy.guard, policy.alignment, why)


@lru_cache(maxsize=64)
def _what_one_call_shows(guard: str | None, alignment: int, why: str) -> tuple[Check, ...]:
    examined, policy = Examined(outputs={}), Policy(guard=guard, alignment=alignment)
    where = "256 bytes on each side" if policy.guard == "heap" else "forbidden pages"
    examined.done("guard zones", f"{where}, and all gaps, of inputs, outputs and workspace")
    examined.done("outputs written", "two poisons")
    _say_alignment(examined, policy)
    for name in ("nothing else read", "workspace", "state", SAME_BITS, "leaks"):
        examined.impossible(name, why)
    return tuple(examined.checks)

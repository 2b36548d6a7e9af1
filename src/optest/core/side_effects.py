"""What foreign code did to the process that runs cases, which later cases would pay for: STATE, and put back.

Watched are names that references and comparisons rest on (``monkeypatches``), the fields of the case and its operator,
and what a process has one of (``process/state``). What the look after every case does not reach is looked at again and
again, in a share of the time.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter, is_
from time import perf_counter

from optest.backends import BackendDriver
from optest.backends.abilities import guards_memory
from optest.core.expected import is_own
from optest.core.monkeypatches import PatchWatch, Record, patch_watch, patched_before
from optest.errors import UsageError, shortened
from optest.process.state import OF_PYTHON, QUICK, ProcessState
from optest.spec import Fault, OperatorDescriptor, Reason, TestCase, ToleranceLayer

_PAUSE_S = 0.02
_PAUSE_TIMES = 50
"""A thorough look takes 0.1 ms as a rule, and a fiftieth of all time at most."""

_MOST_DESCRIPTORS = 4096
_OF_DESCRIPTOR = tuple(each.name for each in dataclasses.fields(OperatorDescriptor))
_OF_CASE = tuple(each.name for each in dataclasses.fields(TestCase) if each.init)
_OF_LAYER = tuple(each.name for each in dataclasses.fields(ToleranceLayer))
_layout_of = attrgetter("spec.dtype", "spec.shape", "spec.strides", "spec.offset")


class SideEffects:
    """Watches the cases that one process runs, one after the other."""

    __slots__ = (
        "_descriptors",
        "_due",
        "_given",
        "_in_worker",
        "_is_thorough",
        "_layouts",
        "_patches",
        "_process",
        "_unseen",
        "_whole",
        "is_last",
    )

    def __init__(self, patches: PatchWatch, *, in_worker: bool) -> None:
        """A worker that has changed is given up, so that it is as at its beginning; in any other process whoever runs
        cases may change it between two of them."""
        self._patches = patches
        self._in_worker = in_worker
        self._process, self._whole = ProcessState(QUICK), ProcessState(OF_PYTHON)
        self._descriptors: dict[int, Record] = {}
        self._given: list[Record] = []
        self._layouts: list[tuple[object, ...]] = []
        self._unseen: list[str] = []
        self.is_last = False
        """True if no case is known to follow, so that the look after this one is thorough."""
        self._due = 0.0
        self._is_thorough = True

    @classmethod
    def here(cls) -> SideEffects:
        """Of a process that nobody replaces, as it is now.

        Raises:
            UsageError: if NumPy is not what it was, as far as its origin shows it.
        """
        refuse_earlier_patches()
        patches = patch_watch()
        patches.renew()
        return cls(patches, in_worker=False)

    def begin(self, case: TestCase) -> None:
        """Remember what is as it should be, before anything of the case runs."""
        self._is_thorough = self.is_last or perf_counter() >= self._due
        if not self._in_worker:
            self._process.renew()
            if self._is_thorough:
                self._whole.renew()
        descriptor = case.descriptor
        record = self._descriptors.get(id(descriptor))
        if record is None:
            if len(self._descriptors) == _MOST_DESCRIPTORS:
                self._descriptors.clear()
            record = Record.of(f"operator {descriptor.name}", descriptor, _OF_DESCRIPTOR)
            self._descriptors[id(descriptor)] = record
        self._given = [record, Record.of("the case", case, _OF_CASE)]
        self._given += [Record.of("the case's tolerance", each, _OF_LAYER) for each in case.tolerances]
        self._layouts = [_layout_of(each) for each in case.inputs]

    def fault(self, case: TestCase) -> Fault | None:
        """What the case's code has changed, which is put back as far as it can be."""
        now, is_thorough = perf_counter(), self._is_thorough
        names = [name for record in self._given for name in record.replaced()]
        for before, argument in zip(self._layouts, case.inputs, strict=True):
            if not all(map(is_, before, _layout_of(argument))):
                names.append(f"the layout of {argument.path}")
        names += self._patches.replaced()
        changed = self._process.changes()
        late: list[str] = []
        late_harmful: list[str] = []
        if is_thorough:
            late = self._patches.replaced(thorough=True)
            late += [name for record in self._descriptors.values() for name in record.replaced()]
            late_harmful = [each.said for each in self._whole.changes() if each.is_harmful]
            self._due = perf_counter() + max(_PAUSE_S, _PAUSE_TIMES * (perf_counter() - now))
        unseen = self._unseen
        self._unseen = [] if is_thorough else [*unseen, case.id]
        harmful = [each.said for each in changed if each.is_harmful]
        if not (names or late or harmful or late_harmful):
            return None
        who, sentences = "the case's code", []
        suspects = (
            f"{who}, or that of one of the {len(unseen)} cases before it (from {unseen[0]} on)," if unseen else who
        )
        for culprit, replaced, shared in ((who, names, harmful), (suspects, late, late_harmful)):
            if replaced:
                sentences.append(f"{culprit} replaced {shortened(replaced, 4)}, which verdicts rest on")
            if shared:
                sentences.append(f"{culprit} changed what all code of the process shares: {'; '.join(shared)}")
        after = (
            "the next case gets a new worker" if self._in_worker else "the next case runs in this process all the same"
        )
        details = {"replaced": [*names, *late], "process": [*harmful, *late_harmful]}
        return Fault(Reason.STATE, f"{'; '.join(sentences)}; it was put back, and {after}", details=details)


def runs_foreign_code(driver: BackendDriver, case: TestCase) -> bool:
    """Whether Python code that is not optest's takes part; C libraries are watched by the driver that calls them."""
    brings_code = case.generator or case.reference or not is_own(case.descriptor.reference)
    return bool(brings_code) or not (driver.is_reference or guards_memory(driver))


def refuse_patches(patches: PatchWatch, who: str) -> None:
    """Refuse what replaces names while it is loaded, which are put back.

    Raises:
        UsageError: naming ``who``, and what is replaced.
    """
    if replaced := patches.replaced(thorough=True):
        raise UsageError(
            f"{who} replaced {shortened(replaced, 4)} while it was loaded, which references and comparisons rest on\n"
            "  replace it inside `run` and put it back before that returns, or run the backend in a process of its own "
            "(backend `command`)"
        )


def refuse_earlier_patches() -> None:
    """Refuse a NumPy of which parts were replaced before optest was loaded.

    Raises:
        UsageError: naming them.
    """
    if replaced := patched_before():
        names = shortened(replaced, 4)
        raise UsageError(f"{names} was replaced before optest was loaded; load that library inside `run`")

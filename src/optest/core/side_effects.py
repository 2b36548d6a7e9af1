"""Side effects of foreign code on the process that runs cases: reported as STATE and reverted.

Checked are names that references and comparisons depend on (``monkeypatches``), the fields of the case and of its
operator, and the state of the process (``process/state``). A quick check follows every case, a thorough one from time
to time.
"""

from __future__ import annotations

import dataclasses
from math import inf
from operator import attrgetter, is_
from time import perf_counter

from optest.backends import BackendDriver
from optest.core.expected import is_built_in
from optest.core.monkeypatches import Names, PatchWatch, Record, patch_watch, patched_before
from optest.errors import UsageError, shortened
from optest.process.state import QUICK, THOROUGH, ProcessState
from optest.spec import Fault, OperatorDescriptor, Reason, TestCase, ToleranceLayer

# A thorough check usually takes 0.1 ms; the pause after it keeps all of them within a fiftieth of the time.
_PAUSE_S = 0.02
_PAUSE_TIMES = 50

_MOST_DESCRIPTORS = 4096
_DESCRIPTOR_FIELDS = tuple(field.name for field in dataclasses.fields(OperatorDescriptor))
_CASE_FIELDS = tuple(field.name for field in dataclasses.fields(TestCase) if field.init)
_LAYER_FIELDS = tuple(field.name for field in dataclasses.fields(ToleranceLayer))
_layout_of = attrgetter("spec.dtype", "spec.shape", "spec.strides", "spec.offset")


class SideEffects:
    """Check for side effects of the cases that one process runs one after the other.

    A caller sets ``is_last`` if no case is known to follow, so that the next check is thorough.
    """

    __slots__ = (
        "_case_records",
        "_descriptors",
        "_due",
        "_in_worker",
        "_is_thorough",
        "_layouts",
        "_patches",
        "_quick_state",
        "_thorough_state",
        "_unchecked",
        "is_last",
    )

    def __init__(self, patches: PatchWatch, *, in_worker: bool, for_one_case: bool = False) -> None:
        """Record the state of the process.

        ``in_worker`` declares that only cases run here: the recorded state then holds for good, since a worker that
        was changed is replaced. Otherwise :meth:`begin` records it anew. ``for_one_case`` declares that the process
        ends with its first case, which only a quick check follows.
        """
        self._patches = patches
        self._in_worker = in_worker
        self._quick_state, self._thorough_state = ProcessState(QUICK), ProcessState(THOROUGH)
        self._descriptors: dict[int, list[Record | Names]] = {}  # by identity, with their hooks
        self._case_records: list[Record | Names] = []
        self._layouts: list[tuple[object, ...]] = []
        self._unchecked: list[str] = []  # ids of the cases since the last thorough check
        self.is_last = False
        # A thorough check reads so many objects that a fork would copy most pages of its memory.
        self._due = inf if for_one_case else 0.0
        self._is_thorough = True

    @classmethod
    def here(cls) -> SideEffects:
        """Return the check for this process, which is no worker, beginning with its present state.

        Raises:
            UsageError: if a function of NumPy was replaced before.
        """
        refuse_earlier_patches()
        patches = patch_watch()
        patches.renew()
        return cls(patches, in_worker=False)

    def begin(self, case: TestCase) -> None:
        """Record the state before the case runs, and decide whether the check after it is thorough."""
        self._is_thorough = self.is_last or perf_counter() >= self._due
        if not self._in_worker:
            self._quick_state.renew()
            if self._is_thorough:
                self._thorough_state.renew()
        descriptor = case.descriptor
        records = self._descriptors.get(id(descriptor))
        if records is None:
            if len(self._descriptors) == _MOST_DESCRIPTORS:
                self._descriptors.clear()
            records = [Record.of(f"operator {descriptor.name}", descriptor, _DESCRIPTOR_FIELDS)]
            records += self._patches.names_at([descriptor.reference, descriptor.terms])
            self._descriptors[id(descriptor)] = records
        self._case_records = [*records, Record.of("the case", case, _CASE_FIELDS)]
        self._case_records += [Record.of("the case's tolerance", layer, _LAYER_FIELDS) for layer in case.tolerances]
        self._layouts = [_layout_of(argument) for argument in case.inputs]

    def fault(self, case: TestCase) -> Fault | None:
        """Check for changes since :meth:`begin`, revert them where possible, and return them as a STATE fault, or None.

        Changes that only the thorough check finds may be those of an earlier case; the message says so.
        """
        now, is_thorough = perf_counter(), self._is_thorough
        names = [name for record in self._case_records for name in record.replaced()]
        for before, argument in zip(self._layouts, case.inputs, strict=True):
            if not all(map(is_, before, _layout_of(argument))):
                names.append(f"the layout of {argument.path}")
        names += self._patches.replaced()
        harmful = _harmful_changes(self._quick_state)
        late_names: list[str] = []
        late_harmful: list[str] = []
        if is_thorough:
            late_names = self._patches.replaced(thorough=True)
            late_names += [name for records in self._descriptors.values() for x in records for name in x.replaced()]
            late_harmful = _harmful_changes(self._thorough_state)
            self._due = perf_counter() + max(_PAUSE_S, _PAUSE_TIMES * (perf_counter() - now))
        earlier = self._unchecked
        self._unchecked = [] if is_thorough else [*earlier, case.id]
        if not (names or late_names or harmful or late_harmful):
            return None
        culprit, sentences = "the case's code", []
        suspects = culprit
        if earlier:
            suspects = f"{culprit}, or that of one of the {len(earlier)} cases before it (from {earlier[0]} on),"
        for who, replaced, changed in ((culprit, names, harmful), (suspects, late_names, late_harmful)):
            if replaced:
                sentences.append(f"{who} replaced {shortened(replaced, 4)}, which verdicts depend on")
            if changed:
                sentences.append(f"{who} changed state that the whole process shares: {'; '.join(changed)}")
        where = "a new worker" if self._in_worker else "this process"
        details = {"replaced": [*names, *late_names], "process": [*harmful, *late_harmful]}
        message = f"{'; '.join(sentences)}; the change was reverted, and the next case runs in {where}"
        return Fault(Reason.STATE, message, details=details)


def _harmful_changes(state: ProcessState) -> list[str]:
    return [change.said for change in state.changes() if change.is_harmful]


def runs_foreign_code(driver: BackendDriver, case: TestCase) -> bool:
    """Return whether user-defined Python code takes part in the case: generator, reference, or the driver.

    A driver that guards memory does not count: it watches the C library that it calls.
    """
    brings_code = case.generator or case.reference or not is_built_in(case.descriptor.reference)
    return bool(brings_code) or not (driver.is_reference or driver.guards_memory)


def refuse_patches(patches: PatchWatch, who: str) -> None:
    """Check for names that ``who`` replaced while it was loaded, and restore them.

    Raises:
        UsageError: if there are any; it names ``who`` and them.
    """
    if replaced := patches.replaced(thorough=True):
        raise UsageError(
            f"{who} replaced {shortened(replaced, 4)} while it was loaded; references and comparisons depend on it\n"
            "  replace it inside `run` and restore it before `run` returns, or run the backend in a separate process "
            "(backend `command`)"
        )


def refuse_earlier_patches() -> None:
    """Check for functions of NumPy that were replaced before optest was loaded.

    Raises:
        UsageError: if there are any; it names them.
    """
    if replaced := patched_before():
        names = shortened(replaced, 4)
        raise UsageError(f"{names} was replaced before optest was loaded; load that library inside `run`")

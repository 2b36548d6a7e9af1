"""Cases of one library, each probed under all conditions and with its side effects watched from beginning to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from optest.clib.ffi.calls import StatusError
from optest.clib.library.config import FfiConfig
from optest.clib.library.memory import CaseMemory
from optest.clib.library.session import opened
from optest.clib.library.subject import Subject
from optest.clib.probing.call_conditions import ConditionedCalls
from optest.clib.probing.case_probe import CaseProbe
from optest.clib.probing.policy import Policy, ThreadCounts
from optest.clib.probing.results import ProbeResult
from optest.clib.probing.side_effects import SideEffects, require_no_leak_of_refusals
from optest.numerics import Array
from optest.process.standard_output import Printed

_COUNTS_LEAKS = "0"
"""The end of a case key by which leaks are counted: by the case alone, since its order does not matter."""

_OFTEN_BYTES = 1 << 14


class LibraryProbe:
    """Examines cases of one library, one after the other."""

    def __init__(self, config: FfiConfig) -> None:
        self._config = config
        self._printed = Printed()
        self._is_first = True
        self._called_often: set[str] = set()
        self._refused: set[tuple[str, int]] = set()
        self._threads: ThreadCounts | None = None

    def probe_case(self, key: str, memory: CaseMemory, subject: Subject, config: FfiConfig) -> ProbeResult:
        """Call as often as it takes; of all case keys one in sixteen has its leaks counted and gets the extra probes.

        The same ones, and the first case, are asked what they left behind in the process; the first small case of each
        function is called hundreds of times, and has its leaks counted.

        Raises:
            Fault: for whatever the library did that it should not do.
            StatusError: if the library refuses.
        """
        policy = _policy(key, config, often=self._calls_often(memory, subject))
        looks_at_process = policy.has_extra_probes or self._is_first
        side_effects = SideEffects(subject.run, self._printed, looks_at_process=looks_at_process)
        self._is_first = False
        counts = self._counts(config)
        try:
            with self._printed:
                result = CaseProbe(ConditionedCalls(memory, subject, side_effects.call, policy), counts).run()
                if policy.is_brief and side_effects.has_printed:  # whether every call prints
                    policy = replace(policy, is_brief=False)
                    result = CaseProbe(ConditionedCalls(memory, subject, side_effects.call, policy), counts).run()
            result.checks += side_effects.checks()
        except BaseException:
            memory.release(for_others=False)
            raise
        memory.release()
        return result

    def blame(self, key: str, memory: CaseMemory, subject: Subject, config: FfiConfig) -> None:
        """Look closer at a case whose answer was wrong: call it under all circumstances, if it was called once.

        Raises:
            Fault: for what the wrong answer is due to.
            StatusError: if the library refuses.
        """
        side_effects = SideEffects(subject.run, self._printed)
        policy = _policy(key, config)
        counts = self._counts(config)
        calls = ConditionedCalls(memory, subject, side_effects.call, replace(policy, is_brief=False))
        probe = CaseProbe(calls, counts)
        try:
            with self._printed:
                if policy.is_brief:
                    probe.run()
                probe.blame()
            side_effects.checks()
        finally:
            memory.release(for_others=False)

    def probe_refusal(self, memory: CaseMemory, subject: Subject) -> dict[str, Array]:
        """Call once what should be refused; the outputs if it was not.

        Raises:
            StatusError: if it was refused.
            Fault: if it was refused and left something behind.
        """
        side_effects = SideEffects(subject.run, self._printed)
        with self._printed:
            outputs = memory.outputs_if_accepted(side_effects.call)
        side_effects.checks()
        return outputs

    def count_leaks_of_refusals(self, key: str, refusal: StatusError, again: Callable[[], object]) -> None:
        """Count what refused calls leave, for one case key in sixteen and where a function refuses with that status for
        the first time; ``again`` asks once more.

        Raises:
            Fault: LEAK if something is lost in each.
        """
        status = (refusal.function, refusal.code)
        is_first = status not in self._refused
        self._refused.add(status)

        def refused() -> None:
            with suppress(StatusError):
                again()

        if is_first or key.endswith(_COUNTS_LEAKS):
            require_no_leak_of_refusals(refused)

    def _calls_often(self, memory: CaseMemory, subject: Subject) -> bool:
        if subject.name in self._called_often or memory.nbytes > _OFTEN_BYTES:
            return False
        self._called_often.add(subject.name)
        return True

    def _counts(self, config: FfiConfig) -> ThreadCounts | None:
        """What sets the number of threads, for cases that ask for several."""
        if config.threads and self._threads is None:
            threads = config.mapping.threads
            self._threads = ThreadCounts(threads.functions, threads.environment, opened(self._config))
        return self._threads if config.threads else None


def _policy(key: str, config: FfiConfig, *, often: bool = False) -> Policy:
    return Policy(
        is_brief=config.stated.probes == "guards",
        guard=config.stated.guard,
        invariant=config.stated.invariant,
        threads=config.threads,
        has_extra_probes=key.endswith(_COUNTS_LEAKS),
        calls_often=often,
        has_other_callers=config.device == "cpu" and config.mapping.threads.callers == "any",
        alignment=config.mapping.alignment,
    )

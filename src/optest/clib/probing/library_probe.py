"""Probe the cases of one library under all conditions, and watch the side effects of all calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from optest.clib.ffi.calls import StatusError
from optest.clib.library.config import FfiConfig
from optest.clib.library.memory import CaseMemory
from optest.clib.library.session import load_library
from optest.clib.library.subject import Subject
from optest.clib.probing.call_conditions import ConditionedCalls
from optest.clib.probing.case_probe import CaseProbe, ThreadCounts
from optest.clib.probing.policy import Policy, ProbeResult
from optest.clib.probing.side_effects import SideEffects, require_no_leak_of_refusals
from optest.numerics import Array
from optest.process.standard_output import Printed

# Last digit of the case keys whose leaks are counted: the choice must not depend on the order of cases.
_COUNTS_LEAKS = "0"

_OFTEN_BYTES = 1 << 14


class LibraryProbe:
    """Probes cases of one library, one after the other."""

    def __init__(self, config: FfiConfig) -> None:
        self._config = config
        self._printed = Printed()
        self._is_first = True
        self._called_often: set[str] = set()
        self._refused: set[tuple[str, int]] = set()
        self._cached_thread_counts: ThreadCounts | None = None

    def probe_case(self, key: str, memory: CaseMemory, subject: Subject, config: FfiConfig) -> ProbeResult:
        """Call a case under varied conditions; return outputs and checks, raise Fault or StatusError.

        One case key in sixteen gets the extra probes, with leaks counted; these and the first case also compare
        process-wide state. The first small case of each function is called hundreds of times, with leaks counted.
        """
        policy = _policy(key, config, often=self._is_called_often(memory, subject))
        looks_at_process = policy.has_extra_probes or self._is_first
        side_effects = SideEffects(subject.run, self._printed, looks_at_process=looks_at_process)
        self._is_first = False
        threads = self._thread_counts(config)
        try:
            with self._printed:
                result = CaseProbe(ConditionedCalls(memory, subject, side_effects.call, policy), threads).run()
                # More calls show whether every call prints.
                if policy.is_brief and side_effects.has_printed:
                    policy = replace(policy, is_brief=False)
                    result = CaseProbe(ConditionedCalls(memory, subject, side_effects.call, policy), threads).run()
            result.checks += side_effects.checks()
        except BaseException:  # faults, refusals and interruptions: its memory may be damaged
            memory.release(for_others=False)
            raise
        memory.release()
        return result

    def explain_wrong_outputs(self, key: str, memory: CaseMemory, subject: Subject, config: FfiConfig) -> None:
        """Raise the Fault that explains wrong outputs; call under all conditions if the case was called once."""
        side_effects = SideEffects(subject.run, self._printed)
        policy = _policy(key, config)
        calls = ConditionedCalls(memory, subject, side_effects.call, replace(policy, is_brief=False))
        probe = CaseProbe(calls, self._thread_counts(config))
        try:
            with self._printed:
                if policy.is_brief:
                    probe.run()
                probe.require_heap_independence()
            side_effects.checks()
        finally:
            memory.release(for_others=False)

    def probe_refusal(self, memory: CaseMemory, subject: Subject) -> dict[str, Array]:
        """Return the outputs of a call that should be refused; raise StatusError if it is, Fault for side effects."""
        side_effects = SideEffects(subject.run, self._printed)
        with self._printed:
            outputs = memory.outputs_if_accepted(side_effects.call)
        side_effects.checks()
        return outputs

    def count_leaks_of_refusals(self, key: str, refusal: StatusError, again: Callable[[], object]) -> None:
        """Raise LEAK if repeating a refused call loses resources; check some case keys and each new status."""
        status = (refusal.function, refusal.code)
        is_first = status not in self._refused
        self._refused.add(status)

        def refused() -> None:
            with suppress(StatusError):
                again()

        # One case key in sixteen, and the first refusal with each status of each function.
        if is_first or key.endswith(_COUNTS_LEAKS):
            require_no_leak_of_refusals(refused)

    def _is_called_often(self, memory: CaseMemory, subject: Subject) -> bool:
        """Return whether this is the first small case of the function, and remember the function."""
        if subject.name in self._called_often or memory.nbytes > _OFTEN_BYTES:
            return False
        self._called_often.add(subject.name)
        return True

    def _thread_counts(self, config: FfiConfig) -> ThreadCounts | None:
        """Return the setter of the number of threads, None for cases that do not request any."""
        if config.threads and self._cached_thread_counts is None:
            threads = config.mapping.threads
            self._cached_thread_counts = ThreadCounts(
                threads.functions, threads.environment, load_library(self._config)
            )
        return self._cached_thread_counts if config.threads else None


def _policy(key: str, config: FfiConfig, *, often: bool = False) -> Policy:
    return Policy(
        is_brief=config.section.probes == "guards",
        guard=config.section.guard,
        invariant=config.section.invariant,
        threads=config.threads,
        has_extra_probes=key.endswith(_COUNTS_LEAKS),
        calls_often=often,
        has_other_callers=config.device == "cpu" and config.mapping.threads.callers == "any",
        alignment=config.mapping.alignment,
    )

"""One case examined: called under all circumstances, with the library's manners watched from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from optest.clib.ffi.printed import Printed
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.config import FfiConfig
from optest.clib.library.examined import Examined
from optest.clib.library.manners import Manners, require_no_leak_of_refusals
from optest.clib.library.memory import CaseMemory
from optest.clib.library.policy import Policy
from optest.clib.library.probes import Probe
from optest.clib.library.session import opened
from optest.clib.library.subject import Subject
from optest.clib.library.threads import ThreadCounts
from optest.numerics import Array

__all__ = ["Examination"]

_COUNTS_LEAKS = "0"
"""The end of a case key by which leaks are counted: by the case alone, since its order does not matter."""

_MOST_POLICIES = 256
_OFTEN_BYTES = 1 << 14


class Examination:
    """Examines cases of one library, one after the other."""

    def __init__(self, config: FfiConfig) -> None:
        self._config = config
        self._printed = Printed()
        self._is_first = True
        self._called_often: set[str] = set()
        self._refused: set[tuple[str, int]] = set()
        self._threads: ThreadCounts | None = None
        self._policies: dict[tuple[int, bool, bool], tuple[FfiConfig, Policy]] = {}

    def of(self, key: str, memory: CaseMemory, subject: Subject, config: FfiConfig) -> Examined:
        """Call as often as it takes; of all case keys one in sixteen has its leaks counted and is looked at closer.

        The same ones, and the first case, are asked what they left behind in the process; the first small case of each
        function is called hundreds of times, and has its leaks counted.

        Raises:
            Fault: for whatever the library did that it should not do.
            StatusError: if the library refuses.
        """
        policy = self._policy(key, config, often=self._calls_often(memory, subject))
        manners = Manners(self._printed, looks_at_process=policy.looks_closer or self._is_first)
        self._is_first = False

        def call(pointers: Mapping[str, Any]) -> None:
            manners.call(subject.run, pointers)

        counts = self._counts() if config.threads else None
        try:
            with manners.watched():
                examined = Probe(memory, subject, call, policy, counts).examine()
                if policy.is_brief and manners.has_printed:  # whether every call prints
                    examined = Probe(memory, subject, call, replace(policy, is_brief=False), counts).examine()
            examined.checks += manners.checks()
        except BaseException:
            memory.leave()
            raise
        memory.release()
        return examined

    def blame(self, key: str, memory: CaseMemory, subject: Subject, config: FfiConfig) -> None:
        """Look closer at a case whose answer was wrong: call it under all circumstances, if it was called once.

        Raises:
            Fault: for what the wrong answer is due to.
            StatusError: if the library refuses.
        """
        manners = Manners(self._printed)
        policy = _policy(key, config)

        def call(pointers: Mapping[str, Any]) -> None:
            manners.call(subject.run, pointers)

        probe = Probe(
            memory, subject, call, replace(policy, is_brief=False), self._counts() if config.threads else None
        )
        try:
            with manners.watched():
                if policy.is_brief:
                    probe.examine()
                probe.blame()
            manners.checks()
        finally:
            memory.leave()

    def of_refusal(self, memory: CaseMemory, subject: Subject) -> dict[str, Array]:
        """Call once what should be refused; the outputs if it was not.

        Raises:
            StatusError: if it was refused.
            Fault: if it was refused and left something behind.
        """
        manners = Manners(self._printed)
        with manners.watched():
            outputs = memory.outputs_if_accepted(lambda pointers: manners.call(subject.run, pointers))
        manners.checks()
        return outputs

    def after_refusal(self, key: str, refusal: StatusError, again: Callable[[], object]) -> None:
        """Count what refused calls leave, for one case key in sixteen and where a function refuses with that status for
        the first time; ``again`` asks once more.

        Raises:
            Fault: LEAK if something is lost in each.
        """
        said = (refusal.function, refusal.code)
        is_first = said not in self._refused
        self._refused.add(said)

        def refused() -> None:
            with suppress(StatusError):
                again()

        if is_first or key.endswith(_COUNTS_LEAKS):
            require_no_leak_of_refusals(refused)

    def _policy(self, key: str, config: FfiConfig, *, often: bool) -> Policy:
        """The same for the same configuration, which is kept alive; it counts by identity."""
        place = (id(config), key.endswith(_COUNTS_LEAKS), often)
        known = self._policies.get(place)
        if known is None:
            if len(self._policies) >= _MOST_POLICIES:
                self._policies.clear()
            policy = _policy(key, config)
            policy = replace(policy, calls_often=often, counts_leaks=policy.counts_leaks or often)
            known = self._policies[place] = (config, policy)
        return known[1]

    def _calls_often(self, memory: CaseMemory, subject: Subject) -> bool:
        if subject.name in self._called_often or memory.nbytes > _OFTEN_BYTES:
            return False
        self._called_often.add(subject.name)
        return True

    def _counts(self) -> ThreadCounts:
        if self._threads is None:
            library, stated = opened(self._config), self._config.mapping.threads

            def symbol(name: str) -> Any:
                return library.symbol(name) if name and library.has(name) else None

            self._threads = ThreadCounts(stated.functions, stated.environment, symbol)
        return self._threads


def _policy(key: str, config: FfiConfig) -> Policy:
    return Policy(
        is_brief=config.probes == "guards",
        guard=config.guard,
        invariant=config.invariant,
        threads=config.threads,
        counts_leaks=key.endswith(_COUNTS_LEAKS),
        looks_closer=key.endswith(_COUNTS_LEAKS),
        has_other_callers=config.device == "cpu" and config.mapping.threads.callers == "any",
        alignment=config.mapping.alignment,
    )

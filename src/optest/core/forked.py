"""Executions in forks of this process, for code that no worker finds by a name: functions of a script that is run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from optest.core.border import UserInterrupt
from optest.core.executors import InProcess
from optest.core.expected import expected_outputs, is_own
from optest.core.inputs import make_inputs
from optest.core.messages import Ran, ToParent, as_execution, decode_for_parent, encode
from optest.core.phases import Phase
from optest.core.runner import ExecutionResult
from optest.core.verdicts import excused
from optest.core.worker_death import death, descriptors_spoilt, overtime
from optest.process import fork_and_run, leave
from optest.spec import Fault, TestCase, Timings, Verdict

__all__ = ["InForks"]

_USUAL_S = 300.0


@dataclass(slots=True)
class InForks:
    """Runs each execution in a fork of this process: a crash or a hang ends that one alone.

    A fork has one thread, and no context of a device lives on in it: nothing of the case may have run here before.
    """

    looks_ahead: ClassVar[bool] = False

    inside: InProcess
    _prepared: set[str] = field(default_factory=set)

    def execute(
        self,
        cases: Sequence[TestCase],
        following: Sequence[Sequence[TestCase]] = (),  # noqa: ARG002 - part of the protocol
    ) -> ExecutionResult:
        """Run the cases in a fork, which has the case's deadline for all its phases together."""
        self._prepare(cases[0])
        deadline_s = cases[0].timeout_s or _USUAL_S
        fork = fork_and_run(lambda: self._answer(cases))
        try:
            answer = fork.read(deadline_s)
        except TimeoutError:
            fork.end()
            return _all_with(overtime(Phase.RUN, deadline_s, ""), cases)
        except BaseException:
            fork.end()
            raise
        returncode, signal = fork.end()
        if returncode or not answer:
            return _all_with(death(Phase.RUN, returncode, signal, ""), cases)
        ran: ToParent | None = None
        with suppress(ValueError):  # the fork wrote over its own heap, or someone else to its pipe
            ran = decode_for_parent(answer)
        if not isinstance(ran, Ran):
            return _all_with(descriptors_spoilt("its answer cannot be read", {"phase": "answer"}), cases)
        return as_execution(ran, cases)

    def _prepare(self, case: TestCase) -> None:
        """Import here, once for an operator, what each fork would; and look around, for the same reason."""
        name, is_ours = case.descriptor.name, is_own(case.reference or case.descriptor.reference)
        if name not in self._prepared and is_ours and case.generator is None:  # what may die, dies in a fork
            self._prepared.add(name)
            with suppress(Fault):  # its fork meets the same
                expected_outputs([case], make_inputs(case)[0], None, self.inside.driver)
        self.inside.watch(case)

    def _answer(self, cases: Sequence[TestCase]) -> bytes:
        try:
            execution = self.inside.execute(cases)
        except UserInterrupt:
            leave(1)  # this process gets the same signal, and says so
        return encode(Ran(0, list(execution.verdicts), execution.timings, execution.benchmark))

    def close(self) -> None:
        return None


def _all_with(verdict: Verdict, cases: Sequence[TestCase]) -> ExecutionResult:
    return ExecutionResult(tuple(excused(case, verdict) for case in cases), Timings())

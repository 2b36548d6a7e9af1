"""Executions in forks of this process, for code that no worker finds by a name: functions of a script that is run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from optest.backends import BackendDriver, backend_manager
from optest.backends.worker_abilities import ImportsLate
from optest.core.border import UserInterrupt
from optest.core.executors import InProcess
from optest.core.expected import is_own
from optest.core.messages import Ran, ToParent, as_execution, decode_for_parent, encode
from optest.core.monkeypatches import patch_watch
from optest.core.phases import Phase
from optest.core.runner import ExecutionResult, execute
from optest.core.worker_death import death, descriptors_spoilt, overtime
from optest.operators import operators
from optest.process import fork_and_run, leave
from optest.registry import load_object
from optest.spec import Argument, Fill, TensorSpec, TestCase, Timings, dtype

_USUAL_S = 300.0


@dataclass(slots=True)
class InForks:
    """Runs each execution in a fork of this process: a crash or a hang ends that one alone.

    A fork has one thread, and no context of a device lives on in it: nothing of the case may have run here before.
    """

    looks_ahead: ClassVar[bool] = False

    inside: InProcess

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:  # noqa: ARG002
        """Run the cases in a fork, which has the case's deadline for all its phases together."""
        if self.inside.watch(cases[0]) is not None:
            warm_up()
            prepare_fork(cases[0], self.inside.driver)
        deadline_s = cases[0].timeout_s or _USUAL_S
        fork = fork_and_run(lambda: self._answer(cases))
        try:
            answer = fork.read(deadline_s)
        except TimeoutError:
            fork.end()
            return ExecutionResult.for_all(cases, overtime(Phase.RUN, deadline_s, ""))
        except BaseException:
            fork.end()
            raise
        returncode, signal = fork.end()
        if returncode or not answer:
            return ExecutionResult.for_all(cases, death(Phase.RUN, returncode, signal, ""))
        ran: ToParent | None = None
        with suppress(ValueError):  # the fork wrote over its own heap, or someone else to its pipe
            ran = decode_for_parent(answer)
        if not isinstance(ran, Ran):
            spoilt = descriptors_spoilt("its answer cannot be read", {"phase": "answer"})
            return ExecutionResult.for_all(cases, spoilt)
        return as_execution(ran, cases)

    def _answer(self, cases: Sequence[TestCase]) -> bytes:
        try:
            execution = self.inside.execute(cases)
        except UserInterrupt:
            leave(1)  # this process gets the same signal, and says so
        return encode(Ran(0, list(execution.verdicts), execution.timings, execution.benchmark))

    def close(self) -> None:
        return None


@cache
def warm_up() -> None:
    """Do once, before the first fork, what every fork would do again: imports, tables, caches of one small case."""
    load_object("numpy.ma:is_masked")  # which np.unique imports
    spec = TensorSpec(dtype=dtype("float32"), shape=(4,))
    descriptor = operators.get("add")
    first = Argument(name="input", path="input0", spec=spec, fill=Fill(kind="randn"))
    inputs = (first, replace(first, name="other", path="input1"))
    case = TestCase(descriptor=descriptor, inputs=inputs, outputs=(spec,), attributes=descriptor.bind({}))
    encode(Ran(0, list(execute([case], backend_manager.get("numpy")).verdicts), Timings()))


def prepare_fork(case: TestCase, driver: BackendDriver) -> None:
    """Import here what each fork would, and watch it; nothing of the case is called, as what may die dies in a fork."""
    with suppress(Exception):  # the fork meets the same
        if isinstance(driver, ImportsLate):
            driver.import_late()
        for hook in filter(is_own, (case.reference or case.descriptor.reference, case.descriptor.terms)):
            load_object(str(hook))
    patch_watch().replaced()

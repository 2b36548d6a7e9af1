"""Executions in forks of this process, for code that no worker can import by name, such as functions of a script."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from optest.backends import BackendDriver, backend_manager
from optest.core.border import UserInterrupt
from optest.core.executors import InProcess
from optest.core.expected import is_built_in
from optest.core.messages import Ran, ToParent, decode_for_parent, encode, result_of_message
from optest.core.monkeypatches import patch_watch
from optest.core.phases import Phase
from optest.core.runner import ExecutionResult, execute
from optest.core.worker_death import death, descriptors_spoilt, overtime
from optest.operators import operators
from optest.process import fork_and_run, leave
from optest.registry import load_object
from optest.spec import Argument, Fill, TensorSpec, TestCase, Timings, dtype

# Time limit of a fork for a case without a deadline.
_USUAL_S = 300.0


@dataclass(slots=True)
class InForks:
    """Executor that runs each execution in a fork of this process: a crash or a hang ends only that one.

    ``inside`` is the executor within the fork. A fork has one thread and cannot use the device contexts of its
    parent, so that nothing of the case may have run in this process before.
    """

    looks_ahead: ClassVar[bool] = False

    inside: InProcess

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:  # noqa: ARG002
        """Run the cases in a fork and return the result; the deadline of the first case limits the whole fork.

        A fork that exceeds it or dies, or whose result cannot be read, gives every case a verdict that says so.
        ``following`` is not used.
        """
        if self.inside.watch(cases[0]) is not None:
            warm_up()
            prepare_fork(cases[0], self.inside.driver)
        deadline_s = cases[0].timeout_s or _USUAL_S
        fork = fork_and_run(lambda: self._run_encoded(cases))
        try:
            message = fork.read(deadline_s)
        except TimeoutError:
            fork.end()
            return ExecutionResult.for_all(cases, overtime(Phase.RUN, deadline_s, ""))
        except BaseException:
            fork.end()
            raise
        returncode, signal = fork.end()
        if returncode or not message:
            return ExecutionResult.for_all(cases, death(Phase.RUN, returncode, signal, ""))
        ran: ToParent | None = None
        with suppress(ValueError):  # foreign code wrote over the fork's heap or to its pipe
            ran = decode_for_parent(message)
        if not isinstance(ran, Ran):
            spoilt = descriptors_spoilt("its result cannot be read", {"phase": "answer"})
            return ExecutionResult.for_all(cases, spoilt)
        return result_of_message(ran, cases)

    def _run_encoded(self, cases: Sequence[TestCase]) -> bytes:
        """Run the cases within the fork and return the encoded :class:`Ran` message."""
        try:
            execution = self.inside.execute(cases)
        except UserInterrupt:
            leave(1)  # the parent gets the same signal and reports it
        return encode(Ran(0, list(execution.verdicts), execution.timings, execution.benchmark))

    def close(self) -> None:
        """Do nothing: no process outlives :meth:`execute`."""


@cache
def warm_up() -> None:
    """Run a small `add` case in this process, once, so that forks inherit its imports, tables and caches."""
    load_object("numpy.ma:is_masked")  # np.unique imports it
    spec = TensorSpec(dtype=dtype("float32"), shape=(4,))
    descriptor = operators.get("add")
    first = Argument(name="input", path="input0", spec=spec, fill=Fill(kind="randn"))
    inputs = (first, replace(first, name="other", path="input1"))
    case = TestCase(descriptor=descriptor, inputs=inputs, outputs=(spec,), attributes=descriptor.bind({}))
    encode(Ran(0, list(execute([case], backend_manager.get("numpy")).verdicts), Timings()))


def prepare_fork(case: TestCase, driver: BackendDriver) -> None:
    """Import the driver's late modules and optest's reference hooks before the fork, and watch them for patches.

    Nothing of the case is called, since a crash must end the fork and not this process. Errors are ignored here.
    """
    with suppress(Exception):  # the fork raises the same and reports it
        driver.import_late()
        for hook in filter(is_built_in, (case.reference or case.descriptor.reference, case.descriptor.terms)):
            load_object(str(hook))
    patch_watch().replaced()  # adds newly imported modules to the watch

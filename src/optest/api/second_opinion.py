"""A second opinion of cases that a function under test fails: does it pass in a new process, and in torch?"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from optest.api.run_request import RunRequest, driver_options
from optest.backends import BackendDriver, backend_manager
from optest.backends.command_abilities import KnowsExpectations
from optest.backends.function import FunctionBackend
from optest.core.expected import is_own
from optest.core.runner import why_not_run
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import OptestError
from optest.operators import operators
from optest.plan.expectations import Expectations, read_expectations
from optest.registry import is_installed
from optest.settings import environment, plugin_modules
from optest.settings.variables import worker_environment
from optest.spec import BAD_STATUSES, BackendTarget, Reason, Status, TestCase, Verdict
from optest.spec.case import FORWARD

_MOST_S, _CASE_S = 6.0, 5.0
"""Time limits for all cases of a run, and for one: the run waits for them."""
_MOST_REPEATED = 2
"""Most failures of a run that are repeated in a new process."""
_INCONCLUSIVE = (Reason.UNAVAILABLE, Reason.BAD_CASE, Reason.REFERENCE_FAILED, Reason.INTERNAL)


@contextmanager
def with_second_opinion(request: RunRequest) -> Iterator[RunRequest]:
    """Yield the request; add to failing verdicts on functions whether the case passes in a new process, and in torch.

    Wrong values without a diagnosis are asked once more in a new worker, where no earlier call can have left anything.
    Torch's own function runs in one worker of the backend torch, which starts at the first failure and may die. Nothing
    of torch is added without it, for operators that it lacks, and for calls that should be refused; nothing at all is
    added without workers.
    """
    own = request.driver
    if not isinstance(own, FunctionBackend) or request.settings["isolate"] == "none":
        yield request
        return
    torch = backend_manager.get("torch") if is_installed("torch") else None
    left_s, left_repeated, known = _MOST_S, _MOST_REPEATED, list[Expectations]()

    def revise(case: TestCase, verdict: Verdict) -> Verdict:
        nonlocal left_repeated
        verdict = request.revise(case, verdict)
        if verdict.status not in BAD_STATUSES:
            return verdict
        verdict = beside_torch(case, verdict)
        is_explained = verdict.details.get("diagnosis") or "fails" in verdict.details.get("torch", "")
        if not left_repeated or is_explained or verdict.reason not in (Reason.VALUE, Reason.NAN):
            return verdict
        left_repeated -= 1
        with closing(new_worker(own)) as fresh, suppress(OptestError):
            fresh.start()
            if fresh.execute([case]).verdicts[0].status is Status.PASSED:
                sentence = "this call passes in a new process: it depends on calls before it, or on chance"
                verdict = dataclasses.replace(verdict, details={**verdict.details, "repeated": sentence})
        return verdict

    def beside_torch(case: TestCase, verdict: Verdict) -> Verdict:
        nonlocal left_s
        is_ours = case.generator is None and is_own(case.descriptor.reference)
        if torch is None or not is_ours or case.mode != FORWARD or case.expects_error is not None or left_s <= 0:
            return verdict
        target = BackendTarget(name="torch", device="cpu")
        torch_case = dataclasses.replace(case, backend=target, timeout_s=_CASE_S, backend_config={})
        try:
            worker.start()  # before the clock: it may take long on a loaded machine
            began = time.monotonic()
            torch_verdict = why_not_run(torch_case, torch) or worker.execute([torch_case]).verdicts[0]
            left_s -= time.monotonic() - began
        except OptestError:  # torch is installed, but cannot be loaded
            left_s = 0.0
            return verdict
        if torch_verdict.status is Status.SKIPPED or torch_verdict.reason in _INCONCLUSIVE:
            return verdict
        outcome = "passes this case"
        if torch_verdict.status in BAD_STATUSES:
            if not known and isinstance(torch, KnowsExpectations) and (path := torch.expectations()):
                known.append(read_expectations(path, operators=operators, versions=torch.versions()))
            is_known = any(each.excused(torch_case, torch_verdict).status is Status.XFAILED for each in known)
            why = "expected difference of backend torch" if is_known else torch_verdict.reason or torch_verdict.status
            outcome = f"fails this case, too ({why})"
        sentence = f"torch's own {case.descriptor.name} {outcome}"
        return dataclasses.replace(verdict, details={**verdict.details, "torch": sentence})

    def new_worker(driver: BackendDriver) -> WorkerProcess:
        options = WorkerOptions(
            driver=driver.name,
            scratch=Path(folder),
            environment=worker_environment(environment(), request.settings["jobs"]),
            options=driver_options(request.settings, driver),
            plugins=(*plugin_modules(), *request.plugins),
        )
        return WorkerProcess(options, driver.name, request.forks)

    with tempfile.TemporaryDirectory(prefix="optest-") as folder, closing(new_worker(torch or own)) as worker:
        yield dataclasses.replace(request, revise=revise)

"""Torch's own function on the cases that a function under test fails: is the function off, or the rule?"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optest.api.run_request import RunRequest
from optest.backends import backend_manager
from optest.backends.command_abilities import KnowsExpectations
from optest.backends.function import FunctionBackend
from optest.core.expected import is_own
from optest.core.runner import why_not_run
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import OptestError
from optest.operators import operators
from optest.plan.expectations import Expectations, read_expectations
from optest.registry import is_installed
from optest.settings import environment
from optest.settings.variables import worker_environment
from optest.spec import BAD_STATUSES, BackendTarget, Reason, Status, TestCase, Verdict
from optest.spec.case import FORWARD

_MOST_S, _CASE_S = 6.0, 5.0
"""Time limits for all cases of a run, and for one: the run waits for them."""
_INCONCLUSIVE = (Reason.UNAVAILABLE, Reason.BAD_CASE, Reason.REFERENCE_FAILED, Reason.INTERNAL)


@contextmanager
def with_torchs_own(request: RunRequest) -> Iterator[RunRequest]:
    """Yield the request; add to failing verdicts on functions whether torch's own function passes the case.

    It runs in one worker of the backend torch, which starts at the first failure and may die. Nothing is added without
    torch, without workers, for operators that torch lacks, and for calls that should be refused.
    """
    is_applicable = isinstance(request.driver, FunctionBackend) and request.settings["isolate"] != "none"
    if not is_applicable or not is_installed("torch"):
        yield request
        return
    driver = backend_manager.get("torch")
    left_s, known = _MOST_S, list[Expectations]()

    def revise(case: TestCase, verdict: Verdict) -> Verdict:
        nonlocal left_s
        verdict, is_ours = request.revise(case, verdict), case.generator is None and is_own(case.descriptor.reference)
        is_comparable = is_ours and case.mode == FORWARD and case.expects_error is None and left_s > 0
        if verdict.status not in BAD_STATUSES or not is_comparable:
            return verdict
        target = BackendTarget(name="torch", device="cpu")
        torch_case = dataclasses.replace(case, backend=target, timeout_s=_CASE_S, backend_config={})
        try:
            worker.start()  # before the clock: it may take long on a loaded machine
            began = time.monotonic()
            torch_verdict = why_not_run(torch_case, driver) or worker.execute([torch_case]).verdicts[0]
            left_s -= time.monotonic() - began
        except OptestError:  # torch is installed, but cannot be loaded
            left_s = 0.0
            return verdict
        if torch_verdict.status is Status.SKIPPED or torch_verdict.reason in _INCONCLUSIVE:
            return verdict
        outcome = "passes this case"
        if torch_verdict.status in BAD_STATUSES:
            if not known and isinstance(driver, KnowsExpectations) and (path := driver.expectations()):
                known.append(read_expectations(path, operators=operators, versions=driver.versions()))
            is_known = any(each.excused(torch_case, torch_verdict).status is Status.XFAILED for each in known)
            why = "expected difference of backend torch" if is_known else torch_verdict.reason or torch_verdict.status
            outcome = f"fails this case, too ({why})"
        sentence = f"torch's own {case.descriptor.name} {outcome}"
        return dataclasses.replace(verdict, details={**verdict.details, "torch": sentence})

    with tempfile.TemporaryDirectory(prefix="optest-") as folder:
        variables = worker_environment(environment(), request.settings["jobs"])
        worker = WorkerProcess(
            WorkerOptions(driver="torch", scratch=Path(folder), environment=variables), "torch", request.forks
        )
        try:
            yield dataclasses.replace(request, revise=revise)
        finally:
            worker.close()

"""Further runs of failed cases of a function: in a new process, and by torch's or the reference function."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from optest.api.run_request import RunRequest, driver_options
from optest.backends import BackendDriver, backend_manager
from optest.backends.function import FunctionBackend
from optest.core.expected import is_built_in
from optest.core.reference_functions import PREFIX
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

# Time limits for all cases of a run, and for one case, because the run waits for them.
_MOST_S, _CASE_S = 6.0, 5.0
_MOST_REPEATED = 2
"""Most failures of a run that are repeated in a new process."""
_INCONCLUSIVE = (Reason.UNAVAILABLE, Reason.BAD_CASE, Reason.REFERENCE_FAILED, Reason.INTERNAL)


@contextmanager
def with_second_opinion(request: RunRequest) -> Iterator[RunRequest]:
    """Yield the request, extended so that failing verdicts report whether a new process and the peer pass the case.

    The peer is torch's own function, or the function of ``--reference`` in the dtype of the case. One worker runs it
    from the first failure on. Nothing is added without workers, without torch, for operators that torch lacks,
    and for cases that expect an error.
    """
    driver = request.driver
    if not isinstance(driver, FunctionBackend) or request.settings["isolate"] == "none":
        yield request
        return
    is_compared = any(case.descriptor.category == "function" for case in request.cases)
    peer = backend_manager.get("function" if is_compared else "torch") if is_compared or is_installed("torch") else None
    left_s, left_repeated, known = _MOST_S, _MOST_REPEATED, list[Expectations]()

    def revise(case: TestCase, verdict: Verdict) -> Verdict:
        nonlocal left_repeated
        verdict = request.revise(case, verdict)
        if verdict.status not in BAD_STATUSES:
            return verdict
        verdict = with_peer(case, verdict)
        is_explained = verdict.details.get("diagnosis") or "fails" in verdict.details.get("torch", "")
        if not left_repeated or is_explained or verdict.reason not in (Reason.VALUE, Reason.NAN):
            return verdict
        left_repeated -= 1
        # No earlier call can have left state in a new worker.
        with closing(new_worker(driver)) as fresh, suppress(OptestError):
            fresh.start()
            if fresh.execute([case]).verdicts[0].status is Status.PASSED:
                sentence = "this call passes in a new process: it depends on earlier calls, or on chance"
                verdict = dataclasses.replace(verdict, details={**verdict.details, "repeated": sentence})
        return verdict

    def with_peer(case: TestCase, verdict: Verdict) -> Verdict:
        nonlocal left_s
        is_known_call = is_compared or (case.generator is None and is_built_in(case.descriptor.reference))
        if peer is None or not is_known_call or case.mode != FORWARD or case.expects_error is not None or left_s <= 0:
            return verdict
        name = case.descriptor.name
        config = {peer.name: {name: name.removeprefix(PREFIX)}} if is_compared else {}
        target = BackendTarget(name=peer.name, device=peer.device())
        peer_case = dataclasses.replace(case, backend=target, timeout_s=_CASE_S, backend_config=config)
        try:
            worker.start()  # not counted, as it may take long on a loaded machine
            began = time.monotonic()
            peer_verdict = why_not_run(peer_case, peer) or worker.execute([peer_case]).verdicts[0]
            left_s -= time.monotonic() - began
        except OptestError:  # torch is installed, but cannot be loaded
            left_s = 0.0
            return verdict
        if peer_verdict.status is Status.SKIPPED or peer_verdict.reason in _INCONCLUSIVE:
            return verdict
        is_wrong, details = peer_verdict.status in BAD_STATUSES, dict(verdict.details)
        if is_compared:
            # If the reference is wrong in this dtype, too, a diagnosis by its float64 results would mislead.
            kinds = dict.fromkeys(x.spec.dtype.name for x in case.inputs if x.spec.dtype.is_float)
            is_narrow = kinds.keys() != {"float64"}
            if is_narrow and {verdict.reason, peer_verdict.reason} <= {Reason.VALUE, Reason.NAN}:
                sentence = f"{config[peer.name][name]} itself is wrong here, too, if it computes in {', '.join(kinds)}"
                details |= {"diagnosis": [f"{sentence}: its steps lose precision that float64 keeps, as by overflow"]}
            return dataclasses.replace(verdict, details=details)
        outcome = "passes this case"
        if is_wrong:
            if not known and (path := peer.expectations()):
                known.append(read_expectations(path, operators=operators, versions=peer.versions()))
            is_known = any(x.waive(peer_case, peer_verdict).status is Status.XFAILED for x in known)
            why = "expected difference of backend torch" if is_known else peer_verdict.reason or peer_verdict.status
            outcome = f"fails this case, too ({why})"
        return dataclasses.replace(verdict, details={**details, "torch": f"torch's own {name} {outcome}"})

    def new_worker(backend: BackendDriver) -> WorkerProcess:
        options = WorkerOptions(
            driver=backend.name,
            scratch=Path(folder),
            environment=worker_environment(environment(), request.settings["jobs"]),
            options=driver_options(request.settings, backend),
            plugins=(*plugin_modules(), *request.plugins),
        )
        return WorkerProcess(options, backend.name, request.forks)

    with tempfile.TemporaryDirectory(prefix="optest-") as folder, closing(new_worker(peer or driver)) as worker:
        yield dataclasses.replace(request, revise=revise)

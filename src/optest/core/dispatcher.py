"""Dispatch of executions to devices: builds programs, leases devices, keeps workers, probes devices after crashes.

:mod:`optest.core.schedule` decides which unit runs on which devices. The session's threads take units from here, with
a worker for each.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar

from optest.backends import BackendDriver
from optest.backends.worker_abilities import DeviceRequest, PreparesPrograms
from optest.core.border import Border
from optest.core.devices import Health, Leases, check_health
from optest.core.executors import Closed, Executor, print_note
from optest.core.results import Execution
from optest.core.runner import ExecutionResult, why_not_run
from optest.core.schedule import Assignment, Schedule, ScheduleRules, Unit, preparation_order
from optest.core.verdicts import fault_verdict
from optest.process import exits_refused
from optest.settings.platforms import Platform, get_platform
from optest.spec import Fault, Reason, Status, TestCase, Verdict

_LOOK_S = 0.1
# Time limit of a build, unless the case's deadline, which is that of running, is longer.
_BUILD_S = 300.0
# After these the device may be broken.
_PROBED_STATUSES = frozenset({Status.CRASHED, Status.TIMEOUT})

_T = TypeVar("_T")
# Identity of a worker: platform, runtime, devices, and the position of its unit if it ends with that one.
_Key: TypeAlias = tuple[str, str, tuple[int, ...], int | None]


@dataclass(slots=True)
class RunningUnit:
    """A unit with its devices, its remaining executions, and the worker that runs them.

    ``lost`` is the device that does not work any more; nothing else runs on it.
    """

    looks_ahead: ClassVar[bool] = False

    assignment: Assignment
    executions: deque[Execution]
    worker: Executor
    probe: Callable[[RunningUnit, ExecutionResult], ExecutionResult]
    lost: int | None = None
    _last: ExecutionResult | None = None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:  # noqa: ARG002
        """Run the cases, probe the devices after a crash and return the result.

        If a device is lost, return the previous result without running anything. ``following`` is not used.
        """
        if self._last is None or self.lost is None:
            outcome = replace(self.worker.execute(cases), devices=self.assignment.ids)
            self._last = self.probe(self, outcome)
        return self._last

    def close(self) -> None:
        self.worker.close()


@dataclass(slots=True, eq=False)
class Dispatcher:
    """The devices of one run and their workers. Several threads may call every method.

    ``units`` are the units to run, in the order of the plan, each with its device request and its executions.
    ``make_worker`` creates an executor for a platform and devices. ``report`` receives the result of an execution that
    needs no device: a case that is skipped, or whose program cannot be built. ``notes`` are for the run's report.

    A caller that chooses cases one by one uses the dispatcher itself as an executor, without a schedule.
    """

    looks_ahead: ClassVar[bool] = False

    units: Mapping[Unit, tuple[DeviceRequest, deque[Execution]]]
    driver: BackendDriver
    ids: Sequence[int]
    rules: ScheduleRules
    leases: Leases
    make_worker: Callable[[Platform, tuple[int, ...]], Executor]
    report: Callable[[Execution, ExecutionResult], None] = lambda _execution, _result: None
    notes: list[str] = field(default_factory=list)
    _schedule: Schedule = field(init=False)
    _unit_of: dict[int, Unit] = field(init=False)
    _workers: dict[_Key, Executor] = field(default_factory=dict, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _leasing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _driver_lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _settled: set[int] = field(default_factory=set, init=False)
    _is_leased: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._schedule = Schedule(list(self.units), self.ids, self.rules)
        self._unit_of = {id(executions[0].first): unit for unit, (_, executions) in self.units.items()}

    def begin(self) -> None:
        """Enqueue all units; if the driver builds programs, in a daemon thread, each unit after its build."""
        if isinstance(self.driver, PreparesPrograms):
            threading.Thread(target=self._prepare, name="optest build", daemon=True).start()
        else:
            self._prepare()  # the schedule may choose among all from the start

    def take(self) -> RunningUnit | None:
        """Wait for the next unit and its devices and return them with a worker; None if no unit is left.

        Raises:
            UsageError: if a lease of a device cannot be written.
            Closed: if the run is interrupted meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_done() or self._schedule.has_waiting)
            if self._is_done():
                return None
        self._lease()
        with self._changed:
            assignment = self._changed.wait_for(lambda: self._is_done() or self._schedule.take())
        return self._with_worker(assignment) if isinstance(assignment, Assignment) else None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:  # noqa: ARG002
        """Run cases of one unit now, on the first devices of the pool; no other unit may run meanwhile."""
        unit = self._unit_of[id(cases[0])]
        verdict = self._fault_of_program(cases[0])
        self._lease()
        if verdict is None and unit.count > len(self._schedule.pool):
            verdict = self._too_few(unit)
        if verdict is not None:
            return ExecutionResult.for_all(cases, verdict)
        running = self._with_worker(Assignment(unit, self._schedule.pool[: unit.count]))
        try:
            return running.execute(cases)
        finally:
            self._end_worker(running)

    def release(self, running: RunningUnit) -> None:
        """Free the devices of a unit; enqueue it again if executions are left because a device was lost.

        If too few devices are left for it, report its executions as errors instead.
        """
        assignment = running.assignment
        self._end_worker(running)
        with self._changed:
            fits = assignment.unit.count <= len(self._schedule.pool)
            if running.executions and not fits:
                self._report_all(assignment.unit, self._too_few(assignment.unit))
            self._schedule.done(assignment, again=bool(running.executions) and fits)
            self._changed.notify_all()

    def settle(self, execution: Execution) -> None:
        """Record that the result of an execution was counted, which ends :meth:`wait_until_settled`."""
        with self._changed:
            self._settled.add(id(execution))
            self._changed.notify_all()

    def wait_until_settled(self, execution: Execution) -> None:
        """Wait until the result of the execution was counted, or the dispatcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or id(execution) in self._settled)

    def close(self) -> None:
        """Close all workers, release the devices, and let :meth:`take` return None in waiting threads."""
        with self._changed:
            self._is_closed = True
            workers = list(self._workers.values())
            self._changed.notify_all()
        with ThreadPoolExecutor(len(workers) or 1) as pool:  # a worker may need time to release its devices
            list(pool.map(lambda worker: worker.close(), workers))
        with self._leasing:
            self.leases.release()

    def _end_worker(self, running: RunningUnit) -> None:
        """Close the unit's worker before its devices are free, if the unit is exclusive or a device was lost."""
        with self._changed:
            ends = running.assignment.unit.exclusive or running.lost is not None
            worker = self._workers.pop(self._key(running.assignment), None) if ends else None
        if worker is not None:
            worker.close()

    def _probed(self, running: RunningUnit, outcome: ExecutionResult) -> ExecutionResult:
        """Probe the devices after a crash or timeout, remove one that fails, and return the result with notes."""
        verdicts = outcome.verdicts
        platform = get_platform(self.units[running.assignment.unit][0].platform)
        is_suspicious = any(
            verdict.status in _PROBED_STATUSES or verdict.reason is Reason.DEVICE_LOST for verdict in verdicts
        )
        if not platform.probe or self._is_closed or not is_suspicious:
            return outcome
        for device in running.assignment.ids:
            print_note(f"device {device} of {platform.name} is probed, because a case crashed or timed out on it")
            # a run that is closed does not wait for the probe
            health = next(iter(self._run_in_thread(partial(check_health, platform, device))), Health(True))
            if not health.is_healthy:
                running.lost = device
                self._lose(device, health.note)
            elif health.note:
                self._say(health.note)
            if health.note:
                verdicts = tuple([replace(noted, message=f"{noted.message}; {health.note}") for noted in verdicts])
        return replace(outcome, verdicts=verdicts)

    def _prepare(self) -> None:
        """Build the program of each unit, then enqueue it; report the executions of a unit that cannot run."""
        with ThreadPoolExecutor(os.cpu_count(), "optest build") as pool:
            unit_of = {pool.submit(self._why_not_run, unit): unit for unit in preparation_order(self.units)}
            # one device keeps the order of preparation; several would idle during a long build
            for future in unit_of if len(self.ids) == 1 else as_completed(unit_of):
                unit, verdict = unit_of[future], future.result()
                with self._changed:
                    if verdict is None and unit.count <= len(self._schedule.pool):
                        self._schedule.ready(unit)
                    else:
                        self._report_all(unit, verdict or self._too_few(unit))
                        self._schedule.drop(unit)
                    self._changed.notify_all()

    def _why_not_run(self, unit: Unit) -> Verdict | None:
        """Build the unit's program and return None; return a verdict if the unit is skipped or cannot be built."""
        if self._is_closed:
            return None
        case = self.units[unit][1][0].first
        with self._driver_lock:  # `unsupported` of a driver need not be thread-safe
            refusal = why_not_run(case, self.driver)
        return refusal or self._fault_of_program(case)

    def _is_done(self) -> bool:
        return self._is_closed or self._schedule.is_over

    def _fault_of_program(self, case: TestCase) -> Verdict | None:
        """Build the program of the case, if it has one; return a verdict if that fails or takes too long, else None."""
        driver = self.driver
        if not isinstance(driver, PreparesPrograms) or case.expects_error is not None:
            return None  # the worker of a case that expects an error builds, and compares the error

        def build() -> Verdict | None:
            try:
                with exits_refused(), Border("the backend's `prepare`", Reason.RAISED):
                    driver.prepare(case)
            except Fault as fault:
                return fault_verdict(fault)
            return None

        allowed_s = max(_BUILD_S, case.timeout_s or 0.0)
        message = f"the program was not built within {allowed_s:g} s; set a higher --timeout to allow more"
        late = Verdict(status=Status.TIMEOUT, reason=Reason.DEADLINE, message=message)
        return next(iter(self._run_in_thread(build, allowed_s)), late)

    def _run_in_thread(self, work: Callable[[], _T], allowed_s: float = math.inf) -> list[_T]:
        """Run ``work`` in a thread and return [result]; return [] if the time is over or the dispatcher closed."""
        # foreign code cannot be ended within a process, so that a daemon thread is left alone with it
        returned: list[_T] = []
        thread = threading.Thread(target=lambda: returned.append(work()), daemon=True)
        ends = time.monotonic() + allowed_s
        thread.start()
        while thread.is_alive() and not self._is_closed and time.monotonic() < ends:
            thread.join(_LOOK_S)
        return returned

    def _report_all(self, unit: Unit, verdict: Verdict) -> None:
        """Report the verdict for all remaining executions of the unit and remove them."""
        executions = self.units[unit][1]
        while executions:
            execution = executions.popleft()
            self.report(execution, ExecutionResult.for_all(execution.cases, verdict))

    def _lease(self) -> None:
        """Lease the run's devices, once; wait for at least as many as the largest unit needs."""
        with self._leasing:
            if self._is_leased or self._is_closed:
                return
            least = max((request.count for request, _ in self.units.values()), default=1)
            held = self.leases.acquire(self.ids, min(least, len(self.ids)), self._say, lambda: self._is_closed)
            with self._changed:
                self._schedule.restrict(held)
            self._is_leased = True

    def _with_worker(self, assignment: Assignment) -> RunningUnit:
        """Return the assigned unit with its worker, which is created if need be; raise Closed in a closed run."""
        request, executions = self.units[assignment.unit]
        platform, key, ended = get_platform(request.platform), self._key(assignment), list[Executor]()
        with self._changed:
            if self._is_closed:
                raise Closed("the run was interrupted while a case was waiting for its devices")
            if platform.one_runtime_per_process:  # end the workers of other runtimes on these devices
                ids = set(assignment.ids)
                others = [other for other in self._workers if other != key and not ids.isdisjoint(other[2])]
                ended += map(self._workers.pop, others)
            if key not in self._workers:
                self._workers[key] = self.make_worker(platform, assignment.ids)
            worker = self._workers[key]
        for other_worker in ended:
            other_worker.close()
        return RunningUnit(assignment, executions, worker, self._probed)

    def _key(self, assignment: Assignment) -> _Key:
        unit, request = assignment.unit, self.units[assignment.unit][0]
        return request.platform, request.runtime, assignment.ids, unit.index if unit.exclusive else None

    def _lose(self, device: int, note: str) -> None:
        """Remove a device from the schedule, and report the executions of units for which too few are left."""
        with self._changed:
            if device not in self._schedule.pool:
                return
            dropped = self._schedule.lose(device)
            left = ",".join(map(str, self._schedule.pool)) or "none"
            self._say(f"{note}: it is quarantined; devices left: {left}")
            for unit in dropped:
                self._report_all(unit, self._too_few(unit))
            self._changed.notify_all()

    def _say(self, note: str) -> None:
        print_note(note, self.notes)

    def _too_few(self, unit: Unit) -> Verdict:
        """Return the verdict ERROR/DEVICE_LOST of a unit that needs more devices than are left."""
        left = len(self._schedule.pool)
        message = f"the case needs {unit.count} devices, and {left} are left: {'; '.join(self.notes)}"
        return Verdict(status=Status.ERROR, reason=Reason.DEVICE_LOST, message=message)

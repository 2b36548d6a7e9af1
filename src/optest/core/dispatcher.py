"""Executions on devices: builds programs, holds devices, keeps workers alive, and looks after devices that crashed.

:mod:`optest.core.schedule` decides what runs where. The session's lanes ask here for the next unit and run it by the
worker that they get with it.
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
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

from optest.backends import BackendDriver
from optest.backends.worker_abilities import DeviceRequest, PreparesPrograms
from optest.core.border import Border
from optest.core.devices import Health, Leases, examined
from optest.core.executors import Closed, Executor, say
from optest.core.runner import ExecutionResult, why_not_run
from optest.core.schedule import Assignment, Schedule, ScheduleRules, Unit, preparation_order
from optest.core.verdicts import fault_verdict
from optest.process import exits_refused
from optest.settings.platforms import Platform, platform_called
from optest.spec import Fault, Reason, Status, TestCase, Verdict

if TYPE_CHECKING:
    from optest.core.session import Execution

_LOOK_S = 0.1
_BUILD_S = 300.0
"""How long a build may take at least; a case's own deadline is about what runs."""
_NOT_WELL = frozenset({Status.CRASHED, Status.TIMEOUT})

_T = TypeVar("_T")
_Key: TypeAlias = tuple[str, str, tuple[int, ...], int | None]
"""Of a worker: its platform, runtime and devices, and the place of the unit with which it ends."""


@dataclass(slots=True)
class Turn:
    """A unit that has its devices: what is still to be run of it, and an executor for that."""

    looks_ahead: ClassVar[bool] = False

    assignment: Assignment
    executions: deque[Execution]
    worker: Executor
    examine: Callable[[Turn, ExecutionResult], ExecutionResult]
    lost: int | None = None
    """The device that does not work any more; nothing else runs on it."""
    _last: ExecutionResult | None = None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:  # noqa: ARG002
        """Run the cases and look after the devices; a retry on one that was lost is the same outcome again."""
        if self._last is None or self.lost is None:
            outcome = replace(self.worker.execute(cases), devices=self.assignment.ids)
            self._last = self.examine(self, outcome)
        return self._last

    def close(self) -> None:
        self.worker.close()


@dataclass(slots=True, eq=False)
class Dispatcher:
    """The devices of one run and who works on them; every method may be called by several threads.

    ``units`` are what is to run, in the order of the plan, each with the request and the executions that it stands for.
    ``make_worker`` gives an executor for a platform and devices. ``report`` takes the outcome of what needs no device:
    a case that is refused, or whose program is not built.

    Who chooses the cases one by one asks the dispatcher itself as an executor; there is no schedule then.
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
    """What the report has to say of the devices."""
    _schedule: Schedule = field(init=False)
    _unit_of: dict[int, Unit] = field(init=False)
    _workers: dict[_Key, Executor] = field(default_factory=dict, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _leasing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)
    _settled: set[int] = field(default_factory=set, init=False)
    _is_leased: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._schedule = Schedule(list(self.units), self.ids, self.rules)
        self._unit_of = {id(executions[0].first): unit for unit, (_, executions) in self.units.items()}

    def begin(self) -> None:
        """Build the programs of all units ahead of the devices, in a thread that nobody waits for at the end."""
        if isinstance(self.driver, PreparesPrograms):
            threading.Thread(target=self._prepare, name="optest build", daemon=True).start()
        else:
            self._prepare()  # the schedule may choose among all from the start

    def take(self) -> Turn | None:
        """Wait for the next unit and its devices; None when there is none any more.

        Raises:
            UsageError: if leases of devices cannot be kept.
            Closed: if the run is ended meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_done() or self._schedule.has_waiting)
            if self._is_done():
                return None
        self._lease()
        with self._changed:
            assignment = self._changed.wait_for(lambda: self._is_done() or self._schedule.take())
        return self._turn(assignment) if isinstance(assignment, Assignment) else None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:  # noqa: ARG002
        """Run cases of one unit now, on the first devices, while nothing else runs."""
        unit = self._unit_of[id(cases[0])]
        verdict = self._fault_of_program(cases[0])
        self._lease()
        if verdict is None and unit.count > len(self._schedule.pool):
            verdict = self._too_few(unit)
        if verdict is not None:
            return ExecutionResult.for_all(cases, verdict)
        turn = self._turn(Assignment(unit, self._schedule.pool[: unit.count]))
        try:
            return turn.execute(cases)
        finally:
            self._end_worker(turn)

    def give_back(self, turn: Turn) -> None:
        """Take the devices of a unit back, and what is left of it where one of them was lost."""
        assignment = turn.assignment
        self._end_worker(turn)
        with self._changed:
            fits = assignment.unit.count <= len(self._schedule.pool)
            if turn.executions and not fits:
                self._without_device(assignment.unit, self._too_few(assignment.unit))
            self._schedule.done(assignment, again=bool(turn.executions) and fits)
            self._changed.notify_all()

    def settle(self, execution: Execution) -> None:
        """Say that the outcome of an execution was counted, for :meth:`wait_until_settled`."""
        with self._changed:
            self._settled.add(id(execution))
            self._changed.notify_all()

    def wait_until_settled(self, execution: Execution) -> None:
        """Wait until its outcome was counted, where that may end the run."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or id(execution) in self._settled)

    def close(self) -> None:
        """End every worker at once and give the devices back; whoever waits for a unit gets none."""
        with self._changed:
            self._is_closed = True
            workers = list(self._workers.values())
            self._changed.notify_all()
        with ThreadPoolExecutor(len(workers) or 1) as pool:  # each may take a while to give its devices back
            list(pool.map(lambda worker: worker.close(), workers))
        with self._leasing:
            self.leases.release()

    def _end_worker(self, turn: Turn) -> None:
        """End a worker that does not live on, before anybody else gets its devices."""
        with self._changed:
            ends = turn.assignment.unit.alone or turn.lost is not None
            worker = self._workers.pop(self._key(turn.assignment), None) if ends else None
        if worker is not None:
            worker.close()

    def _examined(self, turn: Turn, outcome: ExecutionResult) -> ExecutionResult:
        """The outcome, with what became of the devices where it may have been theirs."""
        verdicts = outcome.verdicts
        platform = platform_called(self.units[turn.assignment.unit][0].platform)
        is_well = all(each.status not in _NOT_WELL and each.reason is not Reason.DEVICE_LOST for each in verdicts)
        if not platform.probe or self._is_closed or is_well:
            return outcome
        for device in turn.assignment.ids:
            say(f"device {device} of {platform.name} is examined, since a case crashed or was late there")
            # a run that ends waits for no probe
            health = next(iter(self._returned(partial(examined, platform, device))), Health(True))
            if not health.is_healthy:
                turn.lost = device
                self._lose(device, health.note)
            elif health.note:
                self._say(health.note)
            if health.note:
                verdicts = tuple([replace(each, message=f"{each.message}; {health.note}") for each in verdicts])
        return replace(outcome, verdicts=verdicts)

    def _prepare(self) -> None:
        """Let every unit wait for its devices once it is built; where there is but one, in the order of the plan."""
        with ThreadPoolExecutor(os.cpu_count(), "optest build") as pool:
            found = {pool.submit(self._why_not_run, unit): unit for unit in preparation_order(self.units)}
            for future in found if len(self.ids) == 1 else as_completed(found):
                unit, verdict = found[future], future.result()
                with self._changed:
                    if verdict is None and unit.count <= len(self._schedule.pool):
                        self._schedule.ready(unit)
                    else:
                        self._without_device(unit, verdict or self._too_few(unit))
                        self._schedule.drop(unit)
                    self._changed.notify_all()

    def _why_not_run(self, unit: Unit) -> Verdict | None:
        if self._is_closed:
            return None
        case = self.units[unit][1][0].first
        with self._asking:  # a driver is asked by one thread at a time
            refusal = why_not_run(case, self.driver)
        return refusal or self._fault_of_program(case)

    def _is_done(self) -> bool:
        return self._is_closed or self._schedule.is_over

    def _fault_of_program(self, case: TestCase) -> Verdict | None:
        driver = self.driver
        if not isinstance(driver, PreparesPrograms) or case.expects_error is not None:
            return None  # whether an error is the expected one, the worker judges

        def build() -> Verdict | None:
            try:
                with exits_refused(), Border("the backend's `prepare`", Reason.RAISED):
                    driver.prepare(case)
            except Fault as fault:
                return fault_verdict(fault)
            return None

        allowed_s = max(_BUILD_S, case.timeout_s or 0.0)
        message = f"its program was not built within {allowed_s:g} s; --timeout S allows more"
        late = Verdict(status=Status.TIMEOUT, reason=Reason.DEADLINE, message=message)
        return next(iter(self._returned(build, allowed_s)), late)

    def _returned(self, work: Callable[[], _T], allowed_s: float = math.inf) -> list[_T]:
        """What foreign code returns in a thread of its own, nothing if the run or the time that it has ends before;
        nothing ends such a thread."""
        found: list[_T] = []
        thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
        ends = time.monotonic() + allowed_s
        thread.start()
        while thread.is_alive() and not self._is_closed and time.monotonic() < ends:
            thread.join(_LOOK_S)
        return found

    def _without_device(self, unit: Unit, verdict: Verdict) -> None:
        executions = self.units[unit][1]
        while executions:
            execution = executions.popleft()
            self.report(execution, ExecutionResult.for_all(execution.cases, verdict))

    def _lease(self) -> None:
        with self._leasing:
            if self._is_leased or self._is_closed:
                return
            least = max((request.count for request, _ in self.units.values()), default=1)
            held = self.leases.acquire(self.ids, min(least, len(self.ids)), self._say, lambda: self._is_closed)
            with self._changed:
                self._schedule.restrict(held)
            self._is_leased = True

    def _turn(self, assignment: Assignment) -> Turn:
        """The worker of an assignment, whose devices are nobody else's."""
        request, executions = self.units[assignment.unit]
        platform, key, ended = platform_called(request.platform), self._key(assignment), list[Executor]()
        with self._changed:
            if self._is_closed:
                raise Closed("the run was ended while a case was waiting for its devices")
            if platform.one_runtime_per_process:
                others = [each for each in self._workers if each != key and not set(each[2]).isdisjoint(assignment.ids)]
                ended += map(self._workers.pop, others)
            if key not in self._workers:
                self._workers[key] = self.make_worker(platform, assignment.ids)
            worker = self._workers[key]
        for each in ended:
            each.close()
        return Turn(assignment, executions, worker, self._examined)

    def _key(self, assignment: Assignment) -> _Key:
        unit, request = assignment.unit, self.units[assignment.unit][0]
        return request.platform, request.runtime, assignment.ids, unit.place if unit.alone else None

    def _lose(self, device: int, note: str) -> None:
        with self._changed:
            if device not in self._schedule.pool:
                return
            gone = self._schedule.lose(device)
            left = ",".join(map(str, self._schedule.pool)) or "none"
            self._say(f"{note}: it is quarantined; devices left: {left}")
            for unit in gone:
                self._without_device(unit, self._too_few(unit))
            self._changed.notify_all()

    def _say(self, note: str) -> None:
        say(note, self.notes)

    def _too_few(self, unit: Unit) -> Verdict:
        left = len(self._schedule.pool)
        message = f"{unit.count} devices needed, {left} left: {'; '.join(self.notes)}"
        return Verdict(status=Status.ERROR, reason=Reason.DEVICE_LOST, message=message)

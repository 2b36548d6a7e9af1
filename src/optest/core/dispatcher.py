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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

from optest.backends import BackendDriver
from optest.backends.worker_abilities import DeviceRequest, PreparesPrograms
from optest.core.border import Border
from optest.core.devices import Health, Leases, examined
from optest.core.executors import Closed, Executor
from optest.core.runner import ExecutionResult, why_not_run
from optest.core.schedule import Assignment, Schedule, ScheduleRules, Unit, preparation_order
from optest.core.verdicts import excused, fault_verdict
from optest.process import exits_refused
from optest.settings.platforms import Platform, platform_called
from optest.spec import Fault, Reason, Status, TestCase, Timings, Verdict

if TYPE_CHECKING:
    from optest.core.session import Execution

__all__ = ["Dispatcher", "Turn"]

_LOOK_S = 0.1
_BUILD_S = 300.0
"""How long a build may take at least; a case's own deadline is about what runs."""
_MAY_BE_THE_DEVICE = frozenset({Status.CRASHED, Status.TIMEOUT})


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

    def execute(
        self,
        cases: Sequence[TestCase],
        following: Sequence[Sequence[TestCase]] = (),  # noqa: ARG002 - part of the protocol
    ) -> ExecutionResult:
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
    a case that is refused, or whose program is not built. ``say`` tells the user at once what the run waits for.

    Who chooses the cases one by one asks the dispatcher itself as an executor; there is no schedule then.
    """

    looks_ahead: ClassVar[bool] = False

    units: Mapping[Unit, tuple[DeviceRequest, deque[Execution]]]
    driver: BackendDriver
    ids: Sequence[int]
    rules: ScheduleRules
    leases: Leases
    make_worker: Callable[[Platform, tuple[int, ...]], Executor]
    say: Callable[[str], None]
    report: Callable[[Execution, ExecutionResult], None] = lambda _execution, _result: None
    notes: list[str] = field(default_factory=list)
    """What the report has to say of the devices."""
    _schedule: Schedule = field(init=False)
    _unprepared: deque[Unit] = field(init=False)
    _order: deque[Unit] = field(init=False)
    _prepared: dict[int, Verdict | None] = field(default_factory=dict, init=False)
    _unit_of: dict[int, Unit] = field(init=False)
    _workers: dict[tuple[str, str, tuple[int, ...]], Executor] = field(default_factory=dict, init=False)
    """Those that live on, by platform, runtime and devices."""
    _busy: dict[int, Executor] = field(default_factory=dict, init=False)
    """Those that end with their unit, by its place."""
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _leasing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)
    _settled: set[int] = field(default_factory=set, init=False)
    _is_leased: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._schedule = Schedule(list(self.units), self.ids, self.rules)
        self._order = deque(preparation_order(self.units))
        self._unprepared = deque(self._order)
        self._unit_of = {id(executions[0].first): unit for unit, (_, executions) in self.units.items()}

    def begin(self) -> None:
        """Build the programs of all units ahead of the devices, in threads that nobody waits for at the end."""
        if not isinstance(self.driver, PreparesPrograms):
            self._prepare()  # the schedule may choose among all from the start
            return
        for _ in range(min(os.cpu_count() or 1, len(self.units))):
            threading.Thread(target=self._prepare, name="optest build", daemon=True).start()

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
            while not self._is_done():
                if (assignment := self._schedule.take()) is not None:
                    break
                self._changed.wait()
            else:
                return None
        return self._turn(assignment, self.units[assignment.unit][1])

    def execute(
        self,
        cases: Sequence[TestCase],
        following: Sequence[Sequence[TestCase]] = (),  # noqa: ARG002 - part of the protocol
    ) -> ExecutionResult:
        """Run cases of one unit now, on the first devices, while nothing else runs."""
        unit = self._unit_of[id(cases[0])]
        verdict = self._fault_of_program(cases[0])
        self._lease()
        if verdict is None and unit.count > len(self._schedule.pool):
            verdict = self._too_few(unit)
        if verdict is not None:
            return ExecutionResult(tuple([excused(case, verdict) for case in cases]), Timings())
        turn = self._turn(Assignment(unit, self._schedule.pool[: unit.count]), deque())
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
            self._unprepared.clear()
            workers = [*self._workers.values(), *self._busy.values()]
            self._changed.notify_all()
        with ThreadPoolExecutor(len(workers) or 1) as pool:  # each may take a while to give its devices back
            list(pool.map(lambda worker: worker.close(), workers))
        with self._leasing:
            self.leases.release()

    def _end_worker(self, turn: Turn) -> None:
        """End a worker that does not live on, before anybody else gets its devices."""
        with self._changed:
            worker = self._busy.pop(turn.assignment.unit.place, None)
            if turn.lost is not None:
                worker = worker or self._workers.pop(self._key(turn.assignment), None)
        if worker is not None:
            worker.close()

    def _examined(self, turn: Turn, outcome: ExecutionResult) -> ExecutionResult:
        """The outcome, with what became of the devices where it may have been theirs."""
        verdicts = outcome.verdicts
        platform = platform_called(self.units[turn.assignment.unit][0].platform)
        if not platform.probe or self._is_closed or not any(map(_may_be_the_device, verdicts)):
            return outcome
        for device in turn.assignment.ids:
            health = self._health(platform, device)
            if not health.is_healthy:
                turn.lost = device
                self._lose(device, health.note)
            elif health.note:
                self._tell(health.note)
            if health.note:
                verdicts = tuple([replace(each, message=f"{each.message}; {health.note}") for each in verdicts])
        return replace(outcome, verdicts=verdicts)

    def _prepare(self) -> None:
        while (unit := self._next_to_prepare()) is not None:
            case = self.units[unit][1][0].first
            verdict = self._refusal(case) or self._fault_of_program(case)
            with self._changed:
                self._prepared[unit.place] = verdict
                self._admit_prepared(unit)
                self._changed.notify_all()

    def _is_done(self) -> bool:
        return self._is_closed or self._schedule.is_over

    def _admit_prepared(self, unit: Unit) -> None:
        """Let what is built wait for its devices; where there is no choice of devices, in the order of the plan."""
        units = [unit]
        if len(self.ids) == 1:
            units = list(takewhile(lambda each: each.place in self._prepared, self._order))
        for each in units:
            verdict = self._prepared.pop(each.place)
            if verdict is None and each.count <= len(self._schedule.pool):
                self._schedule.ready(each)
            else:
                self._without_device(each, verdict or self._too_few(each))
                self._schedule.drop(each)
            if len(self.ids) == 1:
                self._order.popleft()

    def _health(self, platform: Platform, device: int) -> Health:
        """What a device's probe says; a run that ends waits for no probe."""
        self.say(f"device {device} of {platform.name} is examined, since a case crashed or was late there")
        found: list[Health] = []
        self._waits_for(lambda: found.append(examined(platform, device)))
        return found[0] if found else Health(True)

    def _next_to_prepare(self) -> Unit | None:
        with self._changed:
            return self._unprepared.popleft() if self._unprepared else None

    def _refusal(self, case: TestCase) -> Verdict | None:
        with self._asking:  # a driver is asked by one thread at a time
            return why_not_run(case, self.driver)

    def _fault_of_program(self, case: TestCase) -> Verdict | None:
        if not isinstance(self.driver, PreparesPrograms) or case.expects_error is not None:
            return None  # whether an error is the expected one, the worker judges
        driver, found = self.driver, list[Verdict | None]()

        def build() -> None:
            try:
                with exits_refused(), Border("the backend's `prepare`", Reason.RAISED):
                    driver.prepare(case)
            except Fault as fault:
                found.append(fault_verdict(fault))
            else:
                found.append(None)

        allowed_s = max(_BUILD_S, case.timeout_s or 0.0)
        if self._waits_for(build, allowed_s):
            return found[0]
        message = f"its program was not built within {allowed_s:g} s"
        return Verdict(status=Status.TIMEOUT, reason=Reason.DEADLINE, message=message)

    def _waits_for(self, work: Callable[[], None], allowed_s: float = math.inf) -> bool:
        """Whether foreign code comes to its end in a thread of its own, before the run does and in the time that it
        has; nothing ends such a thread."""
        thread, ends = threading.Thread(target=work, daemon=True), time.monotonic() + allowed_s
        thread.start()
        while thread.is_alive() and not self._is_closed and time.monotonic() < ends:
            thread.join(_LOOK_S)
        return not thread.is_alive()

    def _without_device(self, unit: Unit, verdict: Verdict) -> None:
        executions = self.units[unit][1]
        while executions:
            execution = executions.popleft()
            is_run = verdict.status is not Status.SKIPPED
            verdicts = [excused(case, verdict) if is_run else verdict for case in execution.cases]
            self.report(execution, ExecutionResult(tuple(verdicts), Timings()))

    def _lease(self) -> None:
        with self._leasing:
            if self._is_leased or self._is_closed:
                return
            least = max((request.count for request, _ in self.units.values()), default=1)
            held = self.leases.acquire(self.ids, min(least, len(self.ids)), self._tell, lambda: self._is_closed)
            with self._changed:
                self._schedule.restrict(held)
            self._is_leased = True

    def _turn(self, assignment: Assignment, executions: deque[Execution]) -> Turn:
        """The worker of an assignment, whose devices are nobody else's.

        Raises:
            Closed: if :meth:`close` was called.
        """
        request, unit = self.units[assignment.unit][0], assignment.unit
        platform, key = platform_called(request.platform), self._key(assignment)
        with self._changed:
            if self._is_closed:
                raise Closed("the run was ended while a case was waiting for its devices")
            others = self._others_on(assignment) if platform.one_runtime_per_process else []
            ended = [self._workers.pop(each) for each in others]
            if unit.alone:
                worker = self._busy[unit.place] = self.make_worker(platform, assignment.ids)
            else:
                worker = self._workers.get(key) or self.make_worker(platform, assignment.ids)
                self._workers[key] = worker
        for each in ended:
            each.close()
        return Turn(assignment, executions, worker, self._examined)

    def _key(self, assignment: Assignment) -> tuple[str, str, tuple[int, ...]]:
        request = self.units[assignment.unit][0]
        return request.platform, request.runtime, assignment.ids

    def _others_on(self, assignment: Assignment) -> list[tuple[str, str, tuple[int, ...]]]:
        mine = None if assignment.unit.alone else self._key(assignment)
        return [key for key in self._workers if key != mine and not set(key[2]).isdisjoint(assignment.ids)]

    def _lose(self, device: int, note: str) -> None:
        with self._changed:
            if device not in self._schedule.pool:
                return
            gone = self._schedule.lose(device)
            left = ",".join(map(str, self._schedule.pool)) or "none"
            self._tell(f"{note}: it is quarantined; devices left: {left}")
            for unit in gone:
                self._without_device(unit, self._too_few(unit))
            self._changed.notify_all()

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.say(note)
            self.notes.append(note)

    def _too_few(self, unit: Unit) -> Verdict:
        left = len(self._schedule.pool)
        message = f"{unit.count} devices needed, {left} left: {'; '.join(self.notes)}"
        return Verdict(status=Status.ERROR, reason=Reason.DEVICE_LOST, message=message)


def _may_be_the_device(verdict: Verdict) -> bool:
    return verdict.status in _MAY_BE_THE_DEVICE or verdict.reason is Reason.DEVICE_LOST

"""Scheduling of units on devices: a policy without threads, clocks or processes.

A unit is a group of executions that one worker runs without a break. Exclusive units (``alone``, level 3) have a
process and their devices to themselves; the others, shared units, use one worker for each runtime on each device. All
exclusive units run before the first shared one, and the runtimes one after the other if the platform requires it. With
``backfill`` all of them are one queue.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A waiting exclusive unit is overtaken by at most this many units per device; then nothing begins before it.
_PASSED_OVER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Executions that one worker runs without a break on ``count`` devices.

    ``place`` is its position in the plan and its identity. ``alone`` makes it exclusive. Units of one ``file`` stay on
    one worker unless devices would idle. ``expected_s`` is the estimated duration.
    """

    index: int
    runtime: str = ""
    count: int = 1
    exclusive: bool = False
    file: str = ""
    expected_s: float = 1.0

    @property
    def phase(self) -> str | None:
        """The runtime, or None of an exclusive unit: units of one phase may run at the same time."""
        return None if self.exclusive else self.runtime


class Assignment(NamedTuple):
    """A unit and the devices that are assigned to it until it is done."""

    unit: Unit
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRules:
    """Rules of a schedule: at most ``max_parallel`` units run at a time, however many devices they have.

    With ``backfill`` shared units may run before the exclusive ones are done. With ``one_runtime`` a process uses one
    runtime on a device and no other one.
    """

    max_parallel: int
    backfill: bool = False
    one_runtime: bool = False


def preparation_order(units: Iterable[Unit]) -> list[Unit]:
    """Sort units by the order in which they are likely to run: exclusive ones first, then by devices and duration."""
    return sorted(units, key=lambda unit: (not unit.exclusive, -unit.count, -unit.expected_s, unit.index))


class _Queue:
    """Waiting units; the longest is next, among equally long ones the first in the plan."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.expected_s = 0.0

    def push(self, unit: Unit) -> None:
        insort(self.units, unit, key=lambda queued: (queued.expected_s, -queued.index))
        self.expected_s += unit.expected_s

    def pop(self) -> Unit:
        unit = self.units.pop()
        self.expected_s -= unit.expected_s
        return unit


class Schedule:
    """Units of one run and the devices that they share.

    :meth:`ready` enqueues a unit, :meth:`take` assigns devices to the next one, :meth:`done` frees them. ``pool`` holds
    the devices that are neither lost nor held by another process. Equal sequences of calls give equal assignments.
    """

    def __init__(self, units: Sequence[Unit], ids: Sequence[int], rules: ScheduleRules) -> None:
        self._rules = rules
        self.pool = tuple(ids)
        self._free = list(ids)
        self._running: dict[int, Assignment] = {}
        self._exclusive: dict[int, _Queue] = defaultdict(_Queue)  # by number of devices
        self._shared: dict[tuple[str, str], _Queue] = defaultdict(_Queue)  # by runtime and file
        self._file_of: dict[int, tuple[str, str]] = {}  # by device, the runtime and file that it works on
        self._warm: dict[int, set[str]] = {device: set() for device in ids}  # runtimes with a worker on the device
        # Units of each phase that are not done. The order is that of the plan, in which runtimes follow each other.
        self._left = Counter(unit.phase for unit in units)
        # By number of devices: units that began since the last exclusive one of that size, while one was waiting.
        self._passed: Counter[int] = Counter()

    @property
    def is_over(self) -> bool:
        """Return whether every unit is done."""
        return not self._left.total()

    @property
    def has_waiting(self) -> bool:
        """Return whether a unit is ready and not running."""
        return any(queue.units for queue in self._queues())

    def restrict(self, ids: Sequence[int]) -> None:
        """Remove all devices but ``ids`` from the pool, before anything runs."""
        self.pool = tuple(device for device in self.pool if device in ids)
        self._free = list(self.pool)

    def ready(self, unit: Unit) -> None:
        """Enqueue a unit for its devices."""
        if unit.exclusive:
            self._exclusive[unit.count].push(unit)
        else:
            self._shared[unit.runtime, unit.file].push(unit)

    def drop(self, unit: Unit) -> None:
        """Count a unit as done that is in no queue and not running."""
        self._left[unit.phase] -= 1

    def take(self) -> Assignment | None:
        """Assign devices to the next unit; return None if no unit can begin now."""
        if (assignment := self._next()) is None:
            return None
        unit = assignment.unit
        self._running[unit.index] = assignment
        self._free = [device for device in self._free if device not in assignment.ids]
        for device in assignment.ids:
            if self._rules.one_runtime:  # the dispatcher ends the workers of other runtimes there
                self._warm[device].clear()
            if not unit.exclusive:
                self._warm[device].add(unit.runtime)
        if unit.exclusive:
            self._passed[unit.count] = 0
        for count, queue in self._exclusive.items():
            if queue.units and count > len(self._free) + len(assignment.ids):
                self._passed[count] += 1
        return assignment

    def done(self, assignment: Assignment, *, again: bool = False) -> None:
        """Free the devices of a unit; with ``again`` enqueue the unit once more, else count it as done."""
        del self._running[assignment.unit.index]
        self._free = [device for device in self.pool if device in assignment.ids or device in self._free]
        if again:
            self.ready(assignment.unit)
        else:
            self.drop(assignment.unit)

    def lose(self, device: int) -> list[Unit]:
        """Remove a device that is in use from the pool; drop and return the waiting units that need more than is left.

        :meth:`done` does not free it any more.
        """
        self.pool = tuple(kept for kept in self.pool if kept != device)
        self._file_of.pop(device, None)
        dropped: list[Unit] = []
        for queue in self._queues():
            while queue.units and queue.units[-1].count > len(self.pool):  # units of a queue have one count
                dropped.append(queue.pop())
        for unit in dropped:
            self.drop(unit)
        return dropped

    def _queues(self) -> tuple[_Queue, ...]:
        return (*self._exclusive.values(), *self._shared.values())

    def _next(self) -> Assignment | None:
        """Dequeue the next unit, an exclusive one if it fits, with devices for it; None if none may begin now."""
        free = len(self._free)
        if not free or len(self._running) >= self._rules.max_parallel:
            return None
        limit = _PASSED_OVER * len(self.pool)
        for count, passed in self._passed.items():
            if passed >= limit and count > free and self._exclusive[count].units:
                return None  # a wide unit was overtaken too often: devices must become free for it
        if (queue := self._longest_that_fits(free)) is not None:
            unit = queue.pop()
            return Assignment(unit, tuple(self._free[: unit.count]))
        return self._next_shared() if self._rules.backfill or not self._left[None] else None

    def _longest_that_fits(self, free: int) -> _Queue | None:
        """Return the queue of the exclusive unit that is next on ``free`` devices; None if none fits.

        It is the widest one; but the longest one if it takes at least as long as all waiting work spread over the pool.
        """
        waiting = sorted(count for count, queue in self._exclusive.items() if queue.units and count <= free)
        fitting = [self._exclusive[count] for count in waiting]
        if not fitting:
            return None
        longest = max(fitting, key=lambda queue: queue.units[-1].expected_s)
        work_s = sum(count * queue.expected_s for count, queue in self._exclusive.items())
        work_s += sum(queue.expected_s for queue in self._shared.values())
        return longest if longest.units[-1].expected_s >= work_s / len(self.pool) else fitting[-1]

    def _next_shared(self) -> Assignment | None:
        """Return the next shared unit and a free device for it; None if none may begin.

        A device continues its file; else it gets a file that no device works on, else the file with the most work left.
        """
        waiting = {key: queue for key, queue in self._shared.items() if queue.units}
        if self._rules.one_runtime and not self._rules.backfill:  # runtimes run one after the other
            runtime = next((phase for phase, left in self._left.items() if left and phase is not None), None)
            waiting = {key: queue for key, queue in waiting.items() if key[0] == runtime}
        if not waiting:
            return None
        for device in self._free:
            if self._file_of.get(device) in waiting:
                return Assignment(waiting[self._file_of[device]].pop(), (device,))
        taken = set(self._file_of.values())
        unclaimed = {key: queue for key, queue in waiting.items() if key not in taken}
        longest: dict[str, tuple[str, str]] = {}  # by runtime, the file with the most work
        for key, queue in (unclaimed or waiting).items():
            if key[0] not in longest or queue.expected_s > waiting[longest[key[0]]].expected_s:
                longest[key[0]] = key
        # A device whose worker has the runtime already, else one without a worker, else any; then the longest file.
        device, key = max(
            ((device, key) for device in self._free for key in longest.values()),
            key=lambda pair: (pair[1][0] in self._warm[pair[0]], not self._warm[pair[0]], waiting[pair[1]].expected_s),
        )
        self._file_of[device] = key
        return Assignment(waiting[key].pop(), (device,))

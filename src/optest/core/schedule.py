"""Which case is next, and on which devices: a policy without threads, clocks or processes.

A unit is what one worker runs at a stretch. Units that are ``alone`` (level 3) have a process and their devices for
themselves; the others share one worker for each runtime on each device. In the order of phases those alone come first
and the others after the last of them, where a platform demands it one runtime after the other; with ``backfill`` all of
them are one queue.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_PASSED_OVER = 4
"""So many times the number of devices narrower units may begin before a waiting one; from then on nothing begins before
it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one worker runs at a stretch on ``count`` devices; ``place`` is that in the plan, and its identity.

    Units of one ``file`` stay on one worker unless devices would idle. ``expected_s`` is how long it is likely to take.
    """

    place: int
    runtime: str = ""
    count: int = 1
    alone: bool = False
    file: str = ""
    expected_s: float = 1.0

    @property
    def phase(self) -> str | None:
        """None of what is alone, else the runtime: what has its turn by itself."""
        return None if self.alone else self.runtime


class Assignment(NamedTuple):
    """A unit, and the devices that it has until it is done."""

    unit: Unit
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRules:
    """``max_parallel`` bounds the units that run at a time, whatever they have of devices. With ``one_runtime`` a
    process that served one runtime on a device serves no other one there."""

    max_parallel: int
    backfill: bool = False
    one_runtime: bool = False


def preparation_order(units: Iterable[Unit]) -> list[Unit]:
    """The order in which units are likely to run: what is alone, then the wide, then the long."""
    return sorted(units, key=lambda unit: (not unit.alone, -unit.count, -unit.expected_s, unit.place))


class _Queue:
    """Units that wait, of which the longest is next, and among equals the first in the plan."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.expected_s = 0.0

    def push(self, unit: Unit) -> None:
        insort(self.units, unit, key=lambda each: (each.expected_s, -each.place))
        self.expected_s += unit.expected_s

    def pop(self) -> Unit:
        unit = self.units.pop()
        self.expected_s -= unit.expected_s
        return unit


class Schedule:
    """Units of one run and the devices that they share.

    :meth:`ready` puts a unit into the queue, :meth:`take` gives the next one its devices, :meth:`done` takes these
    back. The same calls in the same order give the same assignments.
    """

    def __init__(self, units: Sequence[Unit], ids: Sequence[int], rules: ScheduleRules) -> None:
        self._rules = rules
        self.pool = tuple(ids)
        """The devices that are neither lost nor another's."""
        self._free = list(ids)
        self._running: dict[int, Assignment] = {}
        self._alone: dict[int, _Queue] = defaultdict(_Queue)
        self._files: dict[tuple[str, str], _Queue] = defaultdict(_Queue)
        self._file_of: dict[int, tuple[str, str]] = {}
        """The file that each device is at."""
        self._warm: dict[int, set[str]] = {device: set() for device in ids}
        """The runtimes that have a worker on each device."""
        self._left = Counter(unit.phase for unit in units)
        """Units of each phase that are not done, in the order of the plan, in which runtimes take turns."""
        self._passed: Counter[int] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether every unit is done."""
        return not self._left.total()

    @property
    def has_waiting(self) -> bool:
        """Whether a unit is ready and not running."""
        return any(queue.units for queue in (*self._alone.values(), *self._files.values()))

    def restrict(self, ids: Sequence[int]) -> None:
        """Use these devices alone; nothing runs yet."""
        self.pool = tuple(device for device in self.pool if device in ids)
        self._free = list(self.pool)

    def ready(self, unit: Unit) -> None:
        """Let a unit wait for its devices."""
        if unit.alone:
            self._alone[unit.count].push(unit)
        else:
            self._files[unit.runtime, unit.file].push(unit)

    def drop(self, unit: Unit) -> None:
        """Count a unit that never waited as done."""
        self._left[unit.phase] -= 1

    def take(self) -> Assignment | None:
        """Give the next unit its devices; None as long as nothing can begin."""
        if (assignment := self._next()) is None:
            return None
        unit = assignment.unit
        self._running[unit.place] = assignment
        self._free = [device for device in self._free if device not in assignment.ids]
        for device in assignment.ids:
            if self._rules.one_runtime:
                self._warm[device].clear()
            if not unit.alone:
                self._warm[device].add(unit.runtime)
        if unit.alone:
            self._passed[unit.count] = 0
        for count, queue in self._alone.items():
            if queue.units and count > len(self._free) + len(assignment.ids):
                self._passed[count] += 1
        return assignment

    def done(self, assignment: Assignment, *, again: bool = False) -> None:
        """Take the devices of a unit back; with ``again`` the unit waits once more."""
        del self._running[assignment.unit.place]
        self._free = [each for each in self.pool if each in assignment.ids or each in self._free]
        if again:
            self.ready(assignment.unit)
        else:
            self.drop(assignment.unit)

    def lose(self, device: int) -> list[Unit]:
        """Never give a device that is in use away again. Returns the waiting units that need more than are left."""
        self.pool = tuple(each for each in self.pool if each != device)
        self._file_of.pop(device, None)
        gone: list[Unit] = []
        for queue in (*self._alone.values(), *self._files.values()):
            while queue.units and queue.units[-1].count > len(self.pool):  # those of a queue have one count
                gone.append(queue.pop())
        for unit in gone:
            self.drop(unit)
        return gone

    def _next(self) -> Assignment | None:
        free = len(self._free)
        if not free or len(self._running) >= self._rules.max_parallel:
            return None
        limit = _PASSED_OVER * len(self.pool)
        if any(passed >= limit and count > free and self._alone[count].units for count, passed in self._passed.items()):
            return None
        if (queue := self._longest_that_fits(free)) is not None:
            unit = queue.pop()
            return Assignment(unit, tuple(self._free[: unit.count]))
        return self._next_shared() if self._rules.backfill or not self._left[None] else None

    def _longest_that_fits(self, free: int) -> _Queue | None:
        """The queue of the widest unit that fits; a narrower one that takes as long as all that waits goes before."""
        fitting = [self._alone[count] for count in sorted(self._alone) if count <= free and self._alone[count].units]
        if not fitting:
            return None
        longest = max(fitting, key=lambda queue: queue.units[-1].expected_s)
        work_s = sum(count * queue.expected_s for count, queue in self._alone.items())
        work_s += sum(queue.expected_s for queue in self._files.values())
        return longest if longest.units[-1].expected_s >= work_s / len(self.pool) else fitting[-1]

    def _next_shared(self) -> Assignment | None:
        """The next unit for a worker that lives on: of the device's own file, of one that is no device's yet, or, where
        a device would idle, of the file with the most work left."""
        turn = next((phase for phase, left in self._left.items() if left and phase is not None), None)
        serial = self._rules.one_runtime and not self._rules.backfill
        waiting = {key: queue for key, queue in self._files.items() if queue.units and (not serial or key[0] == turn)}
        if not waiting:
            return None
        for device in self._free:
            if self._file_of.get(device) in waiting:
                return Assignment(waiting[self._file_of[device]].pop(), (device,))
        taken = set(self._file_of.values())
        unclaimed = {key: queue for key, queue in waiting.items() if key not in taken}
        longest: dict[str, tuple[str, str]] = {}
        for key, queue in (unclaimed or waiting).items():
            if key[0] not in longest or queue.expected_s > waiting[longest[key[0]]].expected_s:
                longest[key[0]] = key
        device, key = max(
            ((device, key) for device in self._free for key in longest.values()),
            key=lambda pair: (pair[1][0] in self._warm[pair[0]], not self._warm[pair[0]], waiting[pair[1]].expected_s),
        )
        self._file_of[device] = key
        return Assignment(waiting[key].pop(), (device,))

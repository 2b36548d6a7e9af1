"""The schedule of units over devices, on a clock that only moves when something ends."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.core.schedule import Assignment, Schedule, ScheduleRules, Unit, preparation_order


@dataclass
class Played:
    """Units of a schedule with their begin and end."""

    spans: list[tuple[Assignment, float, float]] = field(default_factory=list)
    gone: list[Unit] = field(default_factory=list)

    @property
    def makespan(self) -> float:
        return max(end for _, _, end in self.spans)

    def begin_of(self, place: int) -> float:
        return next(begin for item, begin, _ in self.spans if item.unit.index == place)

    def ids_of(self, place: int) -> tuple[int, ...]:
        return next(item.ids for item, _, _ in self.spans if item.unit.index == place)


def play(
    units: Sequence[Unit],
    ids: Sequence[int],
    *,
    max_parallel: int = 1_000,
    takes_s: dict[int, float] | None = None,
    losses: dict[int, int] | None = None,
    **rules: bool,
) -> Played:
    """Run all units, each as long as expected; ``losses`` names the device that fails with the unit of a place."""
    schedule = Schedule(units, ids, ScheduleRules(max_parallel=max_parallel, **rules))
    for unit in preparation_order(units):
        schedule.ready(unit)
    played, ends, now = Played(), list[tuple[float, int, Assignment]](), 0.0
    busy: set[int] = set()
    while not schedule.is_over:
        while (assignment := schedule.take()) is not None:
            assert not busy & set(assignment.ids)
            assert len(assignment.ids) == len(set(assignment.ids)) == assignment.unit.count
            busy |= set(assignment.ids)
            end = now + (takes_s or {}).get(assignment.unit.index, assignment.unit.expected_s)
            heapq.heappush(ends, (end, assignment.unit.index, assignment))
            played.spans.append((assignment, now, end))
            assert len(ends) <= max_parallel
        assert ends, "units wait, and nothing runs"
        now, place, assignment = heapq.heappop(ends)
        busy -= set(assignment.ids)
        lost = (losses or {}).get(place)
        if lost in assignment.ids and lost in schedule.pool:
            played.gone += schedule.lose(lost)
        schedule.done(assignment)
    return played


def alone(place: int, count: int, expected_s: float = 1.0, runtime: str = "a") -> Unit:
    return Unit(index=place, count=count, exclusive=True, expected_s=expected_s, runtime=runtime)


def shared(place: int, runtime: str = "a", file: str = "", expected_s: float = 1.0) -> Unit:
    return Unit(index=place, runtime=runtime, file=file, expected_s=expected_s)


def ideal(units: Sequence[Unit], devices: int) -> float:
    return max(sum(unit.count * unit.expected_s for unit in units) / devices, *(unit.expected_s for unit in units))


def mixed(count: int, seed: int, *, level: str) -> list[Unit]:
    draw = random.Random(seed)
    widths = [draw.choice((1, 2, 4, 8)) for _ in range(count)]
    return [
        Unit(
            index=place,
            count=width,
            exclusive=width > 1 or level == "3",
            expected_s=draw.uniform(0.5, 2.0),
            runtime=draw.choice("ab"),
            file=f"f{draw.randrange(20)}",
        )
        for place, width in enumerate(widths)
    ]


def test_device_ids_follow_seed_example() -> None:
    units = [alone(0, 2, 3.0), alone(1, 3, 2.0), alone(2, 1, 1.0), alone(3, 4, 1.0)]
    played = play(units, [8, 9, 10, 11])
    assert played.ids_of(3) == (8, 9, 10, 11)
    assert played.begin_of(3) == 0
    assert (played.ids_of(1), played.begin_of(1)) == ((8, 9, 10), 1)
    assert (played.ids_of(2), played.begin_of(2)) == ((11,), 1), "it fits beside the wide one, so it does not wait"
    assert (played.ids_of(0), played.begin_of(0)) == ((8, 9), 3), "two of four are free, of which two were given back"
    assert played.makespan == 6


@pytest.mark.parametrize("rules", [{}, {"backfill": True}, {"one_runtime": True}])
@pytest.mark.parametrize("level", ["3", "2 and 3"])
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_units_fill_eight_devices(seed: int, level: str, rules: dict[str, bool]) -> None:
    units = mixed(200, seed, level=level)
    assert play(units, range(8), **rules).makespan * 0.95 <= ideal(units, 8)


@pytest.mark.parametrize("rules", [{}, {"backfill": True}])
def test_ten_thousand_units_fill_sixty_four_devices(rules: dict[str, bool]) -> None:
    units = mixed(10_000, 1, level="2 and 3")
    assert play(units, range(64), **rules).makespan * 0.95 <= ideal(units, 64)


def test_wide_units_precede_narrow_and_short_ones() -> None:
    units = [alone(0, 1, 1.0), alone(1, 1, 3.0), alone(2, 1, 2.0), alone(3, 2, 0.5)]
    played = play(units, [0, 1])
    assert sorted(range(4), key=played.begin_of) == [3, 1, 2, 0]


def test_very_long_unit_precedes_wide_ones() -> None:
    units = [alone(0, 1, 10.0), *(alone(place, 2, 1.0) for place in range(1, 21))]
    assert play(units, range(4)).makespan < 17, "20 if the wide ones, two at a time, go first"


def test_backfill_starts_level_2_at_once() -> None:
    units = [shared(0), alone(1, 2, 5.0), shared(2), shared(3)]
    assert {play(units, range(3)).begin_of(place) for place in (0, 2, 3)} == {5.0}
    assert play(units, range(3), backfill=True).begin_of(0) == 0.0


def test_level_2_waits_for_unbuilt_level_3() -> None:
    units = [shared(0), alone(1, 1)]
    schedule = Schedule(units, [0], ScheduleRules(max_parallel=1))
    schedule.ready(units[0])
    assert schedule.take() is None
    schedule.drop(units[1])  # it did not compile
    assignment = schedule.take()
    assert assignment is not None
    assert assignment.unit is units[0]


def test_one_runtime_rule_serialises_runtimes() -> None:
    units = [shared(0, "b", expected_s=2.0), shared(1, "a"), shared(2, "b", expected_s=3.0)]
    played = play(units, [0, 1], one_runtime=True)
    assert [played.begin_of(place) for place in (0, 1, 2)] == [0, 3, 0]
    assert play(units, [0, 1, 2]).begin_of(1) == 0


def test_file_stays_on_device_unless_another_idles() -> None:
    units = [shared(place, file=f"f{place % 2}") for place in range(20)]
    devices: dict[str, set[int]] = defaultdict(set)
    for assignment, _, _ in play(units, [0, 1]).spans:
        devices[assignment.unit.file] |= set(assignment.ids)
    assert devices == {"f0": {0}, "f1": {1}}
    played = play([*(shared(place, file="long") for place in range(9)), shared(9, file="short")], [0, 1])
    assert played.begin_of(9) == 0, "a file that nobody is at goes before a part of another's"
    assert played.makespan == 5, "half of the long file is done by the device that has nothing else"


def test_wide_unit_is_not_starved() -> None:
    units = [shared(place, file=f"f{place}") for place in range(200)]
    units += [alone(200, 1, 0.5), alone(201, 2, 1.0)]
    schedule = Schedule(units, [0, 1], ScheduleRules(max_parallel=2, backfill=True))
    for unit in units[:201]:
        schedule.ready(unit)
    running = [schedule.take(), schedule.take()]
    schedule.ready(units[201])
    begun = 0
    while begun < 100:
        assignment = running.pop(0)
        assert assignment is not None
        schedule.done(assignment)
        following = schedule.take()
        if following is not None:
            running.append(following)
            begun += 1
            if following.unit is units[201]:
                break
    assert begun < 12


def test_single_device_follows_plan_order() -> None:
    units = [shared(place) for place in range(9)]
    assert [item.unit.index for item, _, _ in play(units, [5]).spans] == list(range(9))


def test_few_processes_stay_on_few_devices() -> None:
    units = [shared(place, file=f"f{place % 5}", expected_s=1.0 + place % 3) for place in range(100)]
    used = {item.ids for item, _, _ in play(units, range(16), max_parallel=2).spans}
    assert len(used) == 2, "a worker is there already"


def test_device_continues_with_its_runtime() -> None:
    lengths = {"b1": 9.0, "a1": 8.0, "b2": 7.0, "a2": 6.0}
    units = [shared(place, file[0], file, length) for place, (file, length) in enumerate(lengths.items())]
    assert {(item.unit.runtime, item.ids) for item, _, _ in play(units, [0, 1]).spans} == {("a", (1,)), ("b", (0,))}


def test_units_too_wide_are_dropped_once() -> None:
    units = [alone(0, 4, 9.0), alone(1, 4), alone(2, 2), shared(3)]
    played = play(units, range(4), losses={0: 2})
    assert [unit.index for unit in played.gone] == [1]
    assert all(2 not in item.ids for item, _, _ in played.spans[1:])
    assert len(played.spans) + len(played.gone) == 4
    played = play([shared(0), shared(1), alone(2, 1)], [7], losses={2: 7})
    assert sorted(unit.index for unit in played.gone) == [0, 1]


UNITS = st.lists(
    st.builds(
        dict,
        count=st.integers(1, 4),
        is_level_3=st.booleans(),
        runtime=st.sampled_from("abc"),
        file=st.sampled_from("xyz"),
        expected_s=st.sampled_from((0.5, 1.0, 1.0, 7.0)),
    ),
    min_size=1,
    max_size=40,
)


RULES = st.fixed_dictionaries(
    {"max_parallel": st.integers(1, 5), "backfill": st.booleans(), "one_runtime": st.booleans()}
)
LOSSES = st.dictionaries(st.integers(0, 39), st.integers(0, 3), max_size=2)


@given(UNITS, st.integers(4, 9), RULES, LOSSES, st.randoms(use_true_random=False))
def test_units_run_once_on_unshared_devices(
    drawn: list[dict[str, Any]], devices: int, rules: dict[str, Any], losses: dict[int, int], draw: random.Random
) -> None:
    units = [
        Unit(index=place, exclusive=bool(item.pop("is_level_3")) or item["count"] != 1, **item)
        for place, item in enumerate(drawn)
    ]
    takes_s = {unit.index: draw.uniform(0.1, 5.0) for unit in units}
    played = play(units, range(devices), takes_s=takes_s, losses=losses, **rules)
    ran = [item.unit.index for item, _, _ in played.spans]
    assert sorted([*ran, *(unit.index for unit in played.gone)]) == [unit.index for unit in units]
    if rules["one_runtime"] and not rules["backfill"]:
        of_level_2 = [item for item in played.spans if not item[0].unit.exclusive]
        for first, begin, end in of_level_2:
            others = [item.unit.runtime for item, began, ended in of_level_2 if began < end and ended > begin]
            assert set(others) <= {first.unit.runtime}

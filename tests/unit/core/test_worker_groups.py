"""Several executions at once in a worker: a death ends one of them, and all get the answer that each gets alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_looking_ahead import PLUGIN, Recorder, cases_of

from optest.backends import backend_manager
from optest.core import runner, worker_process
from optest.core import session as session_module
from optest.core.groups import split
from optest.core.phase_page import MOST_PLACES, PhasePage
from optest.core.phases import Phase
from optest.core.session import Policy, Session
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.settings import environment
from optest.spec import Reason, RunInfo, Status, TestCase


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "grouped_backend.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        __import__("grouped_backend").register()
        yield


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    options = WorkerOptions(
        driver="diary",
        scratch=tmp_path,
        environment=environment(),
        plugins=("grouped_backend",),
        answers_stay=True,
    )
    made = WorkerProcess(options, "worker")
    yield made
    made.close()


def groups_of(cases: Sequence[TestCase]) -> list[Sequence[TestCase]]:
    return [(case,) for case in cases]


def reasons(found: Sequence[runner.Execution]) -> list[Reason | None]:
    return [each.verdicts[0].reason for each in found]


HOSTILE = {
    "right0": None,
    "dies1": Reason.SIGNAL,
    "right2": None,
    "wrong3": Reason.VALUE,
    "exits4": Reason.EXIT_CODE,
    "right5": None,
    "lost6": Reason.DEVICE_LOST,
    "right7": None,
    "dies8": Reason.SIGNAL,
}


def test_a_death_ends_its_execution_alone(tmp_path: Path, worker: WorkerProcess) -> None:
    cases = cases_of(tmp_path / "diary", list(HOSTILE))
    assert reasons(worker.execute_together(groups_of(cases))) == list(HOSTILE.values())
    ran = Counter((tmp_path / "diary").read_text().split())
    assert ran.keys() == HOSTILE.keys()
    assert ran["dies1"] == 1  # what ended a worker is not asked again
    assert max(ran.values()) <= 2


@pytest.mark.parametrize("hanging", [0, 2, 4])
def test_a_hang_ends_its_execution_alone(tmp_path: Path, worker: WorkerProcess, hanging: int) -> None:
    names = [f"hangs{place}" if place == hanging else f"right{place}" for place in range(5)]
    cases = cases_of(tmp_path / "diary", names)
    cases[hanging] = replace(cases[hanging], timeout_s=1.0)
    worker.start()
    began = time.monotonic()
    found = worker.execute_together(groups_of(cases))
    assert reasons(found) == [Reason.DEADLINE if place == hanging else None for place in range(5)]
    assert found[hanging].verdicts[0].status is Status.TIMEOUT
    assert time.monotonic() - began < 100.0


def test_what_is_asked_ahead_dies_when_it_is_its_turn(tmp_path: Path, worker: WorkerProcess) -> None:
    first = groups_of(cases_of(tmp_path / "diary", ["right0", "right1"]))
    second = groups_of(cases_of(tmp_path / "diary", ["right2", "dies3", "right4"]))
    third = groups_of(cases_of(tmp_path / "diary", ["right5", "right6"]))
    assert reasons(worker.execute_together(first, second)) == [None, None]
    assert reasons(worker.execute_together(second, third)) == [None, Reason.SIGNAL, None]
    assert reasons(worker.execute_together(third)) == [None, None]
    assert Counter((tmp_path / "diary").read_text().split())["dies3"] == 1


def test_a_group_and_a_single_one_may_follow_each_other(tmp_path: Path, worker: WorkerProcess) -> None:
    group = groups_of(cases_of(tmp_path / "diary", ["right0", "wrong1"]))
    single = groups_of(cases_of(tmp_path / "diary", ["wrong2"]))
    (left,) = cases_of(tmp_path / "diary", ["right3"])
    assert reasons(worker.execute_together(group, single)) == [None, Reason.VALUE]
    assert reasons(worker.execute_together(single, group)) == [Reason.VALUE]
    assert reasons([worker.execute([left])]) == [None]  # nobody waits for the group any more
    assert reasons(worker.execute_together(group)) == [None, Reason.VALUE]


def test_a_case_that_cannot_be_built_there_is_told_of_it_alone(
    tmp_path: Path, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = cases_of(tmp_path / "diary", ["right0", "right1", "right2"])
    told = worker_process.case_to_wire

    def wire(case: TestCase) -> dict[str, Any]:
        return {**told(case), "op": "no_such_operator"} if case.name == "right1" else told(case)

    monkeypatch.setattr(worker_process, "case_to_wire", wire)
    assert reasons(worker.execute_together(groups_of(cases))) == [None, Reason.BAD_CASE, None]


def test_what_cases_share_is_sent_once_and_kept_apart_where_it_only_seems_equal() -> None:
    wires = [
        [{"op": "add", "seed": 1, "attributes": {"alpha": 1}, "backend_config": {"a": {"b": 0.0}}, "inputs": ()}],
        [{"op": "add", "seed": 1, "attributes": {"alpha": 1.0}, "backend_config": {"a": {"b": -0.0}}, "inputs": ()}],
        [{"op": "add", "seed": 1, "attributes": {"alpha": True}, "backend_config": {"a": {"b": 0.0}}, "tags": ()}],
    ]
    common, own = split(wires)
    assert common == {"op": "add"}
    assert [[{**common, **wire} for wire in group] for group in own] == wires
    assert [type(group[0]["attributes"]["alpha"]) for group in own] == [int, float, bool]


def test_the_page_says_whose_phase_it_is(tmp_path: Path) -> None:
    with PhasePage(tmp_path / "page", create=True) as ours, PhasePage(tmp_path / "page") as theirs:
        for place in (0, 1, MOST_PLACES - 1):
            theirs.write(Phase.RUN, place)
            assert (ours.read()[0], ours.place()) == (Phase.RUN, place)
        theirs.write(Phase.IDLE)
        assert (ours.read()[0], ours.place()) == (Phase.IDLE, 0)


class Kept:
    """The worker without its end, and what it was asked together."""

    looks_ahead = True

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self.sizes: list[int] = []
        self.execute, self.takes_with_others = worker.execute, worker.takes_with_others

    def execute_together(self, groups: Any, following: Any = None) -> list[runner.Execution]:
        self.sizes.append(len(groups))
        return self._worker.execute_together(groups, following)

    def close(self) -> None:
        return None


def test_a_session_asks_in_groups_and_records_every_case_in_order(
    tmp_path: Path, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_TOGETHER_S", 1e9)  # however slow the machine is
    names = [f"dies{place}" if place % 10 == 7 else f"right{place}" for place in range(40)]
    names[20] = "unsupported20"
    cases = cases_of(tmp_path / "diary", names)
    recorder, executor = Recorder(), Kept(worker)
    session = Session(
        info=RunInfo(run_id="r", started_at="now", total=len(cases), target="diary", seed=0),
        cases=cases,
        driver=backend_manager.get("diary"),
        make_executor=lambda _: executor,
        journal=recorder,
        listener=recorder,
        policy=Policy(),
    )
    session.run()
    assert session.failure is None
    assert [each.id for each in recorder.results] == names
    expected = {"right": None, "dies": Reason.SIGNAL, "unsupported": Reason.UNSUPPORTED}
    assert [each.reason for each in recorder.results] == [expected[name.rstrip("0123456789")] for name in names]
    assert max(executor.sizes) > 1


def test_many_cases_with_a_retry_are_asked_one_by_one(tmp_path: Path, worker: WorkerProcess) -> None:
    cases = [replace(case, retries=1) for case in cases_of(tmp_path / "diary", ["right0", "dies1", "right2"])]
    recorder, executor = Recorder(), Kept(worker)
    session = Session(
        info=RunInfo(run_id="r", started_at="now", total=len(cases), target="diary", seed=0),
        cases=cases,
        driver=backend_manager.get("diary"),
        make_executor=lambda _: executor,
        journal=recorder,
        listener=recorder,
        policy=Policy(),
    )
    session.run()
    assert [each.attempts for each in recorder.results] == [1, 2, 1]
    assert executor.sizes == []

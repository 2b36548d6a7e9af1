"""Cases that are asked for one by one: quick ones run at once with those that follow, slow ones keep nobody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from user_shell import driver_text

from optest.api import collecting
from optest.api.collecting import CaseStream
from optest.api.run_request import run_request
from optest.backends import BackendDriver, backend_manager
from optest.errors import OptestError
from optest.spec import RunSummary, Status, TestCase
from optest.store import read_journal

proceed = threading.Event()


class Waiting(BackendDriver):
    """Writes down what it is asked; the third case waits until it may go on."""

    name = kind = "waiting"
    reads_inputs = False  # each case is one call

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waited = False

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any] | Sequence[Any]:
        self.asked.append(case.name)
        if case.name == "c2":
            self.waited = proceed.wait(60)
        return [abs(inputs[0])]


@pytest.fixture
def driver() -> Waiting:
    made = Waiting()
    backend_manager.register(made, replace=True)
    proceed.clear()
    return made


@pytest.fixture
def stream(tmp_path: Path, driver: Waiting) -> Iterator[CaseStream]:
    lines = [f"  - {{op: abs, name: c{number}, shapes: {{input0: [{number + 2}]}}}}\n" for number in range(6)]
    (tmp_path / "plan.yaml").write_text("cases:\n" + "".join(lines))
    options = {"runs_dir": str(tmp_path / "runs"), "isolate": "none", "backend": driver.name}
    made = CaseStream(run_request({**options, "plan": str(tmp_path / "plan.yaml")}))
    yield made
    proceed.set()
    made.close()


def cases_of(stream: CaseStream) -> Sequence[TestCase]:
    return [group[0] for group in stream.groups()]


@pytest.mark.parametrize(
    ("together_s", "most", "first"),
    [
        (600.0, 9, ["c0", "c1", "c2", "c3", "c4"]),  # so that all are quick on any machine
        (600.0, 2, ["c0", "c1"]),
        (0.0, 9, ["c0"]),
    ],
)
def test_quick_cases_that_follow_are_run_at_once(
    stream: CaseStream, driver: Waiting, monkeypatch: pytest.MonkeyPatch, together_s: float, most: int, first: list[str]
) -> None:
    monkeypatch.setattr(collecting, "_TOGETHER_S", together_s)
    monkeypatch.setattr(collecting, "_MOST_TOGETHER", most)
    proceed.set()
    cases = cases_of(stream)
    assert stream.result(cases[0], lambda: cases[1:5]).status is Status.PASSED
    assert driver.asked == first
    assert [stream.result(case).id for case in cases] == [case.id for case in cases]
    assert driver.asked == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_result_does_not_wait_for_following_cases(stream: CaseStream, driver: Waiting) -> None:
    cases = cases_of(stream)
    for place, case in enumerate(cases[:2]):
        stream.result(case, lambda place=place: cases[place + 1 :])  # type: ignore[misc]
    proceed.set()
    for case in cases[2:]:
        assert stream.result(case).status is Status.PASSED
    assert driver.waited
    assert driver.asked == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_nothing_is_run_that_was_not_promised(stream: CaseStream, driver: Waiting) -> None:
    cases = cases_of(stream)
    stream.result(cases[4])
    stream.result(cases[1], lambda: [cases[0]])
    stream.close()
    assert driver.asked[:2] == ["c4", "c1"]
    assert set(driver.asked[2:]) <= {"c0"}


def summary_of(stream: CaseStream) -> RunSummary:
    assert stream.info is not None
    summary = read_journal(Path(stream.info.directory) / "journal.jsonl").summary
    assert summary is not None
    return summary


@pytest.mark.parametrize("at_once", [False, True])
def test_ctrl_c_between_cases_interrupts_the_run(stream: CaseStream, at_once: bool) -> None:
    """Not one that ends since nobody asks for the others, as after a failure."""
    stream.result(cases_of(stream)[0])
    stream.close(at_once=at_once)
    summary = summary_of(stream)
    status = 130 if at_once else 0
    assert (summary.finished, summary.interrupted, summary.exit_status) == (1, at_once, status)


def test_ctrl_c_after_the_end_changes_nothing(stream: CaseStream) -> None:
    proceed.set()
    for case in cases_of(stream):
        stream.result(case)
    stream.close(at_once=True)
    assert not summary_of(stream).interrupted


LOADS_SLOWLY = """\
import sys, time
from pathlib import Path
if "optest.core.worker" in sys.orig_argv:
    Path(__file__).with_name("loading").touch()
    time.sleep(600)
"""


def test_ctrl_c_interrupts_a_loading_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = driver_text("loads_slowly", "return [abs(inputs[0])]", LOADS_SLOWLY)
    (tmp_path / "loads_slowly.py").write_text(text)
    (tmp_path / "plan.yaml").write_text("cases:\n  - {op: abs, shapes: {input0: [3]}}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPTEST_PLUGINS", "loads_slowly")
    options = {"runs_dir": str(tmp_path / "runs"), "backend": "loads_slowly"}
    stream = CaseStream(run_request({**options, "plan": str(tmp_path / "plan.yaml")}))
    told: list[BaseException] = []

    def ask() -> None:
        try:
            stream.result(cases_of(stream)[0])
        except OptestError as error:
            told.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    ends = time.monotonic() + 200
    while not (tmp_path / "loading").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    closing = threading.Thread(target=lambda: stream.close(at_once=True), daemon=True)
    closing.start()
    for thread in (closing, asking):
        thread.join(200)
        assert not thread.is_alive()
    assert "was closed" in str(told[0])

"""Whole runs on devices, by a backend whose devices are files: who runs where, and what a broken device costs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock
from texts import refusal, says

from optest.api.collecting import CaseStream
from optest.api.run_request import run_request
from optest.api.running import Report, run
from optest.core import dispatcher
from optest.errors import UsageError
from optest.reporting import Reporter
from optest.settings.platforms import share_of_devices
from optest.settings.variables import leases_folder
from optest.spec import CaseResult, Reason, RunInfo, RunSummary, Status
from optest.store import read_journal

Case = Mapping[str, Any]


@dataclass
class Toys:
    """A folder of toy devices, and runs on them."""

    folder: Path
    backend: str = "toy"
    stream: io.StringIO = field(default_factory=io.StringIO)

    def plan(self, cases: Mapping[str, Case]) -> str:
        """A plan of these cases: names, and what the backend does with them; ``case`` has other keys of the case."""
        entries = []
        for place, (name, config) in enumerate(cases.items()):
            entry = {"op": "add", "name": name, "dtypes": "float32"}
            entry["shapes"] = {"input0": f"1x{place + 1}", "input1": f"1x{place + 1}"}
            own = {key: value for key, value in config.items() if key != "case"}
            entries.append({**entry, **config.get("case", {}), "backend_config": {self.backend: own}})
        path = self.folder / "plan.yaml"
        path.write_text(yaml.safe_dump({"backend": self.backend, "cases": entries}))
        return str(path)

    def run(self, cases: Mapping[str, Case], device: str = "0", **options: Any) -> Report:
        self.stream = io.StringIO()
        return run({"plan": self.plan(cases), "device": device, **options}, stream=self.stream)

    def log(self, event: str) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text().splitlines() if (self.folder / "log").exists() else []
        return [each for line in lines if (each := json.loads(line))["event"] == event]


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toys:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTEST_PLUGINS", "toy_devices")
    monkeypatch.setenv("TOY_FOLDER", str(tmp_path))
    monkeypatch.setenv("OPTEST_LEASES", str(tmp_path / "leases"))
    monkeypatch.delenv("DEVICE_RANGE", raising=False)
    return Toys(tmp_path)


def by_name(outcome: Report) -> dict[str, CaseResult]:
    return {result.id: result for result in outcome.results}


def statuses(outcome: Report) -> dict[str, str]:
    return {result.id: result.status.value for result in outcome.results}


def all_passed(outcome: Report, count: int) -> bool:
    return Counter(statuses(outcome).values()) == {"passed": count}


def test_one_worker_serves_a_runtime_on_a_device_for_the_whole_run(toys: Toys) -> None:
    cases = {
        f"{runtime}{place}": {"runtime": runtime, "file": f"f{place % 3}"} for place in range(6) for runtime in "ab"
    }
    outcome = toys.run(cases, "4,5", max_parallel="2", rounds=2)
    assert len(outcome.results) == 24
    assert all_passed(outcome, 12), statuses(outcome)
    opened = Counter((each["runtime"], *each["ids"]) for each in toys.log("open"))
    assert set(opened.values()) == {1}, opened
    assert {device for _, device in opened} <= {4, 5}
    assert all(each["mask"] == ",".join(map(str, each["ids"])) for each in toys.log("open"))
    ran = [each["case"] for each in toys.log("begin")]
    assert all(ran.count(name) == 2 for name in cases)
    journal = read_journal(outcome.directory.journal_path)
    assert {result.devices for result in journal.results} <= {(4,), (5,)}
    assert all(result.began_s is not None and result.began_s >= 0 for result in journal.results)


@pytest.mark.heavy
def test_level_3_has_a_process_and_its_devices_for_itself_and_goes_first(toys: Toys) -> None:
    cases = {
        "narrow": {},
        "wide0": {"level": 3, "count": 2, "runtime": "b"},
        "wide1": {"level": 3, "count": 2, "runtime": "b"},
        "single": {"level": 3, "runtime": "b"},
        "narrow1": {},
    }
    outcome = toys.run(cases, "8-11", max_parallel="3")
    assert all_passed(outcome, 5)
    opened = toys.log("open")
    assert len({each["pid"] for each in opened if each["runtime"] == "b"}) == 3
    assert len(by_name(outcome)["wide0"].devices) == 2
    last_wide = max(each["time"] for each in toys.log("end") if each["runtime"] == "b")
    assert min(each["time"] for each in toys.log("begin") if each["runtime"] == "a") > last_wide


@pytest.mark.heavy
def test_a_process_never_serves_a_second_runtime_where_the_platform_forbids_it(toys: Toys) -> None:
    cases = {
        f"{runtime}{place}": {
            "runtime": runtime,
            "platform": "toy",
            "level": 3 if place == 3 else 2,
            "case": {"timeout": 60},
        }
        for place in range(4)
        for runtime in "abc"
    }
    assert all_passed(toys.run(cases, "0,1", max_parallel="2", schedule="backfill"), 12)
    of_process: dict[int, set[str]] = defaultdict(set)
    for each in toys.log("begin"):
        of_process[each["pid"]].add(each["runtime"])
    assert set(map(len, of_process.values())) == {1}


@pytest.mark.parametrize("backend", ["toy", "toy_compiler"])
def test_a_single_device_goes_by_the_plan_as_without_devices(toys: Toys, backend: str) -> None:
    toys.backend = backend
    cases = {f"case{place}": {"file": f"f{place % 2}", "compile_s": 0.4 - place / 15} for place in range(6)}
    outcome = toys.run(cases)
    assert [result.id for result in outcome.results] == list(cases)
    assert [result.isolation for result in outcome.results] == ["worker"] * 6
    assert len({each["pid"] for each in toys.log("begin")}) == 1


@pytest.mark.heavy
def test_as_many_processes_are_busy_as_max_parallel_allows(toys: Toys) -> None:
    cases = {
        f"case{place}": {"sleep_s": 0.05, "level": 2 + place % 2, "count": 1 + 2 * (place % 2)} for place in range(12)
    }
    assert all_passed(toys.run(cases, "0-15", max_parallel="2"), 12)
    edges = [(each["time"], 1) for each in toys.log("begin")] + [(each["time"], -1) for each in toys.log("end")]
    busy = most = 0
    for _, change in sorted(edges):
        busy += change
        most = max(most, busy)
    assert most <= 2


def test_a_case_that_needs_more_devices_than_there_are_stops_the_run_before_it_begins(toys: Toys) -> None:
    with refusal(UsageError, "integration.widen_device_or_reduce") as error:
        toys.run({"small": {}, "wide": {"level": 3, "count": 8}}, "0-1")
    assert "wide needs 8" in str(error.value)
    assert "small" not in str(error.value)
    assert not toys.log("begin")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "4-2"}, "counts down"),
        ({"device": "x"}, "neither an id nor a range"),
        ({"device": "-1"}, "neither an id nor a range"),
        ({"device": "0,0"}, "occurs twice"),
        ({"max_parallel": "0"}, "expected auto, or a number"),
        ({"max_parallel": "two"}, "expected auto, or a number"),
        ({"isolate": "none"}, "which run in workers"),
        ({"jobs": 2}, "--jobs is not for cases that need devices"),
    ],
)
def test_options_that_are_wrong_are_refused(toys: Toys, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        toys.run({"one": {"platform": "toy"}}, **options)


def test_the_variable_of_ci_names_the_devices_where_no_option_does(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE_RANGE", "6-7")
    outcome = run({"plan": toys.plan({"one": {}})}, stream=io.StringIO())
    assert by_name(outcome)["one"].devices == (6,)


def test_a_death_costs_its_own_case_and_the_worker_is_replaced(toys: Toys) -> None:
    cases: dict[str, Case] = {
        "before": {},
        "crash": {"do": "crash"},
        "hang": {"do": "hang", "case": {"timeout": 0.5}},
        "after": {},
        "killed": {"do": "killed", "level": 3, "count": 2},
        "flaky": {"do": "killed until once", "case": {"retries": 1}},
        "poison": {"do": "poison until poisoned", "case": {"retries": 1}},
    }
    outcome = toys.run(cases, "0,1", max_parallel="2")
    assert statuses(outcome) == {
        "before": "passed",
        "crash": "crashed",
        "hang": "timeout",
        "after": "passed",
        "killed": "crashed",
        "flaky": "suspect",
        "poison": "suspect",  # its device was reset before the second attempt
    }


def test_programs_are_built_before_a_device_is_held(toys: Toys) -> None:
    toys.backend = "toy_compiler"
    cases = {
        "broken": {"does_not_compile": True, "level": 3, "count": 2},
        "expected": {"does_not_compile": True, "case": {"xfail": {"status": "error", "reason": "known"}}},
        "fine": {},
    }
    outcome = toys.run(cases, "0,1")
    results = by_name(outcome)
    assert (results["broken"].status, results["broken"].reason) == (Status.ERROR, Reason.COMPILE)
    assert results["broken"].devices == ()
    assert results["expected"].status is Status.XFAILED
    assert [each["case"] for each in toys.log("begin")] == ["fine"]


@pytest.mark.heavy
def test_skipped_cases_and_those_without_devices_have_results_too(toys: Toys) -> None:
    cases = {"skipped": {"count": 9, "case": {"skip": "not today"}}, "plain": {"nothing": True}, "one": {}}
    assert statuses(toys.run(cases)) == {"skipped": "skipped", "plain": "passed", "one": "passed"}


@pytest.mark.heavy
def test_a_device_that_recovers_by_a_reset_is_used_again(toys: Toys) -> None:
    outcome = toys.run({"poison": {"do": "poison"}, "after": {}})
    assert statuses(outcome) == {"poison": "crashed", "after": "passed"}
    assert says(by_name(outcome)["poison"].verdict.message, "integration.is_well_after_reset")
    assert outcome.summary.notes == ("device 0 failed its probe (exit code 4: no answer) and works after a reset",)


def test_a_device_that_fails_is_quarantined_and_the_run_goes_on(toys: Toys) -> None:
    cases: dict[str, Case] = {
        "ruin": {"do": "ruin", "level": 3, "count": 2},
        "wide": {"level": 3, "count": 2},
        **{f"case{place}": {} for place in range(4)},
    }
    outcome = toys.run(cases, "3,5", max_parallel="2", rounds=2)
    results = {(result.id, result.round): result for result in outcome.results}
    assert len(results) == 12
    assert results["ruin", 0].reason is Reason.DEVICE_LOST
    lost = [results["ruin", 1], results["wide", 0], results["wide", 1]]
    assert {(each.status, each.reason) for each in lost} == {(Status.ERROR, Reason.DEVICE_LOST)}
    assert lost[0].verdict.message.startswith("the case needs 2 devices, and 1 are left: device 3 failed its probe")
    assert {each.devices for each in outcome.results if each.status is Status.PASSED} == {(5,)}
    assert says(toys.stream.getvalue(), "integration.device_failed_its_probe")
    assert says(outcome.summary.notes[0], "integration.it_is_quarantined_devices")


@pytest.mark.heavy
def test_what_is_left_of_a_case_runs_on_another_device(toys: Toys) -> None:
    outcome = toys.run({"ruin": {"do": "ruin until ruined"}}, "3,5", rounds=2)
    assert [(each.round, each.status.value, each.devices) for each in outcome.results] == [
        (0, "crashed", (3,)),
        (1, "passed", (5,)),
    ]


def test_the_run_ends_where_no_device_is_left(toys: Toys) -> None:
    outcome = toys.run({"ruin": {"do": "ruin"}, "a": {}, "b": {}})
    assert statuses(outcome) == {"ruin": "crashed", "a": "error", "b": "error"}
    assert "devices left: none" in outcome.summary.notes[0]


def test_the_first_failure_ends_what_runs_and_begins_nothing_else(toys: Toys) -> None:
    cases = {
        "wrong": {"off": 1, "level": 3, "sleep_s": 0.3},
        "hung": {"do": "hang", "level": 3},
        "queued": {"level": 3, "sleep_s": 0.1},
        "level2": {},
    }
    outcome = toys.run(cases, "0,1", max_parallel="2", exitfirst=True)
    assert statuses(outcome) == {"wrong": "failed"}, "the one that hangs is not waited for"
    assert "level2" not in {each["case"] for each in toys.log("begin")}


class Slow(Reporter):
    """A listener while which another case could begin."""

    def on_start(self, info: RunInfo) -> None: ...

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        time.sleep(0.3)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None: ...


@pytest.mark.heavy
def test_a_resumed_run_runs_what_is_left(toys: Toys) -> None:
    cases = {"a": {}, "wrong": {"off": 1}, "b": {}}
    first = run({"plan": toys.plan(cases), "device": "0", "exitfirst": True}, stream=io.StringIO(), reporters=[Slow()])
    assert list(statuses(first)) == ["a", "wrong"]
    outcome = run({"resume": first.directory.id}, stream=io.StringIO())
    assert statuses(outcome) == {"a": "passed", "wrong": "failed", "b": "passed"}
    assert [each["case"] for each in toys.log("begin")] == ["a", "wrong", "b"]


@pytest.mark.heavy
def test_what_took_longest_last_time_begins_first(toys: Toys) -> None:
    names = [f"case{place}" for place in range(4)]
    toys.run({name: {"level": 3, "sleep_s": 2.0 if name == "case3" else 0.0} for name in names}, "0,1")
    (toys.folder / "log").unlink()
    toys.run({name: {"level": 3} for name in names}, "0,1", max_parallel="1")
    assert toys.log("begin")[0]["case"] == "case3"


@pytest.mark.heavy
def test_timings_in_a_simulation_are_taken_one_at_a_time(toys: Toys) -> None:
    cases = {f"case{place}": {"level": 3} for place in range(3)}
    outcome = toys.run(cases, "0-3", max_parallel="3", bench=True, bench_time="1ms")
    assert read_journal(outcome.directory.journal_path).info.jobs == 1  # type: ignore[union-attr]


# Faces that ask for one case after the other.


@pytest.mark.heavy
def test_a_face_that_asks_one_by_one_has_cases_run_side_by_side(toys: Toys) -> None:
    cases = {f"case{place}": {"level": 3, "count": 2, "sleep_s": 0.5} for place in range(4)}
    request = run_request({"plan": toys.plan(cases), "device": "0-3", "max_parallel": "2"})
    stream = CaseStream(request)
    results = [stream.result(case) for case in request.cases]
    stream.close()
    assert {result.status for result in results} == {Status.PASSED}
    assert {each.devices for each in results} == {(0, 1), (2, 3)}, "one after the other would have the first two"


def test_a_face_that_stops_asking_ends_what_runs(toys: Toys) -> None:
    request = run_request({"plan": toys.plan({"a": {}, "b": {"do": "hang"}})})
    stream = CaseStream(request)
    assert stream.result(request.cases[0]).status is Status.PASSED
    stream.close()
    assert [result.id for result in stream.results()] == ["a"]


@pytest.mark.heavy
def test_of_several_rounds_a_face_hears_the_one_that_went_wrong(toys: Toys) -> None:
    request = run_request({"plan": toys.plan({"a": {"do": "killed until once"}}), "rounds": 2})
    stream = CaseStream(request)
    assert stream.result(request.cases[0]).status is Status.CRASHED
    stream.close()


INI = "[pytest]\naddopts = -p optest.pytest_plugin -p no:cacheprovider\n"


def pytest_runs(toys: Toys, *arguments: str) -> tuple[dict[str, str], list[str]]:
    """What pytest says of each case of the plan, and the cases that it asked, in order."""
    (toys.folder / "pytest.ini").write_text(INI)
    (toys.folder / "log").unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "plan.yaml", "-rA", *arguments]
    ended = subprocess.run(command, env=_with_path(), capture_output=True, text=True, check=False, timeout=200)
    said = dict(
        reversed(line.split(" - ")[0].split(" plan.yaml::")) for line in ended.stdout.splitlines() if "::" in line
    )
    return said, [each["case"] for each in toys.log("begin")]


@pytest.mark.heavy
def test_pytest_runs_cases_side_by_side_and_with_xdist_each_once(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTEST_DEVICE", "8-11")
    monkeypatch.setenv("OPTEST_MAX_PARALLEL", "2")
    toys.plan({"a": {}, "crash": {"do": "crash"}, "wide": {"level": 3, "count": 2}, "b": {"runtime": "b"}})
    expected = {"a": "PASSED", "crash": "FAILED", "wide": "PASSED", "b": "PASSED"}
    said, asked = pytest_runs(toys)
    assert (said, sorted(asked)) == (expected, sorted(expected))
    assert asked[0] == "wide", "level 3 goes first, wherever pytest has it"
    said, asked = pytest_runs(toys, "-n", "2")
    assert (said, sorted(asked)) == (expected, sorted(expected))
    ids = {each["pid"]: tuple(each["ids"]) for each in toys.log("open")}
    assert set(ids.values()) <= {(8,), (10,), (8, 9), (10, 11)}, "each worker has half of them"


@pytest.mark.parametrize(
    ("worker", "count", "ids"),
    [(0, 4, (8,)), (3, 4, (11,)), (1, 2, (10, 11)), (4, 4, (8,)), (5, 8, (10,)), (0, 1, (8, 9, 10, 11))],
)
def test_workers_of_xdist_share_the_devices(worker: int, count: int, ids: tuple[int, ...]) -> None:
    assert share_of_devices((8, 9, 10, 11), worker, count) == ids


@pytest.mark.parametrize(("timeout", "status"), [(0.1, Status.TIMEOUT), (60.0, Status.PASSED)])
def test_a_build_may_take_as_long_as_a_case(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, timeout: float, status: Status
) -> None:
    monkeypatch.setattr(dispatcher, "_BUILD_S", 0.1)
    toys.backend = "toy_compiler"
    (result,) = toys.run({"slow": {"compile_s": 0.6}}, timeout=timeout).results
    assert result.status is status
    assert ("higher --timeout" in result.verdict.message) == (status is Status.TIMEOUT)


# Several processes on one host.


def test_a_run_waits_for_a_device_that_another_process_holds(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    folder = leases_folder()
    folder.mkdir()
    (folder / "toy-3.json").write_text(json.dumps({"command": "optest run other.yaml", "pid": 123}))
    other = FileLock(folder / "toy-3.lock", thread_local=False)
    other.acquire()
    said: list[str] = []

    def release_when_told() -> None:
        while "waiting" not in (text := capsys.readouterr().err):
            time.sleep(0.02)
        said.append(text)
        assert not toys.log("begin")
        other.release()

    thread = threading.Thread(target=release_when_told)
    thread.start()
    outcome = toys.run({"one": {"platform": "toy"}}, "3")
    thread.join()
    assert said == ["optest: device 3 is held by optest run other.yaml (pid 123); waiting\n"]
    assert all_passed(outcome, 1)
    FileLock(folder / "toy-3.lock").acquire(timeout=0).__exit__(None, None, None)


def test_a_run_goes_without_devices_that_it_can_spare(toys: Toys) -> None:
    folder = leases_folder()
    folder.mkdir()
    with FileLock(folder / "toy-3.lock"):
        outcome = toys.run({"one": {"platform": "toy"}, "two": {"platform": "toy"}}, "3,4")
    assert {each.devices for each in outcome.results} == {(4,)}
    assert outcome.summary.notes == ("device 3 is held by another process; this run does not use it",)


_ON_A_GPU = """
from pathlib import Path
from filelock import FileLock, Timeout
from optest.backends import BackendDriver, backend_manager
from optest.settings.variables import leases_folder

class OnGpu(BackendDriver):
    name, kind, options = "ongpu", "ongpu", ("torch_device",)
    def configure(self, options):
        self.chosen = options.get("torch_device")
    def device(self):
        return self.chosen or "cuda:1"
    def run(self, case, inputs):
        device = self.device().replace(":", "-")
        try:
            FileLock(leases_folder() / f"{device}.lock").acquire(timeout=0)
        except Timeout:
            return [inputs[0] + inputs[1]]
        raise RuntimeError(f"nobody holds {device}")

backend_manager.register(OnGpu())
"""


def _plan_on_a_gpu(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPTEST_PLUGINS", "ongpu_backend")
    monkeypatch.setenv("PYTHONPATH", str(toys.folder), prepend=os.pathsep)
    monkeypatch.syspath_prepend(toys.folder)
    (toys.folder / "ongpu_backend.py").write_text(_ON_A_GPU)
    toys.backend = "ongpu"
    return toys.plan({name: {} for name in "abcd"})


@pytest.mark.parametrize("device", ["cuda-1", "npu-2"])
def test_a_backend_holds_the_hardware_it_runs_on(toys: Toys, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    plan, stated = _plan_on_a_gpu(toys, monkeypatch), {} if device == "cuda-1" else {"torch_device": "npu:2"}
    folder = leases_folder()
    folder.mkdir()
    ended: list[Report] = []
    thread = threading.Thread(target=lambda: ended.append(run({"plan": plan, **stated}, stream=io.StringIO())))
    with FileLock(folder / f"{device}.lock", thread_local=False):
        thread.start()
        thread.join(1.0)
        assert not ended
    thread.join(60)
    assert all_passed(ended[0], 4)


@pytest.mark.slow
def test_workers_of_xdist_share_the_device_of_their_session(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan_on_a_gpu(toys, monkeypatch)
    words = ["-p", "optest.pytest_plugin", "-n", "2", "--torch-device", "cuda:1", "--optest-backend", "ongpu", plan]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", toys.folder, *words]
    ended = subprocess.run(command, cwd=toys.folder, capture_output=True, text=True, check=False, timeout=120)
    assert "4 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.heavy
def test_a_lease_ends_with_its_process_however_that_ends(toys: Toys) -> None:
    plan = toys.plan({"hang": {"platform": "toy", "do": "hang"}})
    command = [sys.executable, "-m", "optest", "run", "--plan", plan, "--device", "3"]
    with _begun(command, stdout=subprocess.DEVNULL) as holder:
        _until(lambda: toys.log("begin"))
        worker = toys.log("begin")[0]["pid"]
        lock = FileLock(leases_folder() / "toy-3.lock")
        with pytest.raises(TimeoutError):
            lock.acquire(timeout=0)
        assert json.loads((leases_folder() / "toy-3.json").read_text())["pid"] == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with lock.acquire(timeout=60):
            pass
        _until(lambda: not Path(f"/proc/{worker}").exists())
    assert all_passed(toys.run({"one": {"platform": "toy"}}, "3"), 1)


@pytest.mark.heavy
def test_ctrl_c_ends_a_run_that_waits_for_a_device(toys: Toys) -> None:
    folder = leases_folder()
    folder.mkdir()
    plan = toys.plan({"one": {"platform": "toy"}})
    command = [sys.executable, "-m", "optest", "run", "--plan", plan, "--device", "3"]
    with (
        FileLock(folder / "toy-3.lock"),
        _begun(command, stderr=subprocess.PIPE) as waiter,
    ):
        assert waiter.stderr is not None
        assert "waiting" in waiter.stderr.readline()
        waiter.send_signal(signal.SIGINT)
        assert waiter.wait(60) == 130


@pytest.mark.heavy
def test_ctrl_c_twice_leaves_no_worker_and_no_lease(toys: Toys) -> None:
    plan = toys.plan({"hang": {"platform": "toy", "do": "hang"}, "other": {"platform": "toy", "do": "hang"}})
    command = [sys.executable, "-m", "optest", "run", "--plan", plan, "--device", "3,4"]
    with _begun(command, stdout=subprocess.PIPE) as runs:
        _until(lambda: len(toys.log("begin")) == 2)
        runs.send_signal(signal.SIGINT)
        runs.send_signal(signal.SIGINT)
        said = runs.communicate(timeout=60)[0]
        assert (runs.returncode, "interrupted" in said) == (130, True), said
    assert not [each for each in toys.log("begin") if Path(f"/proc/{each['pid']}").exists()]
    for device in (3, 4):
        with FileLock(leases_folder() / f"toy-{device}.lock").acquire(timeout=0):
            assert not (leases_folder() / f"toy-{device}.json").exists()


@contextmanager
def _begun(command: list[str], **streams: int) -> Iterator[subprocess.Popen[str]]:
    """A program that is killed at the end: a failed test would otherwise wait for it for ever."""
    with subprocess.Popen(command, env=_with_path(), text=True, **streams) as program:
        try:
            yield program
        finally:
            program.kill()


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


def _until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + 200
    while not holds() and time.monotonic() < ends:
        time.sleep(0.05)
    assert holds()


@pytest.mark.heavy
def test_hundreds_of_cases_among_crashes_and_lost_devices_lose_no_result_and_no_lease(toys: Toys) -> None:
    toys.backend = "toy_compiler"
    draw = ("random", "random", "random", "hang until hang-{}")
    cases: dict[str, Case] = {}
    for place in range(400):
        what = draw[place % len(draw)].format(place) if place % 50 == 3 else "random"
        width = (1, 1, 1, 2, 4)[place % 5] if place % 10 == 4 else 1
        cases[f"case{place}"] = {
            "platform": "toy",
            "do": what,
            "runtime": "ab"[place % 2],
            "file": f"f{place % 40}",
            "level": 3 if width > 1 else 2,
            "count": width,
            "case": {"timeout": 2.0 if "hang" in what else 60.0},
        }
    (toys.folder / "stubborn-6").touch()
    is_over = threading.Event()

    def kill_workers() -> None:
        while not is_over.wait(1.0):
            if begun := toys.log("begin"):
                _kill_if_worker(begun[-1]["pid"])

    killer = threading.Thread(target=kill_workers)
    killer.start()
    try:
        outcome = toys.run(cases, "0-7", max_parallel="4")
    finally:
        is_over.set()
        killer.join()
    assert Counter(result.id for result in outcome.results) == dict.fromkeys(cases, 1)
    assert Counter(result.id for result in read_journal(outcome.directory.journal_path).results) == dict.fromkeys(
        cases, 1
    )
    counts = Counter(result.status for result in outcome.results)
    assert counts[Status.PASSED] > 240, counts
    assert counts[Status.CRASHED], counts
    for device in range(8):
        with FileLock(leases_folder() / f"toy-{device}.lock").acquire(timeout=0):
            pass
    for pid in {each["pid"] for each in toys.log("open")}:
        assert not Path(f"/proc/{pid}").exists()


def _kill_if_worker(pid: int) -> None:
    command = Path(f"/proc/{pid}/cmdline")
    try:
        if b"optest.core.worker" in command.read_bytes():
            os.kill(pid, signal.SIGKILL)
    except OSError:
        return

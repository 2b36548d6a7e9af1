"""Runs on a Ray cluster of three nodes on this machine, one of them with devices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from texts import says

from optest.spec import CaseResult, Reason, Status
from optest.store import read_journal

pytestmark = [pytest.mark.heavy]
PLUGINS = Path(__file__).parents[1] / "plugins"
_STORE = {"object_store_memory": 100 << 20}

_TRAVELLED = """
import os, signal
from optest.backends import BackendDriver, Fault, Reason, backend_manager

class Travelled(BackendDriver):
    name = kind = "travelled"

    def run(self, case, inputs):
        raise Fault(Reason.RAISED, f"{__file__} {case.base_dir} {open(os.path.join(case.base_dir, 'data.txt')).read()}")

backend_manager.register(Travelled())
"""

_DEADLY = """
import os
from pathlib import Path

if Path("/proc/self/cmdline").read_bytes().startswith(b"ray::"):
    os.kill(os.getpid(), 9)
"""


@dataclass
class Nodes:
    """The cluster, and a folder for the runs of one test."""

    cluster: Any
    address: str
    toys: Path
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, cases: Mapping[str, Mapping[str, Any]], *flags: str, backend: str = "toy") -> list[str]:
        entries = [
            {
                "op": "add",
                "name": name,
                "dtypes": "float32",
                "shapes": {"input0": f"1x{place}", "input1": f"1x{place}"},
                "timeout": config.get("timeout", 60),
                "backend_config": {backend: {key: value for key, value in config.items() if key != "timeout"}},
            }
            for place, (name, config) in enumerate(cases.items(), 1)
        ]
        plan = self.folder / "plan.yaml"
        plan.write_text(yaml.safe_dump({"backend": backend, "cases": entries}))
        return [sys.executable, "-m", "optest", "run", "--plan", "plan.yaml", "--cluster", self.address, *flags]

    def start(self, command: list[str], plugin: str = "toy_devices") -> subprocess.Popen[str]:
        path = os.pathsep.join([str(PLUGINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        variables = {**os.environ, "OPTEST_PLUGINS": plugin, "PYTHONPATH": path, "TOY_FOLDER": str(self.toys)}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.started.append(subprocess.Popen(command, cwd=self.folder, env=variables, **streams))  # type: ignore[call-overload]
        return self.started[-1]

    def run(self, cases: Mapping[str, Mapping[str, Any]], *flags: str, backend: str = "toy") -> tuple[int, str]:
        process = self.start(self.command(cases, *flags, backend=backend))
        out, err = process.communicate(timeout=200)
        return process.returncode, out + err

    def results(self) -> list[CaseResult]:
        """Those in the journal of the last run."""
        last = max((self.folder / ".optest" / "runs").iterdir(), key=lambda each: each.name)
        return list(read_journal(last / "journal.jsonl").results)

    def log(self, event: str) -> list[dict[str, Any]]:
        lines = (self.toys / "log").read_text().splitlines() if (self.toys / "log").exists() else []
        return [each for line in lines if (each := json.loads(line))["event"] == event]

    def wait_for(self, event: str, count: int) -> None:
        ends = time.monotonic() + 120
        while len(self.log(event)) < count:
            assert time.monotonic() < ends, f"{len(self.log(event))} of {count} {event}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("ray", reason="needs ray: pip install ray")
    from ray.cluster_utils import Cluster

    toys = tmp_path_factory.mktemp("toys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOY_FOLDER", str(toys))  # which nodes inherit
        patch.setenv("OPTEST_LEASES", str(toys / "leases"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("DEVICE_RANGE", "4-7")
        made = Cluster(head_node_args={"num_cpus": 1, "include_dashboard": False, **_STORE}, initialize_head=True)
        try:
            made.add_node(num_cpus=2, num_gpus=2, resources={"toy": 4}, **_STORE)
            made.add_node(num_cpus=1, **_STORE)
            yield made
        finally:
            made.shutdown()


@pytest.fixture
def nodes(cluster: Any, tmp_path: Path) -> Iterator[Nodes]:
    toys = Path(os.environ["TOY_FOLDER"])
    for file in toys.iterdir():
        if file.is_file():
            file.unlink()
    made = Nodes(cluster, cluster.address, toys, tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def test_cases_run_on_every_node_and_what_goes_wrong_costs_its_own_case(nodes: Nodes) -> None:
    cases: dict[str, dict[str, Any]] = {f"case{place}": {"nothing": True, "sleep_s": 0.1} for place in range(30)}
    cases["wrong"] = {"nothing": True, "off": 1}
    cases["crash"] = {"nothing": True, "do": "crash"}
    cases["hang"] = {"nothing": True, "do": "hang", "timeout": 0.5}
    status, text = nodes.run(cases)
    assert status == 1, text
    assert says(text, "integration.cases_of_plan_yaml")
    assert says(text, "integration.on_nodes_of_ray")
    results = {result.id: result.status.value for result in nodes.results()}
    wrong = {name: results.pop(name) for name in ("wrong", "crash", "hang")}
    assert wrong == {"wrong": "failed", "crash": "crashed", "hang": "timeout"}
    assert Counter(results.values()) == {"passed": 30}
    assert len({each["pid"] for each in nodes.log("begin")}) >= 4


def test_devices_are_resources_of_a_node(nodes: Nodes) -> None:
    kinds = [{"count": 2, "level": 3}, {"count": 1}, {"count": 1, "runtime": "b"}]
    cases = {f"case{place}": {"platform": "toy", "sleep_s": 0.1, **kinds[place % 3]} for place in range(18)}
    status, text = nodes.run(cases)
    assert status == 0, text
    results = {result.id: result for result in nodes.results()}
    assert {len(each.devices) == (2 if int(name[4:]) % 3 == 0 else 1) for name, each in results.items()} == {True}
    assert {device for each in results.values() for device in each.devices} <= {4, 5, 6, 7}
    assert all(each["mask"] == ",".join(map(str, each["ids"])) for each in nodes.log("begin"))
    edges = [
        (each["time"], order, each["ids"]) for order, event in ((1, "begin"), (0, "end")) for each in nodes.log(event)
    ]
    busy: set[int] = set()
    for _, begins, ids in sorted(edges):
        assert busy.isdisjoint(ids) == begins
        busy = busy ^ set(ids)
    opened = Counter((each["runtime"], len(each["ids"])) for each in nodes.log("open"))
    assert sum(opened.values()) <= 6, "actors are kept while the next case needs the same"


def test_gpus_are_those_that_ray_gives(nodes: Nodes) -> None:
    cases = {"wide": {"platform": "cuda", "count": 2}} | {f"case{place}": {"platform": "cuda"} for place in range(4)}
    status, text = nodes.run(cases)
    assert status == 0, text
    results = {result.id: result.devices for result in nodes.results()}
    assert sorted(results.pop("wide")) == [0, 1]
    assert set(results.values()) <= {(0,), (1,)}
    assert all(each["gpus"] == ",".join(map(str, each["ids"])) != "" for each in nodes.log("begin"))


def test_a_backend_that_computes_on_a_gpu_gets_one_of_its_own(nodes: Nodes) -> None:
    """Ray hides no GPU from those that ask for none: they would share the first, or land where there is none."""
    cases: dict[str, dict[str, Any]] = {f"case{place}": {} for place in range(8)}
    status, text = nodes.run(cases, backend="toy_gpu")
    assert status == 0, text
    assert ", 2 at a time" in text, "two GPUs, though four processors"
    assert {result.devices for result in nodes.results()} <= {(0,), (1,)}
    gpus = {(each["pid"], each["gpus"]) for each in nodes.log("begin")}
    assert {gpu for _, gpu in gpus} <= {"0", "1"}
    assert len(gpus) <= 2


def test_what_no_node_has_stops_the_run_before_it_begins(nodes: Nodes) -> None:
    status, text = nodes.run({"small": {"platform": "toy"}, "wide": {"platform": "toy", "count": 8, "level": 3}})
    assert status == 2
    assert says(text, "integration.wide_needs_cpu_node")
    assert not nodes.log("begin")
    assert "Traceback" not in text


def test_code_and_data_of_the_current_folder_travel(nodes: Nodes) -> None:
    (nodes.folder / "travelled.py").write_text(_TRAVELLED)
    (nodes.folder / "data.txt").write_text("the data")
    process = nodes.start(nodes.command({"one": {}}, backend="travelled"), plugin="travelled")
    out, err = process.communicate(timeout=200)
    message = nodes.results()[0].verdict.message
    assert message.endswith("the data"), out + err
    assert "travelled.py" in message
    assert str(nodes.folder) not in message


@pytest.mark.cxx
def test_a_scene_is_built_and_run_on_a_node(nodes: Nodes) -> None:
    shutil.copytree(Path(__file__).parents[2] / "examples" / "scenes" / "vector_add", nodes.folder, dirs_exist_ok=True)
    words = ["run", "--source", f"scene:{nodes.folder}", "--platform", "cpusim", "--cluster", nodes.address]
    process = nodes.start([sys.executable, "-m", "optest", *words])
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert {result.status for result in nodes.results()} == {Status.PASSED}


def test_a_lost_worker_is_replaced_on_another_node_and_said(nodes: Nodes) -> None:
    cases: dict[str, Any] = {f"case{place}": {"nothing": True, "sleep_s": 0.05} for place in range(12)}
    cases["once"] = {"nothing": True, "do": "lose until lost"}
    cases["always"] = {"nothing": True, "do": "lose"}
    status, text = nodes.run(cases)
    assert status == 1, text
    results = {result.id: result for result in nodes.results()}
    assert len(results) == 14
    once, always = results.pop("once"), results.pop("always")
    assert (once.status, once.attempts) == (Status.PASSED, 2)
    assert "was lost" in next(check.detail for check in once.verdict.checks if check.name == "worker")
    assert (always.status, always.verdict.reason, always.attempts) == (Status.CRASHED, Reason.DEVICE_LOST, 3)
    assert {each.status for each in results.values()} == {Status.PASSED}
    assert "was lost: " in text


def test_a_worker_that_is_lost_whenever_it_starts_costs_its_case(nodes: Nodes) -> None:
    (nodes.folder / "deadly.py").write_text(_DEADLY)
    process = nodes.start(nodes.command({"one": {"nothing": True}}), plugin="toy_devices,deadly")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1, out + err
    (result,) = nodes.results()
    assert (result.status, result.verdict.reason, result.attempts) == (Status.CRASHED, Reason.DEVICE_LOST, 3)


def test_nothing_is_lost_when_a_node_is_killed(nodes: Nodes) -> None:
    node = nodes.cluster.add_node(num_cpus=2, **_STORE)
    cases = {f"case{place}": {"nothing": True, "sleep_s": 0.15} for place in range(150)}
    process = nodes.start(nodes.command(cases))
    nodes.wait_for("begin", 40)
    nodes.cluster.remove_node(node, allow_graceful=False)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    results = nodes.results()
    assert Counter(result.id for result in results) == dict.fromkeys(cases, 1)
    assert {result.status for result in results} == {Status.PASSED}
    again = [result for result in results if result.attempts > 1]
    assert again
    assert len(again) <= 2
    assert "was lost" in err
    assert "was lost" in out, "the summary says it, too"


def test_ctrl_c_ends_the_workers_and_resume_goes_on(nodes: Nodes) -> None:
    cases = {f"case{place}": {"nothing": True, "sleep_s": 0.2} for place in range(40)}
    process = nodes.start(nodes.command(cases))
    nodes.wait_for("end", 8)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    before = len(nodes.results())
    assert 0 < before < 40
    for pid in {each["pid"] for each in nodes.log("begin")}:
        _wait_for_end(pid)
    status, text = nodes.run(cases, "--resume", "latest")
    assert status == 0, text
    assert Counter(result.id for result in nodes.results()) == dict.fromkeys(cases, 1)


def test_the_first_failure_ends_the_run_where_asked(nodes: Nodes) -> None:
    cases = {f"case{place}": {"nothing": True, "sleep_s": 0.1, "off": 1} for place in range(30)}
    status, text = nodes.run(cases, "-x", "--max-parallel", "2")
    assert status == 1, text
    assert len(nodes.results()) == 1
    assert ", 2 at a time" in text


def test_another_version_on_the_nodes_is_refused(nodes: Nodes) -> None:
    command = nodes.command({"one": {"nothing": True}})
    lie = "import optest, optest.cluster.connection as c, optest.cli as m; c.__version__ = '9.9'; m.main()"
    process = nodes.start([command[0], "-c", lie, *command[3:]])
    out, err = process.communicate(timeout=100)
    assert process.returncode == 2, out + err
    assert says(err, "integration.not_install_the_same")


def _wait_for_end(pid: int) -> None:
    ends = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < ends, f"worker {pid} is alive"
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)

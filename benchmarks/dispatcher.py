"""What does it cost to assign devices to cases, in a simulation whose cases do next to nothing?

    python benchmarks/dispatcher.py [--quick]

Per assignment: choosing a unit and its devices, without any process. Warm worker against a process for each case: 500
cases of level 2 on one device, and cases of level 3, each of which starts a process. Busy processes: as many as ran at
a time with 16 virtual devices and --max-parallel 2.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kit
import numpy as np
import yaml

from optest.backends import BackendDriver, backend_manager
from optest.backends.worker_abilities import DeviceRequest


class TinyScenes(BackendDriver):
    """A backend that adds; the options of a case set its level and its number of devices."""

    name = kind = "tiny_scenes"
    options = ("device",)

    def devices_of(self, case: Any) -> DeviceRequest:
        return DeviceRequest(**{"platform": "cpusim", "runtime": "tiny", **self._config(case, "level", "count")})

    def run(self, case: Any, inputs: Any) -> Any:
        self._log("+")
        time.sleep(self._config(case, "sleep_s").get("sleep_s", 0.0))
        self._log("-")
        return [np.add(*inputs)]

    def _config(self, case: Any, *names: str) -> dict[str, Any]:
        config = case.backend_config.get(self.name, {})
        return {name: config[name] for name in names if name in config}

    def _log(self, edge: str) -> None:
        if path := os.environ.get("TINY_SCENES_LOG"):
            with open(path, "a") as file:
                file.write(f"{time.monotonic()} {edge}1\n")


backend_manager.register(TinyScenes(), replace=True)


def plan(folder: Path, configs: Sequence[dict[str, Any]]) -> str:
    cases = [
        {
            "op": "add",
            "name": f"case{place}",
            "dtypes": "float32",
            "shapes": {"input0": f"1x{place + 1}", "input1": f"1x{place + 1}"},
            "backend_config": {"tiny_scenes": config},
        }
        for place, config in enumerate(configs)
    ]
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"backend": "tiny_scenes", "cases": cases}))
    return str(path)


def seconds_of_run(folder: Path, configs: Sequence[dict[str, Any]], **options: Any) -> float:
    from optest.api.running import run

    settings = {"plan": plan(folder, configs), "runs_dir": str(folder / "runs"), **options}
    outcome = run(settings, stream=io.StringIO())
    assert outcome.exit_status == 0, outcome.summary
    return outcome.summary.duration_s


def microseconds_per_assignment(units: int, devices: int) -> float:
    from optest.core.devices import Leases
    from optest.core.dispatcher import Dispatcher
    from optest.core.results import Execution
    from optest.core.schedule import ScheduleRules, Unit
    from optest.operators import operators
    from optest.spec import TestCase

    case = TestCase(descriptor=operators.get("add"), inputs=())
    request = DeviceRequest(platform="cpusim", runtime="tiny")
    planned = [Unit(place=place, file=f"f{place % 100}") for place in range(units)]
    dispatcher = Dispatcher(
        units={unit: (request, deque([Execution((case,))])) for unit in planned},
        driver=TinyScenes(),
        ids=range(devices),
        rules=ScheduleRules(max_parallel=devices),
        leases=Leases(Path(), [], ""),
        make_worker=lambda *_: _NoWorker(),
    )
    dispatcher.begin()
    began, running = time.perf_counter(), deque[Any]()
    for _ in range(units):
        if len(running) == devices:
            dispatcher.release(running.popleft())
        turn = dispatcher.take()
        assert turn is not None
        turn.executions.clear()
        running.append(turn)
    return (time.perf_counter() - began) / units * 1e6


class _NoWorker:
    looks_ahead = False

    def execute(self, *_: object) -> Any:
        raise AssertionError

    def close(self) -> None:
        return None


def most_at_a_time(log: Path) -> int:
    busy = most = 0
    for _, change in sorted(
        (float(when), int(change)) for when, change in map(str.split, log.read_text().splitlines())
    ):
        busy += change
        most = max(most, busy)
    return most


def main() -> None:
    is_quick = kit.parser(__doc__, quick="fewer cases").parse_args().quick
    os.environ["OPTEST_PLUGINS"] = "dispatcher"
    os.environ["OPTEST_PLATFORM"] = "cpusim"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    sys.path.insert(0, str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        units = 1_000 if is_quick else 10_000
        print(f"{microseconds_per_assignment(units, 64):8.0f} µs an assignment, {units} units on 64 devices")
        few, many, fresh_cases = 20, 520, 10 if is_quick else 40
        started = min(seconds_of_run(folder, [{}] * few) for _ in range(3))
        warm = (min(seconds_of_run(folder, [{}] * many) for _ in range(3)) - started) / (many - few)
        fresh = seconds_of_run(folder, [{"level": 3}] * fresh_cases) / fresh_cases
        print(f"{warm * 1e3:8.2f} ms a case in a warm worker, its start apart")
        print(f"{fresh * 1e3:8.2f} ms a case in a process of its own: {fresh / warm:.0f} times as much")
        whole = started + warm * 500
        print(f"{500 * fresh / whole:8.1f} times as fast: 500 cases in one worker, its start with them")
        os.environ["TINY_SCENES_LOG"] = str(folder / "log")
        configs = [{"sleep_s": 0.02, "level": 2 + place % 2, "count": 1 + 7 * (place % 2)} for place in range(12)]
        seconds_of_run(folder, configs, device="0-15", max_parallel="2")
        print(f"{most_at_a_time(folder / 'log'):8d} cases at a time with 16 virtual devices and --max-parallel 2")


if __name__ == "__main__":
    main()

"""Devices for the cases of a run: which ids, how many processes, and how long each case is likely to take."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median

from optest.api.earlier_runs import durations
from optest.api.run_request import RunRequest
from optest.backends.worker_abilities import DeviceRequest, NeedsDevices
from optest.core.devices import Leases, command_of_this_process
from optest.core.dispatcher import Dispatcher
from optest.core.schedule import ScheduleRules, Unit
from optest.core.session import Execution
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import UsageError, plural
from optest.settings import Settings
from optest.settings.platforms import Platform, device_ids, get_platform, share_of_devices
from optest.settings.variables import leases_folder

FINISH_S = 10.0
"""Time limit of a runtime for releasing its devices, in seconds."""
_MOST_NAMED = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a run, the requests of cases by ``id(case)``, and the rules of the schedule."""

    ids: tuple[int, ...]
    requests: Mapping[int, DeviceRequest]
    platforms: Sequence[Platform]
    rules: ScheduleRules

    def dispatcher(self, request: RunRequest, options: WorkerOptions, executions: Sequence[Execution]) -> Dispatcher:
        """Return the dispatcher that assigns devices to executions; it starts workers with ``options``."""
        numbers = count()

        def make_worker(platform: Platform, ids: tuple[int, ...]) -> WorkerProcess:
            mask = {platform.device_mask: ",".join(map(str, ids))} if platform.device_mask else {}
            worker_options = dataclasses.replace(
                options,
                options={**options.options, "device_ids": list(ids)},
                finish_s=FINISH_S,
                environment={**options.environment, **mask},
            )
            return WorkerProcess(worker_options, f"worker-{next(numbers)}")

        return Dispatcher(
            units=self._units(executions, request),
            driver=request.driver,
            ids=self.ids,
            rules=self.rules,
            leases=Leases(leases_folder(), self.platforms, command_of_this_process()),
            make_worker=make_worker,
        )

    def _units(
        self, executions: Sequence[Execution], request: RunRequest
    ) -> dict[Unit, tuple[DeviceRequest, deque[Execution]]]:
        """Return a unit for each case with its request and all of its rounds."""
        rounds: dict[int, deque[Execution]] = {}
        for execution in executions:
            rounds.setdefault(id(execution.first), deque()).append(execution)
        # On a single device units run in the order of the plan.
        has_choice = len(self.ids) > 1
        known = durations(Path(request.settings["runs_dir"]), request.cases) if has_choice else {}
        usual_s = median(known.values()) if known else 1.0
        units = {}
        for index, repeated in enumerate(rounds.values()):
            case = repeated[0].first
            needed = self.requests.get(id(case)) or DeviceRequest(platform=self.platforms[0].name, runtime="")
            unit = Unit(
                index=index,
                runtime=needed.runtime,
                count=needed.count,
                exclusive=needed.level > 2 or needed.count > 1,
                file=needed.file if has_choice else "",
                expected_s=len(repeated) * known.get(case.id, usual_s) if has_choice else 1.0,
            )
            units[unit] = needed, repeated
        return units


def is_scheduled(request: RunRequest) -> bool:
    """Return whether a schedule of devices decides the order of cases: they need devices that no process shares."""
    in_workers = request.settings["isolate"] != "none"
    return request.device_share is None and in_workers and bool(device_requests(request))


def devices_of(request: RunRequest) -> Devices | None:
    """Return the devices of a run; None if no case needs any, or simulations run in this process (for debuggers).

    Raises:
        UsageError: for contradictory options, a missing tool, or a case that needs more devices than there are.
        UnknownName: for a platform that is not registered.
    """
    requests, settings = device_requests(request), request.settings
    if not requests:
        return None
    platforms = [get_platform(name) for name in dict.fromkeys(x.platform for x in requests.values())]
    has_hardware, wrong = any(x.is_device for x in platforms), "is not for cases that need devices"
    if settings["isolate"] == "none":
        if not has_hardware:
            return None
        raise UsageError(f"--isolate none {wrong}, which run in workers; drop --isolate none")
    if settings["jobs"] > 1:
        raise UsageError(f"--jobs {wrong}; drop it, or limit their processes by --max-parallel")
    all_ids = ids = device_ids(settings["device"])
    if request.device_share is not None:
        ids = share_of_devices(ids, *request.device_share)
    for platform in platforms:
        missing = [words[0] for words in (platform.probe, platform.reset) if words and not shutil.which(words[0])]
        if missing:
            raise UsageError(f"platform {platform.name} needs the program {missing[0]}, which is not found; install it")
    needs = {case.id: requests[id(case)].count for case in request.cases if id(case) in requests}
    too_wide = [f"{name} needs {needed}" for name, needed in needs.items() if needed > len(ids)]
    if request.device_share is not None:
        # The shares of workers may differ by one, but all workers must refuse the same cases.
        workers, least = request.device_share[1], max(1, len(all_ids) // request.device_share[1])
        too_wide = [f"{name} needs {needed}" for name, needed in needs.items() if needed > least]
        if too_wide or (has_hardware and workers > len(all_ids)):
            lack = "" if too_wide else "; two workers on hardware would wait for each other for ever"
            raise UsageError(
                f"pytest -n {workers} leaves each worker {least} of the {len(all_ids)} devices of --device"
                f"{lack}{listed(too_wide)}\n  drop -n: scenes run in parallel without it, too; or widen --device"
            )
    if too_wide:
        by_default = "" if settings["device"] else " (the default)"
        raise UsageError(
            f"--device lists {plural(len(ids), 'device')}{by_default}, but cases need more: {','.join(map(str, ids))}"
            f"{listed(too_wide)}\n"
            "  widen --device, or reduce the device_count of these cases"
        )
    # Timed cases must not share a processor, nor simulations outnumber the processors.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usual = len(ids) if has_hardware else max(1, min(processors, len(ids)))
    max_parallel = explicit_parallel(settings) or usual
    rules = ScheduleRules(
        max_parallel=1 if settings["bench"] and not has_hardware else max_parallel,
        backfill=settings["schedule"] == "backfill",
        one_runtime=any(x.one_runtime_per_process for x in platforms),
    )
    return Devices(ids=ids, requests=requests, platforms=platforms, rules=rules)


def device_requests(request: RunRequest) -> dict[int, DeviceRequest]:
    """Return the requests for devices by ``id(case)``, without skipped cases."""
    driver = request.driver
    if not isinstance(driver, NeedsDevices):
        return {}
    requests = {id(case): driver.devices_of(case) for case in request.cases if case.skip is None}
    return {key: needed for key, needed in requests.items() if needed is not None}


def listed(lines: Sequence[str]) -> str:
    """Return up to ten lines, indented for the end of a message, and the number of the others."""
    more = [f"and {len(lines) - _MOST_NAMED} others"] if len(lines) > _MOST_NAMED else []
    return "".join(f"\n  {line}" for line in [*lines[:_MOST_NAMED], *more])


def explicit_parallel(settings: Settings) -> int | None:
    """Return the number of ``--max-parallel``, None for ``auto``; raise ``UsageError`` for any other text and for 0."""
    text = settings["max_parallel"]
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--max-parallel is {text!r}, expected auto, or a number of processes from 1 on")
    return int(text)

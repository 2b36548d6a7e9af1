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
from optest.errors import UsageError
from optest.settings import Settings
from optest.settings.platforms import Platform, device_ids, platform_called, share_of_devices
from optest.settings.variables import leases_folder

FINISH_S = 10.0
"""How long a runtime may take to give its devices back."""
_MOST_NAMED = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a run: what each case needs of them, by its identity, and the rules by which they are shared."""

    ids: tuple[int, ...]
    requests: Mapping[int, DeviceRequest]
    platforms: Sequence[Platform]
    rules: ScheduleRules

    def dispatcher(self, request: RunRequest, options: WorkerOptions, executions: Sequence[Execution]) -> Dispatcher:
        """What gives the executions of this run their devices; workers are started with ``options``."""
        started = count()

        def make_worker(platform: Platform, ids: tuple[int, ...]) -> WorkerProcess:
            mask = {platform.device_mask: ",".join(map(str, ids))} if platform.device_mask else {}
            mine = dataclasses.replace(
                options,
                options={**options.options, "device_ids": list(ids)},
                finish_s=FINISH_S,
                environment={**options.environment, **mask},
            )
            return WorkerProcess(mine, f"worker-{next(started)}")

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
        """All rounds of a case are one unit. On a single device units go by the plan, as they do without devices."""
        rounds: dict[int, deque[Execution]] = {}
        for execution in executions:
            rounds.setdefault(id(execution.first), deque()).append(execution)
        has_choice = len(self.ids) > 1
        known = durations(Path(request.settings["runs_dir"]), request.cases) if has_choice else {}
        usual_s = median(known.values()) if known else 1.0
        units = {}
        for place, mine in enumerate(rounds.values()):
            case = mine[0].first
            needed = self.requests.get(id(case)) or DeviceRequest(platform=self.platforms[0].name, runtime="")
            unit = Unit(
                place=place,
                runtime=needed.runtime,
                count=needed.count,
                alone=needed.level > 2 or needed.count > 1,
                file=needed.file if has_choice else "",
                expected_s=len(mine) * known.get(case.id, usual_s) if has_choice else 1.0,
            )
            units[unit] = needed, mine
        return units


def runs_in_its_own_order(request: RunRequest) -> bool:
    """Whether cases need devices, so that the order is that of a schedule. Among processes that share the devices each
    runs what it is given alone."""
    in_workers = request.settings["isolate"] != "none"
    return request.device_share is None and in_workers and bool(device_requests(request))


def devices_of(request: RunRequest) -> Devices | None:
    """The devices of a run, None if no case needs any, or simulations are run in this process, for debuggers.

    Raises:
        UsageError: for options that say nothing of use, and if a case needs more devices than there are: nothing runs.
        UnknownName: for a platform that is not registered.
    """
    requests, settings = device_requests(request), request.settings
    if not requests:
        return None
    platforms = [platform_called(name) for name in dict.fromkeys(each.platform for each in requests.values())]
    has_hardware, wrong = any(each.is_device for each in platforms), "is not for cases that need devices"
    if settings["isolate"] == "none":
        if not has_hardware:
            return None
        raise UsageError(f"--isolate none {wrong}: a worker has them; drop it")
    if settings["jobs"] > 1:
        raise UsageError(f"--jobs {wrong}: --max-parallel bounds their processes; drop it")
    stated = ids = device_ids(settings["device"])
    if request.device_share is not None:
        ids = share_of_devices(ids, *request.device_share)
    for platform in platforms:
        missing = [words[0] for words in (platform.probe, platform.reset) if words and not shutil.which(words[0])]
        if missing:
            raise UsageError(f"platform {platform.name} is examined by {missing[0]}, which is not there: install it")
    needs = {case.id: requests[id(case)].count for case in request.cases if id(case) in requests}
    too_wide = [f"{name} needs {needed}" for name, needed in needs.items() if needed > len(ids)]
    if request.device_share is not None:
        # the same for all workers, whose shares may differ by one
        workers, least = request.device_share[1], max(1, len(stated) // request.device_share[1])
        too_wide = [f"{name} needs {needed}" for name, needed in needs.items() if needed > least]
        if too_wide or (has_hardware and workers > len(stated)):
            lack = "" if too_wide else "; two workers on hardware would wait for each other for ever"
            raise UsageError(
                f"pytest -n {workers} leaves each worker {least} of the {len(stated)} devices of --device"
                f"{lack}{listed(too_wide)}\n  drop -n: scenes run in parallel without it, too; or widen --device"
            )
    if too_wide:
        by_default = "" if settings["device"] else " (no --device is given)"
        raise UsageError(
            f"--device has {len(ids)} of the devices that cases need: {','.join(map(str, ids))}{by_default}"
            f"{listed(too_wide)}\n"
            "  widen --device, or reduce the device_count of these cases"
        )
    # Timings share no processor; in a simulation processes are no more than processors.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usual = len(ids) if has_hardware else max(1, min(processors, len(ids)))
    max_parallel = stated_parallel(settings) or usual
    rules = ScheduleRules(
        max_parallel=1 if settings["bench"] and not has_hardware else max_parallel,
        backfill=settings["schedule"] == "backfill",
        one_runtime=any(each.one_runtime_per_process for each in platforms),
    )
    return Devices(ids=ids, requests=requests, platforms=platforms, rules=rules)


def device_requests(request: RunRequest) -> dict[int, DeviceRequest]:
    """What cases need of devices, by their identity; of those that are skipped, nothing."""
    driver = request.driver
    if not isinstance(driver, NeedsDevices):
        return {}
    stated = {id(case): driver.devices_of(case) for case in request.cases if case.skip is None}
    return {key: each for key, each in stated.items() if each is not None}


def listed(lines: Sequence[str]) -> str:
    """Lines below a message, and how many more there are."""
    more = [f"and {len(lines) - _MOST_NAMED} others"] if len(lines) > _MOST_NAMED else []
    return "".join(f"\n  {line}" for line in [*lines[:_MOST_NAMED], *more])


def stated_parallel(settings: Settings) -> int | None:
    """The number that ``--max-parallel`` states, None for ``auto``; raises ``UsageError`` for anything else, and 0."""
    text = settings["max_parallel"]
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--max-parallel is {text!r}, but should be auto, or a number of processes from 1 on")
    return int(text)

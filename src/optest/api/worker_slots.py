"""Worker slots of a run: this process, warm workers, a fresh process for each case, devices, or a cluster."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from optest.api.earlier_runs import durations
from optest.api.run_request import RunRequest, driver_options
from optest.backends.worker_abilities import DeviceRequest, NeedsDevices
from optest.core.benchmarking import BenchOptions, comparison_called
from optest.core.deadlines import Deadlines, PhaseLimits
from optest.core.devices import Leases, command_of_this_process, devices_held
from optest.core.dispatcher import Dispatcher
from optest.core.executors import Executor, HasExecutor, InProcess
from optest.core.interruption import Interruption
from optest.core.messages import NotInWorker
from optest.core.results import Execution
from optest.core.schedule import ScheduleRules, Unit
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import Unavailable, UsageError, plural
from optest.guests import Guest, guests, run_hooks
from optest.registry import load_object
from optest.settings import Settings, environment, plugin_modules
from optest.settings.platforms import PLATFORMS, Platform, device_ids, get_platform, is_device, share_of_devices
from optest.settings.variables import leases_folder, worker_environment
from optest.spec import TestCase
from optest.store import RunDirectory

_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>us|µs|ms|s|min|)")
_FINISH_S = 10.0
"""Time limit of a runtime for releasing its devices, in seconds."""
_MOST_NAMED = 10
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSlots:
    """The worker slots of a run: ``make(index)`` returns the executor of a slot, ``close`` is called after the run.

    If cases need devices, ``dispatcher`` is used instead of ``make``. ``variables`` are set in this process while cases
    run in it. ``cases`` are in the order of execution, if it differs from the plan's; ``notes_at_end`` may grow during
    the run.
    """

    make: Callable[[int], Executor]
    isolation: str
    jobs: int
    dispatcher: Callable[[Sequence[Execution]], Dispatcher] | None = None
    notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    cases: Sequence[TestCase] | None = None
    notes_at_end: list[str] = field(default_factory=list)
    close: Callable[[], None] = lambda: None


def worker_slots(request: RunRequest, directory: RunDirectory, interruption: Interruption) -> WorkerSlots:
    """Return the worker slots of a run; with ``--isolate auto`` only built-in references run in this process.

    Lock the device of the backend until the slots are closed, unless pytest-xdist's session or a dispatcher does.

    Raises:
        UsageError: if requested workers cannot find the driver, or a case cannot have its devices.
        Unavailable: if the driver needs a package or device that this machine lacks.
    """
    if isinstance(request.driver, HasExecutor):
        executor = request.driver.executor(directory.path)
        return WorkerSlots(make=lambda _: executor, isolation="case", jobs=1)
    for guest in guests():
        if guest.machines and request.settings[guest.options[0].name]:
            return _cluster_slots(guest, request, directory)
    devices, requested = devices_of(request), request.settings["torch_device"]
    with ExitStack() as lease:
        if devices is None and request.device_share is None:
            lease.enter_context(
                torch_device_held(requested, request.driver.device(), lambda: interruption.is_cancelled)
            )
        slots = _local_slots(request, directory, interruption, devices)
        return dataclasses.replace(slots, close=lease.pop_all().close)


def torch_device_held(
    requested: str | None, actual: str | None = None, is_closed: Callable[[], bool] = lambda: False
) -> AbstractContextManager[None]:
    """Return a context that locks the ``requested`` device, else the ``actual`` one of a backend; none for a CPU."""
    kind, _, index = (requested or actual or "cpu").partition(":")
    kind = "cuda" if kind == "gpu" else kind  # the name in JAX
    if kind == "cpu" or not is_device(kind) or not (requested or kind in PLATFORMS):
        return nullcontext()
    platform = get_platform(kind) if kind in PLATFORMS else Platform(name=kind)
    return devices_held(platform, [int(index) if index.isdecimal() else 0], is_closed)


def _local_slots(
    request: RunRequest, directory: RunDirectory, interruption: Interruption, devices: Devices | None
) -> WorkerSlots:
    isolation, jobs = request.settings["isolate"], request.settings["jobs"]
    if devices is not None:
        jobs = devices.rules.max_parallel
    elif isolation == "none" or (isolation == "auto" and jobs == 1 and not _needs_isolation(request)):
        if jobs > 1:
            raise UsageError("--jobs needs workers, but --isolate none runs in this process; drop one of them")
        return _in_process_slot(request, directory, interruption)
    options = _worker_options(request, directory, jobs)
    # A worker without a case would only cost its start.
    jobs = min(jobs, max(1, len(request.cases) * request.settings["rounds"]))
    first = WorkerProcess(options, "worker-0", request.forks)
    if devices is None:
        interruption.register(first)  # also while it loads a framework, which may take minutes
        try:
            first.start()
        except NotInWorker as error:
            if isolation != "auto" or (jobs > 1 and request.settings.is_set("jobs")):
                raise
            slots = _in_process_slot(request, directory, interruption)
            note = f"in-process run: {str(error).splitlines()[0]}"
            return dataclasses.replace(slots, notes=(note, *slots.notes))
    return WorkerSlots(
        make=lambda index: first if index == 0 else WorkerProcess(options, f"worker-{index}", request.forks),
        dispatcher=None if devices is None else partial(devices.dispatcher, request, options),
        isolation="case" if options.fresh else "worker",
        jobs=jobs,
        notes=bench_notes(options.bench, jobs),
    )


def _cluster_slots(guest: Guest, request: RunRequest, directory: RunDirectory) -> WorkerSlots:
    """Return worker slots on the cluster of an integration: as many as it has, unless an option limits them."""
    settings, requests, option = request.settings, _cluster_requests(request), guest.options[0]
    flag, where = option.flags[0], settings[option.name]
    for wrong, is_requested, why in (
        ("--bench", settings["bench"], "its machines differ, and others use them"),
        ("--isolate none", settings["isolate"] == "none", "its workers are on other machines"),
        ("--device", requests and settings.is_set("device"), "Ray chooses devices"),
    ):
        if is_requested:
            raise UsageError(f"{wrong} is not for a run on a cluster: {why}; drop it, or {flag}")
    try:
        cluster = load_object(guest.machines)(where, requests)
    except Unavailable as error:
        raise Unavailable(flag, error.remedy) from None
    try:
        kinds = {case.id: requests.get(id(case)) for case in request.cases}
        lacks = {kind: lack for kind in set(kinds.values()) if (lack := cluster.lack(kind))}
        if lines := [f"{name} needs {lacks[kind]}" for name, kind in kinds.items() if kind in lacks]:
            raise UsageError(f"no node of the cluster has the devices that cases need{_listed(lines)}")
        slots = cluster.slots(set(kinds.values()))
        jobs = min(slots, _explicit_parallel(settings) or slots, settings["jobs"] if settings.is_set("jobs") else slots)
        options = dataclasses.replace(
            _worker_options(request, directory, jobs), finish_s=_FINISH_S if requests else 0.0
        )
    except BaseException:
        cluster.close()
        raise

    def widest_first(case: TestCase) -> tuple[Any, ...]:
        needed = requests.get(id(case))
        return () if needed is None else (-needed.count, needed.platform, needed.runtime)

    return WorkerSlots(
        make=lambda _: cluster.executor(options),
        isolation="case" if options.fresh else "worker",
        jobs=jobs,
        notes=(f"on {plural(len(cluster.nodes()), 'node')} of a Ray cluster ({where})",),
        # A worker keeps its devices for the next case of the same need.
        cases=sorted(request.cases, key=widest_first),
        notes_at_end=cluster.notes,
        close=cluster.close,
    )


def _cluster_requests(request: RunRequest) -> dict[int, DeviceRequest]:
    """Return the requests for devices by ``id(case)``: the driver's, else one for its own device if it is hardware."""
    if isinstance(request.driver, NeedsDevices):
        # Level and file do not matter for the choice of a node.
        return {key: dataclasses.replace(x, level=2, file="") for key, x in _device_requests(request).items()}
    kind = (request.driver.device() or "").partition(":")[0]
    kind = "cuda" if kind == "gpu" else kind  # the name in JAX
    if kind not in PLATFORMS or not is_device(kind):
        return {}
    return {id(case): DeviceRequest(platform=kind, runtime="") for case in request.cases if case.skip is None}


def _worker_options(request: RunRequest, directory: RunDirectory, jobs: int) -> WorkerOptions:
    settings, driver = request.settings, request.driver
    bench = _bench(request)
    limits = PhaseLimits(bench_s=4 * bench.target_s if bench else 0.0, deadlines=_deadlines(request))
    if driver.keeps_deadline:
        limits = dataclasses.replace(limits, times=jobs, extra_s=60.0)
    needed = driver.environment(request.cases)
    variables = {**needed, **_environment(request, directory)}
    return WorkerOptions(
        driver=driver.name,
        scratch=directory.path,
        environment=worker_environment(variables, jobs),
        options=driver_options(settings, request.driver),
        plugins=(*plugin_modules(), *request.plugins),
        every_measure=request.wants_every_measure,
        fresh=settings["isolate"] == "case",
        limits=limits,
        keep=directory.tensors_dir() if request.keep else None,
        bench=bench,
    )


def _in_process_slot(request: RunRequest, directory: RunDirectory, interruption: Interruption) -> WorkerSlots:
    executor = InProcess(
        request.driver,
        request.wants_every_measure,
        interruption,
        directory.tensors_dir() if request.keep else None,
        _bench(request),
        _deadlines(request),
    )
    is_unlimited = request.driver.isolated and not request.driver.keeps_deadline
    notes = ("in-process run: no time limits, and a crash ends the run",) if is_unlimited else ()
    variables = dict(_environment(request, directory).items() - environment().items())
    return WorkerSlots(make=lambda _: executor, isolation="none", jobs=1, notes=notes, variables=variables)


def _environment(request: RunRequest, directory: RunDirectory) -> dict[str, str]:
    """Return the user's environment with the variables of integrations."""
    variables = environment()
    for hooks in run_hooks():
        variables = hooks.environment(request.settings, directory.path, variables)
    return variables


def _deadlines(request: RunRequest) -> Deadlines:
    """Return the record of deadlines that all slots share; an explicit ``--timeout`` is not adapted."""
    settings = request.settings
    usual_s = None if settings.is_set("timeout") else settings["timeout"]
    return Deadlines(usual_s=usual_s, alike=request.facts.get("command") == "check")


def _needs_isolation(request: RunRequest) -> bool:
    """Return whether the driver, a generator or a reference of the run is user code."""

    def is_user_code(reference: object) -> bool:
        return callable(reference) or (isinstance(reference, str) and not reference.startswith("optest."))

    return request.driver.isolated or any(
        case.generator or case.reference or is_user_code(case.descriptor.reference) for case in request.cases
    )


def bench_options(settings: Settings) -> BenchOptions | None:
    """Return the options of timings, None without ``--bench``.

    Raises:
        UsageError: for text that is no time, or an option of timings without ``--bench``.
        UnknownName, Unavailable: for an unknown or missing comparison.
    """
    if not settings["bench"]:
        for name in ("bench_time", "bench_against"):
            if settings.is_set(name):
                raise UsageError(f"--{name.replace('_', '-')} has no effect without --bench; add --bench")
        return None
    if against := settings["bench_against"] or "":
        comparison_called(against)
    text = settings["bench_time"]
    match = _TIME.fullmatch(text.strip())
    target_s = float(match["number"]) * _UNITS_S[match["unit"]] if match else 0.0
    if target_s <= 0:
        raise UsageError(f"--bench-time is {text!r}, expected a time above 0 such as 0.2s, 50ms or 2s")
    return BenchOptions(target_s=target_s, against=against)


def _bench(request: RunRequest) -> BenchOptions | None:
    """Return :func:`bench_options` with the variant that a check compares other variants with as the baseline."""
    options, variants = bench_options(request.settings), request.facts.get("variants")
    return dataclasses.replace(options, baseline=variants[0]) if options is not None and variants else options


def bench_notes(options: BenchOptions | None, jobs: int) -> tuple[str, ...]:
    """Return the note that parallel workers disturb timings, if they do."""
    note = f"timed while {jobs} workers share this machine: they disturb each other, so --jobs 1 is more exact"
    return () if options is None or jobs == 1 else (note,)


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
                finish_s=_FINISH_S,
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
    return request.device_share is None and in_workers and bool(_device_requests(request))


def devices_of(request: RunRequest) -> Devices | None:
    """Return the devices of a run; None if no case needs any, or simulations run in this process (for debuggers).

    Raises:
        UsageError: for contradictory options, a missing tool, or a case that needs more devices than there are.
        UnknownName: for a platform that is not registered.
    """
    requests, settings = _device_requests(request), request.settings
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
                f"{lack}{_listed(too_wide)}\n  drop -n: scenes run in parallel without it, too; or widen --device"
            )
    if too_wide:
        by_default = "" if settings["device"] else " (the default)"
        raise UsageError(
            f"--device lists {plural(len(ids), 'device')}{by_default}, but cases need more: {','.join(map(str, ids))}"
            f"{_listed(too_wide)}\n"
            "  widen --device, or reduce the device_count of these cases"
        )
    # Timed cases must not share a processor, nor simulations outnumber the processors.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usual = len(ids) if has_hardware else max(1, min(processors, len(ids)))
    max_parallel = _explicit_parallel(settings) or usual
    rules = ScheduleRules(
        max_parallel=1 if settings["bench"] and not has_hardware else max_parallel,
        backfill=settings["schedule"] == "backfill",
        one_runtime=any(x.one_runtime_per_process for x in platforms),
    )
    return Devices(ids=ids, requests=requests, platforms=platforms, rules=rules)


def _device_requests(request: RunRequest) -> dict[int, DeviceRequest]:
    """Return the requests for devices by ``id(case)``, without skipped cases."""
    driver = request.driver
    if not isinstance(driver, NeedsDevices):
        return {}
    requests = {id(case): driver.devices_of(case) for case in request.cases if case.skip is None}
    return {key: needed for key, needed in requests.items() if needed is not None}


def _listed(lines: Sequence[str]) -> str:
    """Return up to ten lines, indented for the end of a message, and the number of the others."""
    more = [f"and {len(lines) - _MOST_NAMED} others"] if len(lines) > _MOST_NAMED else []
    return "".join(f"\n  {line}" for line in [*lines[:_MOST_NAMED], *more])


def _explicit_parallel(settings: Settings) -> int | None:
    """Return the number of ``--max-parallel``, None for ``auto``; raise ``UsageError`` for any other text and for 0."""
    text = settings["max_parallel"]
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--max-parallel is {text!r}, expected auto, or a number of processes from 1 on")
    return int(text)

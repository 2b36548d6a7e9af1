"""Where the executions of a run happen: in this process, in warm workers, or in a fresh process each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from optest.api.dispatching import FINISH_S, Devices, device_requests, devices_of, listed, stated_parallel
from optest.api.run_request import RunRequest, driver_options
from optest.backends.worker_abilities import DeviceRequest, NeedsDevices, NeedsEnvironment, keeps_deadline
from optest.core.benchmarking import BenchOptions, comparison_called
from optest.core.deadlines import Deadlines, PhaseLimits
from optest.core.devices import devices_held
from optest.core.dispatcher import Dispatcher
from optest.core.executors import BringsExecutor, Executor, InProcess
from optest.core.interruption import Interruption
from optest.core.messages import NotInWorker
from optest.core.session import Execution
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import Unavailable, UsageError, plural
from optest.guests import Guest, guests, run_hooks
from optest.registry import load_object
from optest.settings import Settings, environment, plugin_modules
from optest.settings.platforms import PLATFORMS, Platform, is_device, platform_called
from optest.settings.variables import worker_environment
from optest.spec import TestCase
from optest.store import RunDirectory

_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>us|µs|ms|s|min|)")
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """``make(lane)`` gives the executor of a lane; ``notes`` is what the report has to say of them.

    ``variables`` are set in this process while cases run in it. Where cases need devices, ``dispatcher`` makes who
    gives them workers, and ``make`` is not asked.
    """

    make: Callable[[int], Executor]
    isolation: str
    jobs: int
    dispatcher: Callable[[Sequence[Execution]], Dispatcher] | None = None
    notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    cases: Sequence[TestCase] | None = None
    """The cases in the order in which the lanes should take them, where that is not the plan's."""
    notes_at_end: list[str] = field(default_factory=list)
    """What is to be said of the lanes after the run."""
    close: Callable[[], None] = lambda: None
    """Called after the run."""


def lanes_of(request: RunRequest, directory: RunDirectory, interruption: Interruption) -> Lanes:
    """Resolve ``--isolate auto``: foreign code runs in workers, built-in references run in this process.

    The device of the backend is held until the lanes are closed. A worker of pytest-xdist uses the one that its session
    holds, and cases that need devices have a dispatcher that holds them.

    Raises:
        UsageError: if workers were asked for and cannot find the driver, or a case cannot have its devices.
        Unavailable: if the driver lacks something on this machine.
    """
    if isinstance(request.driver, BringsExecutor):
        executor = request.driver.executor(directory.path)
        return Lanes(make=lambda _: executor, isolation="case", jobs=1)
    for guest in guests():
        if guest.machines and request.settings[guest.options[0].name]:
            return _lanes_elsewhere(guest, request, directory)
    devices, stated = devices_of(request), request.settings["torch_device"]
    with ExitStack() as lease:
        if devices is None and request.device_share is None:
            lease.enter_context(torch_device_held(stated, request.driver.device(), lambda: interruption.happened))
        lanes = _local_lanes(request, directory, interruption, devices)
        return dataclasses.replace(lanes, close=lease.pop_all().close)


def torch_device_held(
    stated: str | None, actual: str | None = None, is_closed: Callable[[], bool] = lambda: False
) -> AbstractContextManager[None]:
    """Hold the device of ``--torch-device``, or without the option the actual one of a backend if it is hardware."""
    kind, _, index = (stated or actual or "cpu").partition(":")
    kind = "cuda" if kind == "gpu" else kind  # the name in JAX
    if kind == "cpu" or not is_device(kind) or not (stated or kind in PLATFORMS):
        return nullcontext()
    platform = platform_called(kind) if kind in PLATFORMS else Platform(name=kind)
    return devices_held(platform, [int(index) if index.isdecimal() else 0], is_closed)


def _local_lanes(
    request: RunRequest, directory: RunDirectory, interruption: Interruption, devices: Devices | None
) -> Lanes:
    isolation, jobs = request.settings["isolate"], request.settings["jobs"]
    if devices is not None:
        jobs = devices.rules.max_parallel
    elif isolation == "none" or (isolation == "auto" and jobs == 1 and not _needs_isolation(request)):
        if jobs > 1:
            raise UsageError("--jobs needs workers, but --isolate none runs in this process; drop one of them")
        return _lane_here(request, directory, interruption)
    options = _worker_options(request, directory, jobs)
    # a worker without a case would only cost its start
    jobs = min(jobs, max(1, len(request.cases) * request.settings["rounds"]))
    first = WorkerProcess(options, "worker-0", request.forks)
    if devices is None:
        interruption.ends(first)  # who loads a framework for minutes, too
        try:
            first.start()
        except NotInWorker as error:
            if isolation != "auto" or (jobs > 1 and request.settings.stated("jobs")):
                raise
            here = _lane_here(request, directory, interruption)
            note = f"run in this process: {str(error).splitlines()[0]}"
            return dataclasses.replace(here, notes=(note, *here.notes))
    return Lanes(
        make=lambda lane: first if lane == 0 else WorkerProcess(options, f"worker-{lane}", request.forks),
        dispatcher=None if devices is None else partial(devices.dispatcher, request, options),
        isolation="case" if options.fresh else "worker",
        jobs=jobs,
        notes=bench_notes(options.bench, jobs),
    )


def _lanes_elsewhere(guest: Guest, request: RunRequest, directory: RunDirectory) -> Lanes:
    """Workers on the machines that a guest connects to: as many as these have slots, or as are stated."""
    settings, requests, option = request.settings, _requests_elsewhere(request), guest.options[0]
    flag, where = option.flags[0], settings[option.name]
    for wrong, is_stated, why in (
        ("--bench", settings["bench"], "others compute on its machines, which differ"),
        ("--isolate none", settings["isolate"] == "none", "its workers are elsewhere"),
        ("--device", requests and settings.stated("device"), "Ray chooses devices"),
    ):
        if is_stated:
            raise UsageError(f"{wrong} is not for a run on a cluster: {why}; drop it, or {flag}")
    try:
        cluster = load_object(guest.machines)(where, requests)
    except Unavailable as error:
        raise Unavailable(flag, error.remedy) from None
    try:
        kinds = {case.id: requests.get(id(case)) for case in request.cases}
        lacks = {kind: lack for kind in set(kinds.values()) if (lack := cluster.lack(kind))}
        if lines := [f"{name} needs {lacks[kind]}" for name, kind in kinds.items() if kind in lacks]:
            raise UsageError(f"no node of the cluster has what cases need{listed(lines)}")
        slots = cluster.slots(set(kinds.values()))
        jobs = min(slots, stated_parallel(settings) or slots, settings["jobs"] if settings.stated("jobs") else slots)
        options = dataclasses.replace(_worker_options(request, directory, jobs), finish_s=FINISH_S if requests else 0.0)
    except BaseException:
        cluster.close()
        raise
    return Lanes(
        make=lambda _: cluster.executor(options),
        isolation="case" if options.fresh else "worker",
        jobs=jobs,
        notes=(f"on {plural(len(cluster.nodes()), 'node')} of a Ray cluster ({where})",),
        cases=sorted(request.cases, key=lambda case: _by_devices(requests.get(id(case)))),
        notes_at_end=cluster.notes,
        close=cluster.close,
    )


def _requests_elsewhere(request: RunRequest) -> dict[int, DeviceRequest]:
    """What cases need of devices there, as far as it decides which of them may have one worker after the other; where a
    driver states nothing, the device that it computes on, if that is hardware of a platform."""
    if isinstance(request.driver, NeedsDevices):
        return {key: dataclasses.replace(each, level=2, file="") for key, each in device_requests(request).items()}
    kind = (request.driver.device() or "").partition(":")[0]
    kind = "cuda" if kind == "gpu" else kind  # as JAX calls it
    if kind not in PLATFORMS or not is_device(kind):
        return {}
    return {id(case): DeviceRequest(platform=kind, runtime="") for case in request.cases if case.skip is None}


def _by_devices(request: DeviceRequest | None) -> tuple[Any, ...]:
    """Cases that need the same devices one after the other, the widest first."""
    return () if request is None else (-request.count, request.platform, request.runtime)


def _worker_options(request: RunRequest, directory: RunDirectory, jobs: int) -> WorkerOptions:
    settings, driver = request.settings, request.driver
    bench = _bench(request)
    limits = PhaseLimits(bench_s=4 * bench.target_s if bench else 0.0, deadlines=_deadlines(request))
    if keeps_deadline(driver):
        limits = dataclasses.replace(limits, times=jobs, extra_s=60.0)
    needed = driver.environment(request.cases) if isinstance(driver, NeedsEnvironment) else {}
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


def _lane_here(request: RunRequest, directory: RunDirectory, interruption: Interruption) -> Lanes:
    executor = InProcess(
        request.driver,
        request.wants_every_measure,
        interruption,
        directory.tensors_dir() if request.keep else None,
        _bench(request),
        _deadlines(request),
    )
    unkept = request.driver.isolated and not keeps_deadline(request.driver)
    notes = ("run in this process: deadlines are not kept, and a crash ends the run",) if unkept else ()
    variables = dict(_environment(request, directory).items() - environment().items())
    return Lanes(make=lambda _: executor, isolation="none", jobs=1, notes=notes, variables=variables)


def _environment(request: RunRequest, directory: RunDirectory) -> dict[str, str]:
    """The user's environment with what guests need beside it."""
    variables = environment()
    for hooks in run_hooks():
        variables = hooks.environment(request.settings, directory.path, variables)
    return variables


def _deadlines(request: RunRequest) -> Deadlines:
    """One record for all lanes; a deadline that the user stated for the run stays as it is."""
    settings = request.settings
    usual_s = None if settings.stated("timeout") else settings["timeout"]
    return Deadlines(usual_s=usual_s, alike=request.facts.get("command") == "check")


def _needs_isolation(request: RunRequest) -> bool:
    return request.driver.isolated or any(
        case.generator or case.reference or _is_foreign(case.descriptor.reference) for case in request.cases
    )


def _is_foreign(reference: object) -> bool:
    return callable(reference) or (isinstance(reference, str) and not reference.startswith("optest."))


def bench_options(settings: Settings) -> BenchOptions | None:
    """What is to be timed, None without ``--bench``.

    Raises:
        UsageError: for a time that is none, or an option that does nothing without ``--bench``.
        UnknownName, Unavailable: for a comparison that is not there.
    """
    if not settings["bench"]:
        for name in ("bench_time", "bench_against"):
            if settings.stated(name):
                raise UsageError(f"--{name.replace('_', '-')} times nothing by itself; add --bench")
        return None
    if against := settings["bench_against"] or "":
        comparison_called(against)
    return BenchOptions(target_s=_seconds(settings["bench_time"]), against=against)


def _bench(request: RunRequest) -> BenchOptions | None:
    """The same with the variant that a check compares others with."""
    options, variants = bench_options(request.settings), request.facts.get("variants")
    return dataclasses.replace(options, baseline=variants[0]) if options is not None and variants else options


def bench_notes(options: BenchOptions | None, jobs: int) -> tuple[str, ...]:
    """What a reader of the timings has to know."""
    note = f"timed while {jobs} workers share this machine: they disturb each other, so --jobs 1 is more exact"
    return () if options is None or jobs == 1 else (note,)


def _seconds(text: str) -> float:
    match = _TIME.fullmatch(text.strip())
    seconds = float(match["number"]) * _UNITS_S[match["unit"]] if match else 0.0
    if not match or seconds <= 0:
        raise UsageError(f"--bench-time is {text!r}, but should be a time such as 0.2s, 50ms or 2s, and more than 0")
    return seconds

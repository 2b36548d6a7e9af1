"""Executors of a run: this process, warm workers, a fresh process for each case, or machines of a cluster."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from optest.api.dispatching import FINISH_S, Devices, device_requests, devices_of, explicit_parallel, listed
from optest.api.run_request import RunRequest, driver_options
from optest.backends.worker_abilities import DeviceRequest, NeedsDevices, NeedsEnvironment, keeps_deadline
from optest.core.benchmarking import BenchOptions, comparison_called
from optest.core.deadlines import Deadlines, PhaseLimits
from optest.core.devices import devices_held
from optest.core.dispatcher import Dispatcher
from optest.core.executors import Executor, HasExecutor, InProcess
from optest.core.interruption import Interruption
from optest.core.messages import NotInWorker
from optest.core.session import Execution
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import Unavailable, UsageError, plural
from optest.guests import Guest, guests, run_hooks
from optest.registry import load_object
from optest.settings import Settings, environment, plugin_modules
from optest.settings.platforms import PLATFORMS, Platform, get_platform, is_device
from optest.settings.variables import worker_environment
from optest.spec import TestCase
from optest.store import RunDirectory

_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>us|µs|ms|s|min|)")
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
            return _cluster_lanes(guest, request, directory)
    devices, requested = devices_of(request), request.settings["torch_device"]
    with ExitStack() as lease:
        if devices is None and request.device_share is None:
            lease.enter_context(
                torch_device_held(requested, request.driver.device(), lambda: interruption.is_cancelled)
            )
        lanes = _local_lanes(request, directory, interruption, devices)
        return dataclasses.replace(lanes, close=lease.pop_all().close)


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


def _local_lanes(
    request: RunRequest, directory: RunDirectory, interruption: Interruption, devices: Devices | None
) -> WorkerSlots:
    isolation, jobs = request.settings["isolate"], request.settings["jobs"]
    if devices is not None:
        jobs = devices.rules.max_parallel
    elif isolation == "none" or (isolation == "auto" and jobs == 1 and not _needs_isolation(request)):
        if jobs > 1:
            raise UsageError("--jobs needs workers, but --isolate none runs in this process; drop one of them")
        return _in_process_lane(request, directory, interruption)
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
            lanes = _in_process_lane(request, directory, interruption)
            note = f"in-process run: {str(error).splitlines()[0]}"
            return dataclasses.replace(lanes, notes=(note, *lanes.notes))
    return WorkerSlots(
        make=lambda lane: first if lane == 0 else WorkerProcess(options, f"worker-{lane}", request.forks),
        dispatcher=None if devices is None else partial(devices.dispatcher, request, options),
        isolation="case" if options.fresh else "worker",
        jobs=jobs,
        notes=bench_notes(options.bench, jobs),
    )


def _cluster_lanes(guest: Guest, request: RunRequest, directory: RunDirectory) -> WorkerSlots:
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
            raise UsageError(f"no node of the cluster has the devices that cases need{listed(lines)}")
        slots = cluster.slots(set(kinds.values()))
        jobs = min(slots, explicit_parallel(settings) or slots, settings["jobs"] if settings.is_set("jobs") else slots)
        options = dataclasses.replace(_worker_options(request, directory, jobs), finish_s=FINISH_S if requests else 0.0)
    except BaseException:
        cluster.close()
        raise
    return WorkerSlots(
        make=lambda _: cluster.executor(options),
        isolation="case" if options.fresh else "worker",
        jobs=jobs,
        notes=(f"on {plural(len(cluster.nodes()), 'node')} of a Ray cluster ({where})",),
        # A worker keeps its devices for the next case of the same need; the widest first.
        cases=sorted(request.cases, key=lambda case: _device_order(requests.get(id(case)))),
        notes_at_end=cluster.notes,
        close=cluster.close,
    )


def _cluster_requests(request: RunRequest) -> dict[int, DeviceRequest]:
    """Return the requests for devices by ``id(case)``: the driver's, else one for its own device if it is hardware."""
    if isinstance(request.driver, NeedsDevices):
        # Level and file do not matter for the choice of a node.
        return {key: dataclasses.replace(x, level=2, file="") for key, x in device_requests(request).items()}
    kind = (request.driver.device() or "").partition(":")[0]
    kind = "cuda" if kind == "gpu" else kind  # the name in JAX
    if kind not in PLATFORMS or not is_device(kind):
        return {}
    return {id(case): DeviceRequest(platform=kind, runtime="") for case in request.cases if case.skip is None}


def _device_order(request: DeviceRequest | None) -> tuple[Any, ...]:
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


def _in_process_lane(request: RunRequest, directory: RunDirectory, interruption: Interruption) -> WorkerSlots:
    executor = InProcess(
        request.driver,
        request.wants_every_measure,
        interruption,
        directory.tensors_dir() if request.keep else None,
        _bench(request),
        _deadlines(request),
    )
    is_unlimited = request.driver.isolated and not keeps_deadline(request.driver)
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

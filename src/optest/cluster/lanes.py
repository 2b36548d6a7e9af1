"""The Ray cluster of a run, and one lane of a session whose worker is on a node of it."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from optest import __version__
from optest.backends.worker_abilities import DeviceRequest
from optest.cluster.node import GPU, NodeWorker, Place, Travelling, resource_of
from optest.core.executors import Closed
from optest.core.messages import Asked, Broken, Died, Ready, as_execution, decode_for_parent, encode, refusal
from optest.core.runner import ExecutionResult
from optest.core.verdicts import excused
from optest.core.wire import case_to_wire
from optest.core.worker_process import WorkerOptions
from optest.errors import InternalError, UsageError
from optest.settings import environment
from optest.settings.platforms import device_ids
from optest.settings.variables import variable_by_default
from optest.spec import Check, CheckState, Reason, Status, TestCase, Timings, Verdict

__all__ = ["Cluster", "ClusterExecutor", "connect"]

_LOCAL = "local"
_STORE_BYTES = 150 << 20
"""Of the object store of a cluster on this machine: cases and verdicts are small."""

_STAYS = (".git", ".optest", ".venv", "__pycache__")
_LARGE_BYTES = 100 << 20
_RUN_AGAIN, _START_AGAIN = 2, 5
"""How often what a lost worker had not answered is run again, and how often one is started that is lost at once."""

_REACH_S, _LOOK_S, _SAY_S, _CLOSE_S = 10.0, 1.0, 15.0, 15.0
"""How long reaching a cluster may take, how often a lane that waits for an actor looks up, when the user hears of it,
how long an actor's end may take."""


@dataclass(slots=True)
class Cluster:
    """A connection to Ray; ``notes`` is what the end of the run has to say of it, ``lost`` the ids of nodes on which a
    worker was lost."""

    address: str
    notes: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that live and have processors for work."""
        return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def lack(self, request: DeviceRequest | None) -> str:
        """What no node has enough of for such a case, even if nothing ran there; "" if one has."""
        nodes, needs = [node["Resources"] for node in self.nodes()], _needs_of(request)
        if any(_times(node, needs) for node in nodes):
            return ""
        most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in needs}
        return ", ".join(f"{count:g} {name} (a node has up to {most[name]:g})" for name, count in needs.items())

    def slots(self, requests: Iterable[DeviceRequest | None]) -> int:
        """How many actors with such requests can be busy at a time."""
        nodes = [node["Resources"] for node in self.nodes()]
        narrowest: dict[str, Mapping[str, float]] = {}
        for needs in sorted(map(_needs_of, requests), key=lambda needs: -sum(needs.values())):
            narrowest["".join(needs)] = needs
        fitting = sum(_times(node, needs) for needs in narrowest.values() for node in nodes)
        return max(1, min(fitting, sum(int(node["CPU"]) for node in nodes)))

    def travelling(self, options: WorkerOptions) -> Travelling:
        """What the nodes need of this process: of the environment what the run adds, and optest's own variables."""
        stated, libraries = environment(), (sys.prefix, sys.base_prefix)
        added = {
            name: value
            for name, value in options.environment.items()
            if stated.get(name) != value or name.startswith("OPTEST_")
        }
        paths = tuple(each for each in sys.path if each and not each.startswith(libraries))
        return Travelling(os.getcwd(), self.address != _LOCAL, paths, replace(options, environment=added))

    def tell(self, note: str) -> None:
        """Tell the user now, and in the report once more."""
        if note not in self.notes:
            self.notes.append(note)
            print(f"optest: {note}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        ray.shutdown()


def connect(address: str, requests: Iterable[DeviceRequest]) -> Cluster:
    """Connect to the cluster at ``address``, to which the current folder travels; ``local`` starts one here, with the
    devices that ``requests`` are for.

    Raises:
        UsageError: if that cannot be done, or a node cannot import this version of optest.
    """
    if ray.is_initialized():
        raise UsageError("--cluster connects to Ray itself, and this process is connected: call ray.shutdown() before")
    host, _, port = address.rpartition(":")
    if address not in ("auto", _LOCAL):
        try:  # Ray would wait for minutes
            socket.create_connection((host, int(port)), _REACH_S).close()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--cluster is {address!r}, but should be HOST:PORT of a cluster, auto or local: {error}"
            ) from None
    variable_by_default("RAY_USAGE_STATS_ENABLED", "0")
    cluster, large, more = Cluster(address), list[str](), dict[str, Any]()
    if address == _LOCAL:
        named = {resource_of(each.platform) for each in requests} - {"", GPU}
        more["resources"] = dict.fromkeys(named, len(device_ids(None)))
        more |= {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
    else:
        large += _large_files(os.curdir)
        more["runtime_env"] = {"working_dir": os.curdir, "excludes": [*_STAYS, *(f"/{each}" for each in large)]}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **more)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise UsageError(f"--cluster {address}: {_first_line(error)}") from None
    for name in large:
        cluster.tell(f"{name} did not travel to the cluster: it is larger than {_LARGE_BYTES >> 20} MiB")
    try:
        _require_same_optest(cluster)
    except BaseException:
        cluster.close()
        raise
    return cluster


def _require_same_optest(cluster: Cluster) -> None:
    def version() -> str:  # travels by value: there may be no optest to find it in
        try:
            import optest
        except ImportError as error:
            return f"none ({error})"
        return optest.__version__

    asked = []
    for node in cluster.nodes():
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked.append((node, ray.remote(version).options(num_cpus=0, scheduling_strategy=strategy).remote()))
    for node, answer in asked:
        where = f"--cluster {cluster.address}: node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            has = ray.get(answer)
        except RayError as error:
            if node["NodeID"] in {each["NodeID"] for each in cluster.nodes()}:
                raise UsageError(f"{where} does not start: {_first_line(error)}") from None
            continue  # it was dead, and Ray did not know yet
        if has != __version__:
            raise UsageError(f"{where} has optest {has}, not {__version__}; install the same version on every node")


def _large_files(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in _STAYS]
        for path in (os.path.join(root, each) for each in files):
            if os.path.isfile(path) and os.path.getsize(path) > _LARGE_BYTES:
                yield os.path.relpath(path, folder)


def _needs_of(request: DeviceRequest | None) -> dict[str, float]:
    """What an actor asks Ray for, all of it on one node."""
    resource = "" if request is None else resource_of(request.platform)
    return {"CPU": 1.0} | ({resource: float(request.count)} if request is not None and resource else {})


def _times(resources: Mapping[str, float], needs: Mapping[str, float]) -> int:
    return min(int(resources.get(name, 0.0) // count) for name, count in needs.items())


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class ClusterExecutor:
    """Runs executions in an actor of Ray, which is kept while the next ones need as many devices for the same runtime.

    ``requests`` has what cases need of devices, by their identity. What is asked ahead goes to the actor in batches.
    :meth:`close` may be called from another thread than :meth:`execute`, which then ends soon.
    """

    def __init__(self, cluster: Cluster, travelling: Travelling, requests: Mapping[int, DeviceRequest]) -> None:
        self._cluster, self._travelling, self._requests = cluster, travelling, requests
        self._actor: Any = None
        self._place: Place | None = None
        self._kind: tuple[object, ...] = ()
        """The platform, runtime and count that the actor is for."""
        self._ahead: deque[tuple[Sequence[TestCase], Iterator[Any]]] = deque()
        """What the actor was asked and has not answered, with the answers of its batch."""
        self._closed = False

    @property
    def looks_ahead(self) -> bool:
        """Not before it has an actor: while it waits for one, others run what it would take."""
        return self._place is not None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases, and once more elsewhere where the worker is lost with its machine.

        Raises:
            Unavailable, UsageError: if no worker can be started, or it cannot load the driver.
            Closed: if another thread closed it.
        """
        losses: list[str] = []
        while len(losses) <= _RUN_AGAIN:
            if losses and (lack := self._cluster.lack(self._requests.get(id(cases[0])))):
                losses.append(f"no node is left that has {lack}")
                break
            place = self._placed(cases)
            try:
                execution = self._answer(cases, following)
            except RayTaskError as error:
                raise InternalError(f"a node of the cluster failed: {error}") from None
            except RayError as error:
                losses.append(self._lost(place, error))
                continue
            return replace(_after(losses, execution), devices=place.devices)
        verdict = Verdict(status=Status.CRASHED, reason=Reason.DEVICE_LOST, message="; ".join(losses))
        return ExecutionResult(tuple(excused(case, verdict) for case in cases), Timings(), attempts=_RUN_AGAIN + 1)

    def close(self) -> None:
        """End the actor: at once, or orderly if it has nothing to do."""
        self._closed = True
        self._end_actor()

    def _kind_of(self, cases: Sequence[TestCase]) -> tuple[object, ...]:
        request = self._requests.get(id(cases[0]))
        return ("",) if request is None else (request.platform, request.runtime, request.count)

    def _answer(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]]) -> ExecutionResult:
        """Ask what the actor was not asked yet, unless it has enough, and wait for the next answer."""
        wanted = [cases, *takewhile(lambda each: self._kind_of(each) == self._kind, following)]
        new = wanted[len(self._ahead) :]
        if len(new) >= len(self._ahead):
            questions = [encode(Asked(1, [case.key for case in each], list(map(case_to_wire, each)))) for each in new]
            answers = self._actor.run.options(num_returns="streaming").remote(questions)
            self._ahead += [(each, answers) for each in new]
        message = decode_for_parent(ray.get(next(self._ahead[0][1])))
        self._ahead.popleft()
        if isinstance(message, Broken) and not message.number:
            raise refusal(message.kind, message.message)
        assert not isinstance(message, Ready | Died)
        return as_execution(message, cases)

    def _placed(self, cases: Sequence[TestCase]) -> Place:
        """Where the actor for these cases is; it is started, if need be, as soon as Ray has a place for it."""
        if self._kind_of(cases) != self._kind or (self._ahead and self._ahead[0][0] is not cases):
            self._end()
        for _ in range(_START_AGAIN):
            if self._place is not None:
                return self._place
            self._kind = self._kind_of(cases)
            try:
                self._place = self._start(self._requests.get(id(cases[0])))
            except RayError as error:
                why = self._lost(None, error)
        raise UsageError(f"--cluster {self._cluster.address}: {why}, {_START_AGAIN} times, before it began")

    def _start(self, request: DeviceRequest | None) -> Place:
        needs = _needs_of(request)
        what = ", ".join(f"{count:g} {name}" for name, count in needs.items())
        options: dict[str, Any] = {"num_cpus": needs.pop("CPU"), "num_gpus": needs.pop(GPU, 0), "resources": needs}
        if self._cluster.lost:  # elsewhere, if there is a place elsewhere
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._cluster.lost)})"}
            options["fallback_strategy"] = [{"label_selector": {}}]
        self._actor = ray.remote(NodeWorker).options(**options).remote(self._travelling, request)
        started, waited_s = self._actor.start.remote(), 0.0
        while not ray.wait([started], timeout=_LOOK_S)[0]:
            self._require_open()
            waited_s += _LOOK_S
            if waited_s == _SAY_S:
                self._cluster.tell(f"waiting for the cluster to have {what} free")
        place: Place | Broken = ray.get(started)
        self._require_open()
        if isinstance(place, Broken):
            raise refusal(place.kind, place.message)
        return place

    def _require_open(self) -> None:
        if self._closed:
            self._end()
            raise Closed("a lane of the cluster was closed while a case was waiting for it")

    def _lost(self, place: Place | None, error: RayError) -> str:
        self._ahead.clear()  # nobody answers it
        self._require_open()
        self._end()
        note = f"the worker on {place.node if place else 'a node'} was lost: {_first_line(error)}"
        if place is not None:
            self._cluster.lost.add(place.node_id)
            self._cluster.tell(f"{note}; what it had not answered runs again")
        return note

    def _end(self) -> None:
        self._end_actor()
        self._actor = self._place = None
        self._ahead.clear()

    def _end_actor(self) -> None:
        actor, is_idle = self._actor, self._place is not None and not self._ahead
        if actor is None:
            return
        if is_idle:
            with suppress(RayError):
                ray.get(actor.close.remote(), timeout=_CLOSE_S)
        ray.kill(actor)


def _after(losses: Sequence[str], execution: ExecutionResult) -> ExecutionResult:
    """The outcome with what was lost before it. The machine was, not the case: a pass stays a pass."""
    if not losses:
        return execution
    check = Check(name="worker", state=CheckState.NOTE, detail=f"run {1 + len(losses)} times: {'; '.join(losses)}")
    verdicts = tuple(replace(each, checks=(*each.checks, check)) for each in execution.verdicts)
    return replace(execution, verdicts=verdicts, attempts=1 + len(losses))

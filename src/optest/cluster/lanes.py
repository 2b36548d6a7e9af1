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
from optest.cluster.node import GPU, NodeWorker, Place, name_of, resource_of
from optest.core.executors import Closed, say
from optest.core.messages import Asked, Broken, as_execution, refusal
from optest.core.runner import ExecutionResult
from optest.core.verdicts import excused
from optest.core.wire import case_to_wire
from optest.core.worker_process import WorkerOptions
from optest.errors import InternalError, UsageError
from optest.settings import environment
from optest.settings.platforms import device_ids
from optest.settings.variables import variable_by_default
from optest.spec import Check, CheckState, Reason, Status, TestCase, Timings, Verdict

_LOCAL = "local"
_STORE_BYTES = 150 << 20
"""Of the object store of a cluster on this machine: cases and verdicts are small."""
_STAYS = [".git", ".optest", ".venv", "__pycache__"]
_RUN_AGAIN = 2
"""How often what a lost worker had not answered is run again."""
_REACH_S, _SAY_S, _CLOSE_S = 10.0, 15.0, 15.0
"""How long reaching a cluster may take, when a lane that waits for an actor says so, how long an actor's end takes."""


@dataclass(slots=True)
class Cluster:
    """A connection to Ray. ``requests`` has what cases need of devices, by their identity, ``notes`` what the end of
    the run has to say, ``lost`` the ids of nodes on which a worker was lost."""

    address: str
    requests: Mapping[int, DeviceRequest]
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
        needs = [_needs_of(each) for each in requests]
        return max(1, sum(max(_times(node["Resources"], each) for each in needs) for node in self.nodes()))

    def executor(self, options: WorkerOptions) -> ClusterExecutor:
        """One lane; its workers are started with ``options``, of whose environment goes to a node what the run adds,
        and optest's own variables."""
        own = {name: value for name, value in environment().items() if not name.startswith("OPTEST_")}
        added = dict(options.environment.items() - own.items())
        paths = tuple(each for each in sys.path if each and not each.startswith((sys.prefix, sys.base_prefix)))
        travelling = os.getcwd(), self.address != _LOCAL, paths, replace(options, environment=added)
        return ClusterExecutor(self, travelling)

    def close(self) -> None:
        ray.shutdown()


def connect(address: str, requests: Mapping[int, DeviceRequest]) -> Cluster:
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
            wanted = "HOST:PORT of a cluster, auto or local"
            raise UsageError(f"--cluster is {address!r}, expected {wanted}: {error}") from None
    variable_by_default("RAY_USAGE_STATS_ENABLED", "0")
    cluster, more = Cluster(address, requests), dict[str, Any]()
    if address == _LOCAL:
        named = {resource_of(each.platform) for each in requests.values()} - {"", GPU}
        more["resources"] = dict.fromkeys(named, len(device_ids(None)))
        more |= {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
    else:
        more["runtime_env"] = {"working_dir": os.curdir, "excludes": _STAYS}
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **more)
        _require_same_optest(cluster)
    except BaseException as error:
        cluster.close()
        if isinstance(error, OSError | RuntimeError | ValueError | RayError):
            raise UsageError(f"--cluster {address}: {_first_line(error)}") from None
        raise
    return cluster


def _require_same_optest(cluster: Cluster) -> None:
    def version() -> str:  # travels by value: there may be no optest to find it in
        try:
            import optest
        except ImportError as error:
            return f"none ({error})"
        return optest.__version__

    nodes, ask = cluster.nodes(), ray.remote(version).options
    there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    answers = [ask(num_cpus=0, scheduling_strategy=each).remote() for each in there]
    for node, answer in zip(nodes, answers, strict=True):
        try:
            has = ray.get(answer)
        except RayError:
            if node["NodeID"] not in {each["NodeID"] for each in cluster.nodes()}:
                continue  # it was dead, and Ray did not know yet
            raise
        if has != __version__:
            where = f"--cluster {cluster.address}: node {name_of(node)}"
            raise UsageError(f"{where} has optest {has}, not {__version__}; install the same version on every node")


def _needs_of(request: DeviceRequest | None) -> dict[str, float]:
    """What an actor asks Ray for, all of it on one node."""
    resource = "" if request is None else resource_of(request.platform)
    return {"CPU": 1.0} | ({resource: float(request.count)} if request is not None and resource else {})


def _times(resources: Mapping[str, float], needs: Mapping[str, float]) -> int:
    return min(int(resources.get(name, 0.0) // count) for name, count in needs.items())


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@dataclass(slots=True, eq=False)
class ClusterExecutor:
    """Runs executions in an actor of Ray, which is kept while the next ones make the same request.

    What is asked ahead goes to the actor in batches. :meth:`close` may be called from another thread than
    :meth:`execute`, which then ends soon.
    """

    cluster: Cluster
    travelling: tuple[object, ...]
    """What goes to a node beside the request."""
    _actor: Any = field(default=None, init=False)
    _place: Place | None = field(default=None, init=False)
    _request: DeviceRequest | None = field(default=None, init=False)
    """What the actor was started for."""
    _ahead: deque[tuple[Sequence[TestCase], Iterator[Any]]] = field(default_factory=deque, init=False)
    """What the actor was asked and has not answered, with the answers of its batch."""
    _is_closed: bool = field(default=False, init=False)

    @property
    def looks_ahead(self) -> bool:
        """Not before it has an actor: while it waits for one, others run what it would take."""
        return self._place is not None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases, and again elsewhere where the worker is lost with its machine.

        Raises:
            Unavailable, UsageError: if the worker cannot load the driver.
            Closed: if another thread closed it.
        """
        losses: list[str] = []
        while len(losses) <= _RUN_AGAIN:
            if losses and (lack := self.cluster.lack(self._request)):
                losses.append(f"no node is left that has {lack}")
                break
            try:
                place = self._placed(cases)
                execution = self._answer(cases, following)
            except RayTaskError as error:
                raise InternalError(f"a node of the cluster failed: {error}") from None
            except RayError as error:
                losses.append(self._lost(error))
                continue
            return replace(_after(losses, execution), devices=place.devices)
        verdict = Verdict(status=Status.CRASHED, reason=Reason.DEVICE_LOST, message="; ".join(losses))
        return ExecutionResult(tuple(excused(case, verdict) for case in cases), Timings(), attempts=_RUN_AGAIN + 1)

    def close(self) -> None:
        """End the actor: at once, or orderly if it has nothing to do."""
        self._is_closed = True
        self._end_actor()

    def _answer(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]]) -> ExecutionResult:
        """Ask what the actor was not asked yet, unless it has enough, and wait for the next answer."""
        requests = self.cluster.requests
        wanted = [cases, *takewhile(lambda each: requests.get(id(each[0])) == self._request, following)]
        new = wanted[len(self._ahead) :]
        if len(new) >= len(self._ahead):
            questions = [Asked(1, [case.key for case in each], list(map(case_to_wire, each))) for each in new]
            answers = self._actor.run.options(num_returns="streaming").remote(questions)
            self._ahead += [(each, answers) for each in new]
        answer: ExecutionResult | Broken = ray.get(next(self._ahead[0][1]))
        self._ahead.popleft()
        if isinstance(answer, ExecutionResult):
            return answer
        if answer.number:
            return as_execution(answer, cases)
        raise refusal(answer.kind, answer.message)

    def _placed(self, cases: Sequence[TestCase]) -> Place:
        """Where the actor for these cases is; it is started, if need be, as soon as Ray has a place for it."""
        request = self.cluster.requests.get(id(cases[0]))
        if request != self._request or (self._ahead and self._ahead[0][0] is not cases):
            self._end()
        if self._place is not None:
            return self._place
        self._request, needs, lost = request, _needs_of(request), self.cluster.lost
        what = ", ".join(f"{count:g} {name}" for name, count in needs.items())
        options: dict[str, Any] = {"num_cpus": needs.pop("CPU"), "num_gpus": needs.pop(GPU, 0), "resources": needs}
        if lost:  # elsewhere, if there is a place elsewhere
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(lost)})"}
            options["fallback_strategy"] = [{"label_selector": {}}]
        self._actor = ray.remote(NodeWorker).options(**options).remote(*self.travelling, request)
        self._require_open()  # who closed this before saw no actor
        started = self._actor.start.remote()
        if not ray.wait([started], timeout=_SAY_S)[0]:
            say(f"waiting for the cluster to have {what} free", self.cluster.notes)
        place: Place | Broken = ray.get(started)
        if isinstance(place, Broken):
            raise refusal(place.kind, place.message)
        self._place = place
        return place

    def _require_open(self) -> None:
        if self._is_closed:
            self._end()
            raise Closed("a lane of the cluster was closed while a case was waiting for it")

    def _lost(self, error: RayError) -> str:
        """Put away what is left of an actor; returns what is to be said of it."""
        place, self._place = self._place, None
        self._require_open()
        self._end()
        note = f"the worker on {place.node if place else 'a node'} was lost: {_first_line(error)}"
        if place is not None:
            self.cluster.lost.add(place.node_id)
            say(f"{note}; what it had not answered runs again", self.cluster.notes)
        return note

    def _end(self) -> None:
        self._end_actor()
        self._actor = self._place = None
        self._ahead.clear()

    def _end_actor(self) -> None:
        actor = self._actor
        if actor is not None and self._place is not None and not self._ahead:
            with suppress(RayError):
                ray.get(actor.close.remote(), timeout=_CLOSE_S)
        if actor is not None:
            ray.kill(actor)


def _after(losses: Sequence[str], execution: ExecutionResult) -> ExecutionResult:
    """The outcome with what was lost before it. The machine was, not the case: a pass stays a pass."""
    if not losses:
        return execution
    check = Check(name="worker", state=CheckState.NOTE, detail=f"run {1 + len(losses)} times: {'; '.join(losses)}")
    verdicts = tuple(replace(each, checks=(*each.checks, check)) for each in execution.verdicts)
    return replace(execution, verdicts=verdicts, attempts=1 + len(losses))

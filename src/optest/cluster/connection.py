"""The Ray cluster of a run, and executors whose workers are on its nodes."""

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
from optest.cluster.node import GPU, NodeWorker, Placement, name_of, resource_of
from optest.core.executors import Closed, print_note
from optest.core.messages import Broken, Request, refusal, result_of_message
from optest.core.runner import ExecutionResult
from optest.core.verdicts import apply_xfail
from optest.core.wire import case_to_wire
from optest.core.worker_process import WorkerOptions
from optest.errors import InternalError, UsageError
from optest.settings import environment
from optest.settings.platforms import device_ids
from optest.settings.variables import variable_by_default
from optest.spec import Check, CheckState, Reason, Status, TestCase, Timings, Verdict

_LOCAL = "local"
# Of the object store of a cluster on this machine: cases and verdicts are small.
_STORE_BYTES = 150 << 20
_NOT_COPIED = [".git", ".optest", ".venv", "__pycache__"]
# Repetitions of cases without a result from a lost worker.
_RETRIES = 2
# Limits for reaching a cluster, for waiting for an actor without a note, and for ending an actor.
_REACH_S, _NOTE_S, _CLOSE_S = 10.0, 15.0, 15.0


@dataclass(slots=True)
class Cluster:
    """A connection to Ray. ``requests`` are the devices that cases need, by ``id(case)``; ``notes`` are printed at the
    end of the run; ``lost`` are the ids of nodes on which a worker was lost."""

    address: str
    requests: Mapping[int, DeviceRequest]
    notes: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the living nodes that have CPUs for work."""
        return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def lack(self, request: DeviceRequest | None) -> str:
        """Return the resources that no node has enough of for such a case, even if idle; "" if a node has."""
        nodes, needs = [node["Resources"] for node in self.nodes()], _needs_of(request)
        if any(_fitting_actors(node, needs) for node in nodes):
            return ""
        most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in needs}
        return ", ".join(f"{count:g} {name} (a node has up to {most[name]:g})" for name, count in needs.items())

    def slots(self, requests: Iterable[DeviceRequest | None]) -> int:
        """Return the number of actors with such requests that can run at a time."""
        needs = [_needs_of(request) for request in requests]
        return max(1, sum(max(_fitting_actors(node["Resources"], x) for x in needs) for node in self.nodes()))

    def executor(self, options: WorkerOptions) -> ClusterExecutor:
        """Return an executor whose workers are started with ``options``."""
        # A node gets only the variables that the run adds to the user's environment, and those of optest.
        environ = {name: value for name, value in environment().items() if not name.startswith("OPTEST_")}
        added = dict(options.environment.items() - environ.items())
        paths = tuple(path for path in sys.path if path and not path.startswith((sys.prefix, sys.base_prefix)))
        return ClusterExecutor(self, (os.getcwd(), self.address != _LOCAL, paths, replace(options, environment=added)))

    def close(self) -> None:
        ray.shutdown()


def connect(address: str, requests: Mapping[int, DeviceRequest]) -> Cluster:
    """Connect to the Ray cluster at ``address``, which copies the current folder to its nodes; ``local`` starts one
    here, with the devices that ``requests`` are for.

    Raises:
        UsageError: if that fails, or a node cannot import this version of optest.
    """
    if ray.is_initialized():
        raise UsageError("this process is connected to Ray already; call ray.shutdown() before --cluster")
    host, _, port = address.rpartition(":")
    if address not in ("auto", _LOCAL):
        try:
            # Ray itself would wait for minutes.
            socket.create_connection((host, int(port)), _REACH_S).close()
        except (OSError, ValueError) as error:
            kinds = "HOST:PORT of a cluster, auto or local"
            raise UsageError(f"--cluster is {address!r}, expected {kinds}: {error}") from None
    variable_by_default("RAY_USAGE_STATS_ENABLED", "0")
    cluster, more = Cluster(address, requests), dict[str, Any]()
    if address == _LOCAL:
        named = {resource_of(request.platform) for request in requests.values()} - {"", GPU}
        more["resources"] = dict.fromkeys(named, len(device_ids(None)))
        more |= {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
    else:
        more["runtime_env"] = {"working_dir": os.curdir, "excludes": _NOT_COPIED}
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
    """Raise UsageError if a node has another version of optest, or none."""

    def version() -> str:  # Ray sends its code: a node may have no optest to import it from
        try:
            import optest
        except ImportError as error:
            return f"none ({error})"
        return optest.__version__

    nodes, remote = cluster.nodes(), ray.remote(version).options
    strategies = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    versions = [remote(num_cpus=0, scheduling_strategy=strategy).remote() for strategy in strategies]
    for node, pending in zip(nodes, versions, strict=True):
        try:
            installed = ray.get(pending)
        except RayError:
            if node["NodeID"] not in {alive["NodeID"] for alive in cluster.nodes()}:
                continue  # it had died, and Ray reports that only now
            raise
        if installed != __version__:
            where = f"--cluster {cluster.address}: node {name_of(node)}"
            raise UsageError(
                f"{where} has optest {installed}, expected {__version__}; install the same version on every node"
            )


def _needs_of(request: DeviceRequest | None) -> dict[str, float]:
    """Return the Ray resources that an actor needs, all of them on one node."""
    resource = "" if request is None else resource_of(request.platform)
    return {"CPU": 1.0} | ({resource: float(request.count)} if request is not None and resource else {})


def _fitting_actors(resources: Mapping[str, float], needs: Mapping[str, float]) -> int:
    return min(int(resources.get(name, 0.0) // count) for name, count in needs.items())


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@dataclass(slots=True, eq=False)
class ClusterExecutor:
    """Runs executions in a Ray actor, which is reused while executions need the same devices.

    Executions that follow are sent ahead in batches. :meth:`close` may be called from another thread than
    :meth:`execute`, which then ends soon.
    """

    cluster: Cluster
    worker_args: tuple[object, ...]  # of NodeWorker, except the request
    _actor: Any = field(default=None, init=False)
    _placement: Placement | None = field(default=None, init=False)
    _request: DeviceRequest | None = field(default=None, init=False)  # the one that the actor was started for
    # Executions sent to the actor without a result so far, each with the results of its batch.
    _pending: deque[tuple[Sequence[TestCase], Iterator[Any]]] = field(default_factory=deque, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def looks_ahead(self) -> bool:
        """Return whether executions may be sent ahead: only with an actor; before that, others can run them."""
        return self._placement is not None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases and return their result; run them on another node if the worker is lost with its node.

        Raises:
            Unavailable, UsageError: if the worker cannot load the driver.
            Closed: if another thread closed this executor.
        """
        losses: list[str] = []
        while len(losses) <= _RETRIES:
            if losses and (lack := self.cluster.lack(self._request)):
                losses.append(f"no node is left that has {lack}")
                break
            try:
                placement = self._start_actor(cases)
                execution = self._next_result(cases, following)
            except RayTaskError as error:
                raise InternalError(f"a node of the cluster failed: {error}") from None
            except RayError as error:
                losses.append(self._handle_loss(error))
                continue
            return replace(_with_losses(losses, execution), devices=placement.devices)
        verdict = Verdict(status=Status.CRASHED, reason=Reason.DEVICE_LOST, message="; ".join(losses))
        return ExecutionResult(tuple(apply_xfail(case, verdict) for case in cases), Timings(), attempts=_RETRIES + 1)

    def close(self) -> None:
        """End the actor: orderly if it is idle, else at once."""
        self._is_closed = True
        self._end_actor()

    def _next_result(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]]) -> ExecutionResult:
        """Wait for the result of ``cases``; before that, send new executions if the actor has too few."""
        requests = self.cluster.requests
        wanted = [cases, *takewhile(lambda x: requests.get(id(x[0])) == self._request, following)]
        new = wanted[len(self._pending) :]
        if len(new) >= len(self._pending):
            messages = [Request(1, [case.key for case in x], list(map(case_to_wire, x))) for x in new]
            results = self._actor.run.options(num_returns="streaming").remote(messages)
            self._pending += [(x, results) for x in new]
        result: ExecutionResult | Broken = ray.get(next(self._pending[0][1]))
        self._pending.popleft()
        if isinstance(result, ExecutionResult):
            return result
        if result.number:
            return result_of_message(result, cases)
        raise refusal(result.kind, result.message)

    def _start_actor(self, cases: Sequence[TestCase]) -> Placement:
        """Return the placement of the actor for these cases; if necessary, start one once Ray has free resources."""
        request = self.cluster.requests.get(id(cases[0]))
        if request != self._request or (self._pending and self._pending[0][0] is not cases):
            self._end()
        if self._placement is not None:
            return self._placement
        self._request, needs, lost = request, _needs_of(request), self.cluster.lost
        needed = ", ".join(f"{count:g} {name}" for name, count in needs.items())
        options: dict[str, Any] = {"num_cpus": needs.pop("CPU"), "num_gpus": needs.pop(GPU, 0), "resources": needs}
        if lost:  # prefer other nodes
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(lost)})"}
            options["fallback_strategy"] = [{"label_selector": {}}]
        self._actor = ray.remote(NodeWorker).options(**options).remote(*self.worker_args, request)
        self._require_open()  # `close` in another thread may have seen no actor
        started = self._actor.start.remote()
        if not ray.wait([started], timeout=_NOTE_S)[0]:
            print_note(f"waiting for the cluster to have {needed} free", self.cluster.notes)
        placement: Placement | Broken = ray.get(started)
        if isinstance(placement, Broken):
            raise refusal(placement.kind, placement.message)
        self._placement = placement
        return placement

    def _require_open(self) -> None:
        if self._is_closed:
            self._end()
            raise Closed("an executor of the cluster was closed while a case was waiting for it")

    def _handle_loss(self, error: RayError) -> str:
        """End a lost actor and report it; return a note about it."""
        placement, self._placement = self._placement, None
        self._require_open()
        self._end()
        note = f"the worker on {placement.node if placement else 'a node'} was lost: {_first_line(error)}"
        if placement is not None:
            self.cluster.lost.add(placement.node_id)
            print_note(f"{note}; its unfinished cases run again", self.cluster.notes)
        return note

    def _end(self) -> None:
        self._end_actor()
        self._actor = self._placement = None
        self._pending.clear()

    def _end_actor(self) -> None:
        actor = self._actor
        if actor is not None and self._placement is not None and not self._pending:
            with suppress(RayError):
                ray.get(actor.close.remote(), timeout=_CLOSE_S)
        if actor is not None:
            ray.kill(actor)


def _with_losses(losses: Sequence[str], execution: ExecutionResult) -> ExecutionResult:
    """Return the result with a note about lost workers. A pass stays a pass: the node failed, not the case."""
    if not losses:
        return execution
    check = Check(name="worker", state=CheckState.NOTE, detail=f"run {1 + len(losses)} times: {'; '.join(losses)}")
    verdicts = tuple(replace(verdict, checks=(*verdict.checks, check)) for verdict in execution.verdicts)
    return replace(execution, verdicts=verdicts, attempts=1 + len(losses))

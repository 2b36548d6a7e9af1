"""One lane of a session whose worker is on a node of a Ray cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from optest.backends.abilities import DeviceRequest
from optest.cluster.connection import Cluster, first_words, needs_of
from optest.cluster.node import GPU, NodeWorker, Place, Travelling
from optest.core.executors import Closed
from optest.core.messages import Asked, Broken, Died, Ready, as_execution, decode_for_parent, encode, refusal
from optest.core.runner import ExecutionResult
from optest.core.verdicts import excused
from optest.core.wire import case_to_wire
from optest.errors import InternalError
from optest.spec import Check, CheckState, Reason, Status, TestCase, Timings, Verdict

__all__ = ["ClusterExecutor"]

_RUN_AGAIN = 2
"""How often what a lost worker had not answered is run again."""

_LOOK_S = 1.0
_SAY_S = 15.0
"""How long a lane waits for an actor before the user hears of it."""

_CLOSE_S = 5.0


class ClusterExecutor:
    """Runs executions in an actor of Ray, which is kept while the next ones need the same devices for one runtime.

    ``requests`` has what cases need of devices, by their identity. What is asked ahead goes to the actor in batches.
    :meth:`close` may be called from another thread than :meth:`execute`, which then ends soon.
    """

    def __init__(self, cluster: Cluster, travelling: Travelling, requests: Mapping[int, DeviceRequest]) -> None:
        self._cluster = cluster
        self._travelling = travelling
        self._requests = requests
        self._actor: Any = None
        self._place: Place | None = None
        self._kind: tuple[object, ...] = ()
        """The platform, runtime and count that the actor is for."""
        self._ahead: deque[tuple[Sequence[TestCase], Iterator[Any]]] = deque()
        """What the actor was asked and has not answered, with the answers of its batch."""
        self._lost_node = ""
        self._closed = False

    @property
    def looks_ahead(self) -> bool:
        """Not before it has an actor: while it waits for one, others run what it would take."""
        return self._place is not None

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases, and once more elsewhere where the worker is lost with its machine.

        Raises:
            Unavailable, UsageError: if a worker cannot load the driver at all.
            Closed: if another thread closed it.
        """
        losses: list[str] = []
        while len(losses) <= _RUN_AGAIN:
            if losses and not self._cluster.has(needs_of(self._request(cases))):
                break
            try:
                execution = self._execute(cases, following)
            except RayTaskError as error:
                raise InternalError(f"a node of the cluster failed: {error}") from None
            except RayError as error:
                self._require_open()
                losses.append(self._lose(error))
                continue
            return _after(losses, execution)
        left = "" if len(losses) > _RUN_AGAIN else "; no node that is left has what it needs"
        message = f"its worker was lost with its machine {len(losses)} times: {losses[-1]}{left}"
        verdict = Verdict(status=Status.CRASHED, reason=Reason.DEVICE_LOST, message=message)
        return ExecutionResult(tuple(excused(case, verdict) for case in cases), Timings(), attempts=len(losses))

    def close(self) -> None:
        """End the actor at once, and orderly if it has nothing to do."""
        self._closed = True
        self._end_actor()

    def _request(self, cases: Sequence[TestCase]) -> DeviceRequest | None:
        return self._requests.get(id(cases[0]))

    def _kind_of(self, cases: Sequence[TestCase]) -> tuple[object, ...]:
        request = self._request(cases)
        return (request.platform, request.runtime, request.count) if request is not None else ("",)

    def _execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]]) -> ExecutionResult:
        kind = self._kind_of(cases)
        if kind != self._kind or (self._ahead and self._ahead[0][0] is not cases):
            self._end()
        if self._place is None:
            self._kind, self._place = kind, self._start(self._request(cases))
        self._ask([cases, *takewhile(lambda each: self._kind_of(each) == kind, following)])
        message = decode_for_parent(ray.get(next(self._ahead[0][1])))
        self._ahead.popleft()
        if isinstance(message, Broken) and not message.number:
            raise refusal(message.kind, message.message)
        if isinstance(message, Ready | Died):
            raise InternalError("a node of the cluster sent no answer")
        return replace(as_execution(message, cases), devices=self._place.devices)

    def _ask(self, wanted: Sequence[Sequence[TestCase]]) -> None:
        """Send what the actor was not asked yet, unless enough is there."""
        new = wanted[len(self._ahead) :]
        if len(new) < len(self._ahead):
            return
        questions = [encode(Asked(1, [case.key for case in cases], list(map(case_to_wire, cases)))) for cases in new]
        answers = self._actor.run.options(num_returns="streaming").remote(questions)
        self._ahead += [(cases, answers) for cases in new]

    def _start(self, request: DeviceRequest | None) -> Place:
        """A new actor as soon as Ray has a place for it: on another node than the last one was lost on, if it can be."""
        needs = needs_of(request)
        options: dict[str, Any] = {
            "num_cpus": needs.pop("CPU"),
            "num_gpus": needs.pop(GPU, 0),
            "resources": dict(needs),
        }
        if self._lost_node and self._cluster.has(needs_of(request), but=self._lost_node):
            options["label_selector"] = {"ray.io/node-id": f"!{self._lost_node}"}
        self._actor = ray.remote(NodeWorker).options(**options).remote(self._travelling, request)
        started, waited_s = self._actor.start.remote(), 0.0
        while not ray.wait([started], timeout=_LOOK_S)[0]:
            self._require_open()
            waited_s += _LOOK_S
            if waited_s == _SAY_S:
                what = ", ".join(f"{count:g} {name}" for name, count in needs_of(request).items())
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

    def _lose(self, error: RayError) -> str:
        node = self._place.node if self._place is not None else "a node"
        self._lost_node = self._place.node_id if self._place is not None else ""
        note = f"the worker on {node} was lost ({first_words(error)})"
        self._cluster.tell(f"{note}; what it had not answered runs again")
        self._ahead.clear()  # nobody answers it
        self._end()
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

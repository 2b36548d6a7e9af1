"""What an actor does on its node: it is the parent of a worker there, as a lane is on a single machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import ray

from optest.backends.abilities import DeviceRequest
from optest.core.devices import Leases
from optest.core.extensions import load_extensions
from optest.core.messages import Asked, Broken, Ran, decode_for_worker, encode
from optest.core.worker import broken, cases_of
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import OptestError
from optest.settings import environment
from optest.settings.platforms import Platform, parse_devices, platform_called
from optest.settings.variables import leases_folder
from optest.spec import TestCase

__all__ = ["GPU", "NodeWorker", "Place", "Travelling", "resource_of"]

GPU = "GPU"


class Travelling(NamedTuple):
    """What goes to a node beside the cases.

    ``folder`` is the current folder of the run; paths below it lead to its copy there, or to itself on the same
    machine (``is_copied`` False). ``import_path`` is where the run's modules are found. The environment of ``options``
    is what the run adds to that of the node.
    """

    folder: str
    is_copied: bool
    import_path: tuple[str, ...]
    options: WorkerOptions


class Place(NamedTuple):
    """Where an actor is."""

    node: str
    node_id: str
    devices: tuple[int, ...]


def resource_of(platform: Platform) -> str:
    """The name of Ray's resource that devices of a platform are, "" for a simulation."""
    if not platform.is_device:
        return ""
    return GPU if platform.name == "cuda" else platform.name


class NodeWorker:
    """A worker on this node and its devices, which both live as long as the actor."""

    def __init__(self, travelling: Travelling, request: DeviceRequest | None) -> None:
        self._travelling = travelling
        self._request = request
        self._leases: Leases | None = None
        if not travelling.is_copied:
            os.chdir(travelling.folder)

    def start(self) -> Place | Broken:
        """Take the devices and start the worker; what keeps it from starting is an answer."""
        options = self._travelling.options
        found = [os.path.join(os.getcwd(), self._moved(path)) for path in self._travelling.import_path]
        sys.path.extend(path for path in [*found, os.getcwd()] if path not in sys.path)
        self._scratch = tempfile.TemporaryDirectory(prefix="optest-")
        try:
            load_extensions(options.plugins)
            devices, mask = self._devices()
            variables = {"PYTHONPATH": os.pathsep.join(found), **self._moved(options.environment), **mask}
            stated = {**self._moved(options.options), **({"device_ids": list(devices)} if devices else {})}
            scratch = Path(self._scratch.name)
            mine = replace(options, scratch=scratch, options=stated, environment={**environment(), **variables})
            self._worker = WorkerProcess(mine, "worker")
            self._worker.start()
        except OptestError as error:
            return broken(0, error)
        node = self._node()
        return Place(node["NodeManagerHostname"] or node["NodeManagerAddress"], node["NodeID"], devices)

    def run(self, questions: Sequence[bytes]) -> Iterator[bytes]:
        """Answer one question after the other; the worker goes on with the next ones meanwhile."""
        asked = [self._asked(each) for each in questions]
        batch = [self._built(each) for each in asked]
        for place, (question, cases) in enumerate(zip(asked, batch, strict=True)):
            if isinstance(cases, Broken):
                yield encode(cases)
                continue
            following = list(takewhile(lambda each: not isinstance(each, Broken), batch[place + 1 :]))
            try:
                ran = self._worker.execute(cases, following)  # type: ignore[arg-type]
            except OptestError as error:
                yield encode(broken(0, error))
                return
            yield encode(Ran(question.number, list(ran.verdicts), ran.timings, ran.benchmark, ran.is_tainted))

    def close(self) -> None:
        """End the worker and give the devices back, before anybody else gets them."""
        self._worker.close()
        if self._leases is not None:
            self._leases.release()
        self._scratch.cleanup()

    def _asked(self, message: bytes) -> Asked:
        asked = decode_for_worker(message)
        assert isinstance(asked, Asked)
        return asked

    def _built(self, asked: Asked) -> list[TestCase] | Broken:
        try:
            return cases_of(Asked(asked.number, asked.keys, self._moved(asked.cases)))
        except OptestError as error:
            return broken(asked.number, error)

    def _moved(self, value: Any) -> Any:
        """The same with the folder of the run where it is on this node."""
        folder = self._travelling.folder
        if not self._travelling.is_copied:
            return value
        if isinstance(value, str):
            is_below = value == folder or value.startswith(folder + os.sep)
            return os.getcwd() + value[len(folder) :] if is_below else value
        if isinstance(value, Mapping):
            return {name: self._moved(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([self._moved(each) for each in value])
        return value

    def _devices(self) -> tuple[tuple[int, ...], dict[str, str]]:
        """The ids of the devices that this actor has, and the variable that shows them to the worker.

        Ray numbers GPUs. What else is a resource it only counts: these are numbered on the node, as ``DEVICE_RANGE``
        of its ``ray start`` says, or from 0 on; a lease on each holds it against others there.
        """
        if self._request is None:
            return (), {}
        platform, count = platform_called(self._request.platform), self._request.count
        resource = resource_of(platform)
        named = ray.get_runtime_context().get_accelerator_ids().get(GPU, ()) if resource == GPU else ()
        if named and not all(each.isdecimal() for each in named):
            return tuple(range(count)), {}  # Ray has set the mask, to names such as GPU-8932f937
        ids = tuple(map(int, named))
        if resource and not ids:
            total = int(self._node()["Resources"][resource])
            ids = parse_devices(environment().get("DEVICE_RANGE", f"0-{total - 1}"), "DEVICE_RANGE of the node")
        if resource:
            self._leases = Leases(leases_folder(), [platform], "a run on a Ray cluster")
            ids = self._leases.acquire_some(ids, count)
        else:
            ids = tuple(range(count))
        return ids, ({platform.device_mask: ",".join(map(str, ids))} if platform.device_mask else {})

    def _node(self) -> Any:
        mine = ray.get_runtime_context().get_node_id()
        return next(node for node in ray.nodes() if node["NodeID"] == mine)

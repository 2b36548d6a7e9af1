"""What an actor does on its node: it is the parent of a worker there, as a lane is on a single machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import ray

from optest.backends.worker_abilities import DeviceRequest
from optest.core.devices import Leases
from optest.core.extensions import load_extensions
from optest.core.messages import Asked, Broken
from optest.core.runner import ExecutionResult
from optest.core.worker import broken, cases_of
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import OptestError
from optest.settings import environment
from optest.settings.platforms import parse_devices, platform_called
from optest.settings.variables import leases_folder
from optest.spec import TestCase

GPU = "GPU"


class Place(NamedTuple):
    """Where an actor is, and the ids of its devices."""

    node: str
    node_id: str
    devices: tuple[int, ...]


def resource_of(platform: str) -> str:
    """The name of Ray's resource that devices of a platform are, "" for a simulation."""
    return "" if not platform_called(platform).is_device else GPU if platform == "cuda" else platform


def name_of(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


@dataclass
class NodeWorker:
    """A worker on this node and its devices, which both live as long as the actor.

    ``folder`` is where the run is, of which the node has a copy (``is_copied``) or the thing itself; the environment of
    ``options`` is what the run adds to the node's own.
    """

    folder: str
    is_copied: bool
    import_path: Sequence[str]
    options: WorkerOptions
    request: DeviceRequest | None

    def start(self) -> Place | Broken:
        """Take the devices and start the worker; what keeps it from starting is an answer."""
        if not self.is_copied:
            os.chdir(self.folder)
        options, found = self.options, [os.path.abspath(self._moved(path)) for path in self.import_path]
        sys.path += [path for path in [*found, os.getcwd()] if path not in sys.path]
        self._scratch = tempfile.TemporaryDirectory(prefix="optest-")
        here = ray.get_runtime_context().get_node_id()
        node = next(each for each in ray.nodes() if each["NodeID"] == here)
        try:
            load_extensions(options.plugins)
            devices, mask = self._devices(node["Resources"])
            variables = {"PYTHONPATH": os.pathsep.join(found), **self._moved(options.environment), **mask}
            mine = replace(
                options,
                scratch=Path(self._scratch.name),
                options=self._moved(options.options) | ({"device_ids": list(devices)} if devices else {}),
                environment=environment() | variables,
            )
            self._worker = WorkerProcess(mine, "worker")
            self._worker.start()
        except OptestError as error:
            return broken(0, error)
        return Place(name_of(node), here, devices)

    def run(self, questions: Sequence[Asked]) -> Iterator[ExecutionResult | Broken]:
        """Answer one question after the other; the worker goes on with the next ones meanwhile."""
        batch = [self._cases(each) for each in questions]
        for place, cases in enumerate(batch, 1):
            if isinstance(cases, Broken):
                yield cases
                continue
            try:
                yield self._worker.execute(cases, [each for each in batch[place:] if not isinstance(each, Broken)])
            except OptestError as error:
                yield broken(0, error)
                return

    def close(self) -> None:
        """End the worker before anybody else gets the devices."""
        self._worker.close()
        self._scratch.cleanup()

    def _cases(self, asked: Asked) -> list[TestCase] | Broken:
        try:
            return cases_of(Asked(1, asked.keys, self._moved(asked.cases)))
        except OptestError as error:
            return broken(1, error)

    def _moved(self, value: Any) -> Any:
        """The same with the folder of the run where it is on this node."""
        if isinstance(value, str) and self.is_copied:
            is_below = value == self.folder or value.startswith(self.folder + os.sep)
            return os.getcwd() + value[len(self.folder) :] if is_below else value
        if isinstance(value, Mapping):
            return {name: self._moved(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._moved(each) for each in value)
        return value

    def _devices(self, resources: Mapping[str, float]) -> tuple[tuple[int, ...], dict[str, str]]:
        """The ids of the devices that this actor has, and the variable that shows them to the worker.

        Ray numbers GPUs. Other resources it only counts: the node numbers them, as ``DEVICE_RANGE`` of its ``ray
        start`` says, or from 0 on. A lease on each holds it against whoever else is on the node.
        """
        if self.request is None:
            return (), {}
        platform, count = platform_called(self.request.platform), self.request.count
        resource, ids = resource_of(platform.name), tuple(range(count))
        if resource == GPU:
            named = ray.get_runtime_context().get_accelerator_ids()[GPU]
            if not all(each.isdecimal() for each in named):
                return ids, {}  # names as GPU-8932f937, which Ray has put into the mask
            ids = tuple(map(int, named))
        elif resource:
            every = f"0-{int(resources[resource]) - 1}"
            ids = parse_devices(environment().get("DEVICE_RANGE", every), "DEVICE_RANGE of the node")
        self._leases = Leases(leases_folder(), [platform], "a run on a Ray cluster")  # until the actor ends
        ids = self._leases.acquire_some(ids, count)
        return ids, ({platform.device_mask: ",".join(map(str, ids))} if platform.device_mask else {})

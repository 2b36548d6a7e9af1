"""The Ray actor on a node, which is the parent of a worker process there."""

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
from optest.core.messages import Broken, Request
from optest.core.runner import ExecutionResult
from optest.core.worker import broken, cases_of
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import OptestError
from optest.settings import environment
from optest.settings.platforms import get_platform, parse_devices
from optest.settings.variables import leases_folder
from optest.spec import TestCase

GPU = "GPU"


class Placement(NamedTuple):
    """The node of an actor, and the ids of its devices."""

    node: str
    node_id: str
    devices: tuple[int, ...]


def resource_of(platform: str) -> str:
    """Return the Ray resource for the devices of a platform, "" for a simulation."""
    return "" if not get_platform(platform).is_device else GPU if platform == "cuda" else platform


def name_of(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


@dataclass
class NodeWorker:
    """A worker on this node and its devices, which both live as long as the actor.

    ``folder`` is the run's folder, which the node has as a copy (``is_copied``) or shares. The environment of
    ``options`` is added to the node's.
    """

    folder: str
    is_copied: bool
    import_path: Sequence[str]
    options: WorkerOptions
    request: DeviceRequest | None

    def start(self) -> Placement | Broken:
        """Lease the devices and start the worker; return its placement, or the error that prevents it."""
        if not self.is_copied:
            os.chdir(self.folder)
        options, import_path = self.options, [os.path.abspath(self._relocate(path)) for path in self.import_path]
        sys.path += [path for path in [*import_path, os.getcwd()] if path not in sys.path]
        self._scratch = tempfile.TemporaryDirectory(prefix="optest-")
        here = ray.get_runtime_context().get_node_id()
        node = next(node for node in ray.nodes() if node["NodeID"] == here)
        try:
            load_extensions(options.plugins)
            devices, mask = self._lease_devices(node["Resources"])
            path = os.pathsep.join(import_path)
            variables = {"PYTHONPATH": path, **self._relocate(options.environment), **mask}
            worker_options = replace(
                options,
                scratch=Path(self._scratch.name),
                options=self._relocate(options.options) | ({"device_ids": list(devices)} if devices else {}),
                environment=environment() | variables,
            )
            self._worker = WorkerProcess(worker_options, "worker")
            self._worker.start()
        except OptestError as error:
            return broken(0, error)
        return Placement(name_of(node), here, devices)

    def run(self, requests: Sequence[Request]) -> Iterator[ExecutionResult | Broken]:
        """Yield the result of each request; meanwhile the worker continues with the next ones."""
        batch = [self._read_cases(request) for request in requests]
        for next_index, cases in enumerate(batch, 1):
            if isinstance(cases, Broken):
                yield cases
                continue
            try:
                following = [x for x in batch[next_index:] if not isinstance(x, Broken)]
                yield self._worker.execute(cases, following)
            except OptestError as error:
                yield broken(0, error)
                return

    def close(self) -> None:
        """End the worker, before another process gets the devices, and remove its files."""
        self._worker.close()
        self._scratch.cleanup()

    def _read_cases(self, request: Request) -> list[TestCase] | Broken:
        try:
            return cases_of(Request(1, request.keys, self._relocate(request.cases)))
        except OptestError as error:
            return broken(1, error)

    def _relocate(self, value: Any) -> Any:
        """Return a value in which paths below the run's folder are below this node's copy of it."""
        if isinstance(value, str) and self.is_copied:
            is_below = value == self.folder or value.startswith(self.folder + os.sep)
            return os.getcwd() + value[len(self.folder) :] if is_below else value
        if isinstance(value, Mapping):
            return {name: self._relocate(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._relocate(item) for item in value)
        return value

    def _lease_devices(self, resources: Mapping[str, float]) -> tuple[tuple[int, ...], dict[str, str]]:
        """Lease the actor's devices against other processes; return their ids, and the variable that selects them.

        Ray numbers GPUs, but only counts other resources: their ids are those of ``DEVICE_RANGE`` in the environment of
        the node's ``ray start``, or begin with 0.
        """
        if self.request is None:
            return (), {}
        platform, count = get_platform(self.request.platform), self.request.count
        resource, ids = resource_of(platform.name), tuple(range(count))
        if resource == GPU:
            names = ray.get_runtime_context().get_accelerator_ids()[GPU]
            if not all(name.isdecimal() for name in names):
                return ids, {}  # names such as GPU-8932f937, which Ray has put into the mask
            ids = tuple(map(int, names))
        elif resource:
            every = f"0-{int(resources[resource]) - 1}"
            ids = parse_devices(environment().get("DEVICE_RANGE", every), "DEVICE_RANGE of the node")
        self._leases = Leases(leases_folder(), [platform], "a run on a Ray cluster")  # until the actor ends
        ids = self._leases.acquire_some(ids, count)
        return ids, ({platform.device_mask: ",".join(map(str, ids))} if platform.device_mask else {})

"""The Ray cluster of a run: connected, checked, and what it has."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from optest import __version__
from optest.backends.abilities import DeviceRequest
from optest.cluster.node import GPU, Travelling, resource_of
from optest.core.worker_process import WorkerOptions
from optest.errors import UsageError
from optest.settings import environment
from optest.settings.platforms import device_ids, platform_called
from optest.settings.variables import variable_by_default

__all__ = ["LOCAL", "Cluster", "connect", "first_words", "needs_of"]

LOCAL = "local"
_STORE_BYTES = 150 << 20
"""Of the object store of a cluster on this machine: cases and verdicts are small."""

_STAYS = (".git", ".optest", ".venv", "__pycache__")
_LARGE_BYTES = 100 << 20
"""Files that do not travel: data that is larger belongs on a file system that nodes share."""


def needs_of(request: DeviceRequest | None) -> dict[str, float]:
    """What an actor asks Ray for, all of it on one node."""
    needs = {"CPU": 1.0}
    if request is not None and (resource := resource_of(platform_called(request.platform))):
        needs[resource] = float(request.count)
    return needs


@dataclass(slots=True)
class Cluster:
    """A connection to Ray, which ends with :meth:`close`; ``notes`` is what the end of the run has to say of it."""

    address: str
    notes: list[str] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    """Large files of the current folder that did not travel."""

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that live and have processors for work."""
        return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def has(self, needs: Mapping[str, float], but: str = "") -> bool:
        """Whether a node has as much as that, busy or not; ``but`` is the id of one that does not count."""
        return any(_times(node, needs) for node in self.nodes() if node["NodeID"] != but)

    def lacking(self, request: DeviceRequest | None) -> list[str]:
        """What a case with such a request needs more of than any node has."""
        needs = needs_of(request)
        if self.has(needs):
            return []
        return [f"{count:g} {name} (a node has up to {self._most(name):g})" for name, count in needs.items()]

    def _most(self, resource: str) -> float:
        return max((float(node["Resources"].get(resource, 0.0)) for node in self.nodes()), default=0.0)

    def described(self) -> tuple[str, ...]:
        """What the report has to say at its begin."""
        nodes = len(self.nodes())
        note = f"on {nodes} node{'s' if nodes > 1 else ''} of a Ray cluster ({self.address})"
        return note, *(f"{name} did not travel to the cluster: it is larger than 100 MiB" for name in self.left_out)

    def slots(self, requests: Iterable[DeviceRequest | None]) -> int:
        """How many actors with such requests can be busy at a time."""
        nodes, narrowest = self.nodes(), dict[str, dict[str, float]]()
        for request in requests:
            needs = needs_of(request)
            name, count = max(needs.items(), key=lambda item: item[0] != "CPU")
            if name not in narrowest or count < narrowest[name][name]:
                narrowest[name] = needs
        fitting = sum(_times(node, needs) for needs in narrowest.values() for node in nodes)
        return max(1, min(fitting, sum(_times(node, {"CPU": 1.0}) for node in nodes)))

    def travelling(self, options: WorkerOptions) -> Travelling:
        """What the nodes need of this process: of the environment what the run adds, and optest's own variables."""
        stated, libraries = environment(), (sys.prefix, sys.base_prefix)
        added = {
            name: value
            for name, value in options.environment.items()
            if stated.get(name) != value or name.startswith("OPTEST_")
        }
        return Travelling(
            folder=os.getcwd(),
            is_copied=self.address != LOCAL,
            import_path=tuple(each for each in sys.path if each and not each.startswith(libraries)),
            options=replace(options, environment=added),
        )

    def tell(self, note: str) -> None:
        """Tell the user now, and in the report once more."""
        if note not in self.notes:
            self.notes.append(note)
            print(f"optest: {note}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        ray.shutdown()


def connect(address: str, requests: Iterable[DeviceRequest]) -> Cluster:
    """Connect to the cluster at ``address``; :data:`LOCAL` starts one here that has the devices of ``requests``. The
    current folder travels to the nodes.

    Raises:
        UsageError: if that cannot be done, or a node cannot import this version of optest.
    """
    if ray.is_initialized():
        raise UsageError("--cluster connects to Ray itself, and this process is connected: call ray.shutdown() before")
    variable_by_default("RAY_USAGE_STATS_ENABLED", "0")
    more: dict[str, Any] = {"address": address}
    large: tuple[str, ...] = ()
    if address == LOCAL:
        named = {resource_of(platform_called(each.platform)) for each in requests} - {"", GPU}
        more |= {"resources": dict.fromkeys(named, len(device_ids(None))), "object_store_memory": _STORE_BYTES}
        more["include_dashboard"] = False
    else:
        large = tuple(_large_files(os.curdir))
        excludes = [*_STAYS, *(f"/{each}" for each in large)]
        more["runtime_env"] = {"working_dir": os.curdir, "excludes": excludes}
    try:
        ray.init(**more, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise UsageError(f"--cluster {address}: {first_words(error)}") from None
    cluster = Cluster(address, left_out=large)
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
            return f"no optest ({error})"
        return optest.__version__

    ask, nodes = ray.remote(version), cluster.nodes()
    asked = [
        ask.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in nodes
    ]
    try:
        answers = ray.get(asked)
    except RayError as error:
        raise UsageError(f"--cluster {cluster.address}: a node does not start: {first_words(error)}") from None
    for node, answer in zip(nodes, answers, strict=True):
        if answer != __version__:
            raise UsageError(
                f"--cluster {cluster.address}: node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) has "
                f"{answer}, but this is optest {__version__}; install the same on every node"
            )


def _large_files(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in _STAYS]
        for path in (os.path.join(root, each) for each in files):
            if os.path.isfile(path) and os.path.getsize(path) > _LARGE_BYTES:
                yield os.path.relpath(path, folder)


def _times(node: Mapping[str, Any], needs: Mapping[str, float]) -> int:
    """How often a node has that much, if nothing ran there."""
    return min(int(node["Resources"].get(name, 0.0) // count) for name, count in needs.items())


def first_words(error: BaseException) -> str:
    """The first line of a message of Ray's that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

"""Scenes as nodes of pytest, and the fixtures of hand-written tests of scenes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from optest.api import bootstrap, collecting
from optest.api.run_request import run_request
from optest.pytest_plugin.files import named
from optest.pytest_plugin.nodes import CaseCollector, CaseItem
from optest.pytest_plugin.options import options_of_scenes, scene_option
from optest.settings.platforms import device_ids, platforms_of_a_run, scene_skip_reason, share_of_devices

_REQUEST = pytest.StashKey[Any]()


def nodes_of(module: pytest.Collector, scene: Any) -> list[pytest.Collector]:
    """Return a node of a scene for each platform, and for each case that is named on the command line."""
    # pytest looks for a node with the complete name of the argument.
    if scene._scene_file != module.path or not vars(scene).get("__test__", True):
        return []
    platforms = platforms_of_a_run(scene._scene_platforms, scene_option(module.config, "platform"))
    names = [f"{scene.__name__}[{x or '-'}]" for x in platforms]
    parts = [part for path, part in named(module.config) if path == module.path]
    names += [x for x in dict.fromkeys(parts) if x.startswith(tuple(f"{name}::" for name in names))]
    nodes: list[pytest.Collector] = [
        SceneNode.from_parent(module, name=name, siblings=names, nodeid=module.nodeid if "]::" in name else None)
        for name in names
    ]
    for node in nodes:
        node.own_markers.extend(getattr(scene, "pytestmark", ()))
    return nodes


class SceneNode(CaseCollector):
    """A scene on a platform, or one case of it; without the cases that have nodes among its ``siblings``."""

    def __init__(self, *, siblings: Sequence[str], **keywords: Any) -> None:
        super().__init__(**keywords)
        self._siblings = {*siblings} - {self.name}

    def collect(self) -> Iterator[pytest.Item]:
        assert self.parent is not None
        request = self.parent.stash.get(_REQUEST, None)
        if request is None:
            request = self._create_request(_scene_request, options_of_scenes(self.config))
            self.parent.stash[_REQUEST] = request
        for case in request.cases:
            if f"{case.id}::".startswith(f"{self.name}::") and case.id not in self._siblings:
                name = case.id if case.id == self.name else case.id.rpartition("::")[2]
                yield CaseItem.from_parent(self, name=name, request=request, case=case)


def _scene_request(path: Path, options: dict[str, Any]) -> Any:
    """Return all cases of the scenes of a file; the session selects among them."""
    return run_request({**options, "source": (f"scene:{path}",), "manual": "include"})


def unselected_scenes(items: Sequence[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the cases of scenes that ``--runtime --level --manual --case`` do not select.

    Raise ``UsageError`` or ``UnknownName`` for an unknown runtime or case.
    """
    cases = {id(item.case): item for item in items if isinstance(item, CaseItem) and isinstance(item.parent, SceneNode)}
    options = {name: scene_option(config, name) for name in ("runtime", "level", "manual", "case")}
    if not cases and not options["case"]:
        return []
    selected = set(map(id, collecting.selected_scenes([item.case for item in cases.values()], options)))
    return [item for key, item in cases.items() if key not in selected]


def parametrize_platforms(metafunc: pytest.Metafunc) -> None:
    """Parametrize ``st_platform`` of a test over ``--platform``, else over the simulations in ``_scene_platforms``."""
    declared = getattr(metafunc.cls, "_scene_platforms", None)
    if declared is not None and "st_platform" in metafunc.fixturenames:
        platforms = platforms_of_a_run(declared, scene_option(metafunc.config, "platform"))
        metafunc.parametrize("st_platform", platforms, indirect=True, ids=[x or "-" for x in platforms])


def why_not_here(declared: Sequence[str], config: pytest.Config) -> str | None:
    """Return why a test of a class with these ``_scene_platforms`` is skipped, None if it runs."""
    return scene_skip_reason(platforms_of_a_run(declared, scene_option(config, "platform"))[0], declared)


@pytest.fixture(scope="session")
def st_platform(request: pytest.FixtureRequest) -> str:
    """Return the platform of a test: the parameter from ``_scene_platforms``, else ``--platform``; skip without one."""
    platform: str | None = getattr(request, "param", None) or scene_option(request.config, "platform")
    if platform is None:
        pytest.skip("no platform: name one by --platform, or several in _scene_platforms of the class")
    return platform


@pytest.fixture(scope="session")
def st_device_ids(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """Return the ids of ``--device`` for this process, a part of them under ``pytest -n``."""
    worker = getattr(request.config, "workerinput", None)
    share = (0, 1) if worker is None else (int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]))
    return share_of_devices(device_ids(scene_option(request.config, "device")), *share)


@pytest.fixture(scope="session")
def st_worker(st_platform: str, st_device_ids: tuple[int, ...]) -> Iterator[collecting.SceneWorkers]:
    """Yield the runtimes of the platform, opened once in a session: ``st_worker.run(CALLABLE, args, block_dim=3)``."""
    bootstrap()
    workers = collecting.SceneWorkers(st_platform, st_device_ids)
    yield workers
    workers.close()

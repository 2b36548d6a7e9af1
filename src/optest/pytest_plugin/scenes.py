"""Scenes as nodes of pytest, and the fixtures of tests beside them that are written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from optest.api import bootstrap, collecting
from optest.pytest_plugin.files import named
from optest.pytest_plugin.nodes import CaseCollector, CaseItem
from optest.pytest_plugin.options import options_of_scenes, stated
from optest.settings.platforms import device_ids, platforms_of_a_run, share_of_devices, why_not_on

_REQUEST = pytest.StashKey[Any]()


def nodes_of(module: pytest.Collector, scene: Any) -> list[pytest.Collector]:
    """A node of a scene for each platform, and of each case that is named: pytest looks for one with the whole name."""
    if scene._scene_file != module.path or not vars(scene).get("__test__", True):
        return []
    platforms = platforms_of_a_run(scene._scene_platforms, stated(module.config, "platform"))
    names = [f"{scene.__name__}[{each or '-'}]" for each in platforms]
    parts = [part for path, part in named(module.config) if path == module.path]
    names += [each for each in dict.fromkeys(parts) if each.startswith(tuple(f"{name}::" for name in names))]
    nodes: list[pytest.Collector] = [
        SceneNode.from_parent(module, name=each, beside=names, nodeid=module.nodeid if "]::" in each else None)
        for each in names
    ]
    for node in nodes:
        node.own_markers.extend(getattr(scene, "pytestmark", ()))
    return nodes


class SceneNode(CaseCollector):
    """A scene on a platform, or one case of it; a case that has a node of its own (``beside``) is not here."""

    def __init__(self, *, beside: Sequence[str], **given: Any) -> None:
        super().__init__(**given)
        self._others = {*beside} - {self.name}

    def collect(self) -> Iterator[pytest.Item]:
        assert self.parent is not None
        request = self.parent.stash.get(_REQUEST, None)
        if request is None:
            request = self._requested(collecting.scene_request, options_of_scenes(self.config))
            self.parent.stash[_REQUEST] = request
        for case in request.cases:
            if f"{case.id}::".startswith(f"{self.name}::") and case.id not in self._others:
                name = case.id if case.id == self.name else case.id.rpartition("::")[2]
                yield CaseItem.from_parent(self, name=name, request=request, case=case)


def beside_the_chosen(items: Sequence[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """The cases of scenes that ``--runtime --level --manual --case`` leave out.

    Raises:
        UsageError, UnknownName: for a runtime or a case that there is not.
    """
    cases = {id(item.case): item for item in items if isinstance(item, CaseItem) and isinstance(item.parent, SceneNode)}
    choice = {name: stated(config, name) for name in ("runtime", "level", "manual", "case")}
    if not cases and not choice["case"]:
        return []
    left = collecting.scenes_left([item.case for item in cases.values()], choice)
    gone = cases.keys() - set(map(id, left))
    return [item for key, item in cases.items() if key in gone]


def on_its_platforms(metafunc: pytest.Metafunc) -> None:
    """``st_platform`` of a test in a class with ``_scene_platforms``: that of ``--platform``, else every simulation."""
    declared = getattr(metafunc.cls, "_scene_platforms", None)
    if declared is not None and "st_platform" in metafunc.fixturenames:
        platforms = platforms_of_a_run(declared, stated(metafunc.config, "platform"))
        metafunc.parametrize("st_platform", platforms, indirect=True, ids=[each or "-" for each in platforms])


def why_not_here(declared: Sequence[str], config: pytest.Config) -> str | None:
    """Why a test in a class with ``_scene_platforms`` is skipped."""
    return why_not_on(platforms_of_a_run(declared, stated(config, "platform"))[0], declared)


@pytest.fixture(scope="session")
def st_platform(request: pytest.FixtureRequest) -> str:
    """The platform of a test; a class names those of its tests in ``_scene_platforms``."""
    platform: str | None = getattr(request, "param", None) or stated(request.config, "platform")
    if platform is None:
        pytest.skip("no platform: name one by --platform, or several in _scene_platforms of the class")
    return platform


@pytest.fixture(scope="session")
def st_device_ids(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """The ids of ``--device`` that this process may use: under ``pytest -n`` a part of them.

    Raises:
        UsageError: for a list that cannot be read.
    """
    worker = getattr(request.config, "workerinput", None)
    share = (0, 1) if worker is None else (int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]))
    return share_of_devices(device_ids(stated(request.config, "device")), *share)


@pytest.fixture(scope="session")
def st_worker(st_platform: str, st_device_ids: tuple[int, ...]) -> Iterator[collecting.SceneWorkers]:
    """The runtimes of the platform, each opened once in a session: ``st_worker.run(CALLABLE, args, block_dim=3)``."""
    bootstrap()
    workers = collecting.SceneWorkers(st_platform, st_device_ids)
    yield workers
    workers.close()

"""Scenes as cases: ``optest run --source scene:FILE_OR_FOLDER``.

Every case of a class, on every platform, is one; its name is ``TestFoo[cpusim]::default``.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from optest.errors import OptestError, UnknownName, UsageError
from optest.guests import Values
from optest.plan.select import selects
from optest.plan.sources import Collected, SourceRequest
from optest.registry import load_file
from optest.scenes.declaration import SceneCase, SceneTestCase
from optest.scenes.runtimes import RUNTIMES, absolute_sources, lack_of_runtime
from optest.settings.platforms import PLATFORMS, platform_called
from optest.spec import Attribute, OperatorDescriptor, TestCase

__all__ = ["CATEGORY", "PREFIX", "case_of", "collect", "descriptor_of", "entries_of", "scene_of", "scenes_in"]

PREFIX = "scene."
CATEGORY = "scene"


def collect(request: SourceRequest) -> Collected:
    """The scenes of files, and of all ``test_*.py`` below folders.

    Raises:
        UsageError, UnknownName: for a file that is not there or cannot be imported, and for selectors of what there
            is not.
    """
    scenes = [scene for name in request.names for file in _files(Path(name)) for scene in scenes_in(file)]
    if not scenes:
        raise UsageError(f"no scene is declared in {', '.join(request.names)}: a class under @scene_test(…)")
    assert request.options is not None
    entries = list(entries_of(scenes, request.options))
    files = dict.fromkeys(str(scene._scene_file) for scene in scenes)
    notes = () if entries else ("no scene is left by --runtime, --level, --manual and --case",)
    return Collected(
        backend="scene",
        origin=f"scenes of {', '.join(request.names)}" if len(files) > 1 else next(iter(files)),
        entries=entries,
        notes=notes,
    )


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(each for each in path.rglob("test_*.py") if b"scene_test" in each.read_bytes())
    elif path.is_file():
        yield path
    else:
        raise UsageError(f"{path} is not there")


def scenes_in(file: Path) -> list[type[SceneTestCase]]:
    """The scenes that a file itself declares, in the order of its lines.

    Raises:
        UsageError: if the file cannot be imported.
    """
    found = _scenes_in(file.absolute())
    return list(found)


@lru_cache(maxsize=4096)
def _scenes_in(file: Path) -> tuple[type[SceneTestCase], ...]:
    try:
        module = load_file(file)
    except OptestError:
        raise
    except Exception as error:
        raise UsageError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    return tuple(
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, SceneTestCase) and _is_declared_in(each, file)
    )


def _is_declared_in(scene: type[SceneTestCase], file: Path) -> bool:
    return "_scene_file" in vars(scene) and scene._scene_file == file and vars(scene).get("__test__", True)


def entries_of(scenes: Iterable[type[SceneTestCase]], options: Values) -> Iterator[dict[str, Any]]:
    """The cases of scenes as a plan has them, by the options of the command line.

    Raises:
        UnknownName: for a platform or runtime that nobody knows.
        UsageError: for a ``--case`` that matches manual cases alone.
    """
    scenes = list(scenes)
    platform, runtime, level = options["platform"], options["runtime"], options["level"]
    if platform is not None:
        platform_called(platform)
    known = {scene._scene_runtime for scene in scenes}
    if runtime is not None and runtime not in known | {*RUNTIMES.names()}:
        raise UnknownName("runtime", runtime, sorted(known | {*RUNTIMES.names()}))
    manual, selectors = options["manual"], options["case"]
    chosen, left_out = list[dict[str, Any]](), list[str]()
    for scene in scenes:
        if runtime not in (None, scene._scene_runtime) or str(level or scene._scene_level) != str(scene._scene_level):
            continue
        for case in scene._scene_cases:
            for on in _platforms(case, platform):
                is_manual = case.is_manual_on(on)
                if is_manual and manual == "exclude":
                    left_out.append(_name(scene, case, on))
                elif is_manual or manual != "only":
                    chosen.append(_entry(scene, case, on, options))
    for selector in selectors:
        if not any(selects(selector, each["name"]) for each in chosen) and any(
            selects(selector, each) for each in left_out
        ):
            raise UsageError(f"--case {selector!r} matches manual cases alone; add --manual include")
    return iter(chosen)


def _platforms(case: SceneCase, platform: str | None) -> Sequence[str]:
    """Where a case is asked: on the platform that is named, else on every simulation that it has; "" on none."""
    return [platform] if platform is not None else [each for each in case.platforms if each.endswith("sim")] or [""]


def _name(scene: type[SceneTestCase], case: SceneCase, platform: str) -> str:
    return f"{scene.__name__}[{platform or '-'}]::{case.name}"


def _entry(scene: type[SceneTestCase], case: SceneCase, platform: str, options: Values) -> dict[str, Any]:
    is_compared = not (case.skip_golden or options["skip_golden"])
    entry: dict[str, Any] = {
        "op": f"{PREFIX}{scene.__name__}",
        "name": _name(scene, case, platform),
        "attributes": {
            "file": _relative(scene._scene_file),
            "case": case.name,
            "platform": platform,
            "golden": is_compared,
            "sources": _digest(scene),
        },
        "generator": "optest.scenes.driver:SceneArguments",
        "tags": list(dict.fromkeys(["scene", f"level{scene._scene_level}", *(["manual"] if case.manual else [])])),
    }
    if case.timeout is not None:
        entry["timeout"] = case.timeout
    if scene.RTOL is not None or scene.ATOL is not None:
        entry["tolerance"] = {"rtol": scene.RTOL or 0.0, "atol": scene.ATOL or 0.0}
    if why := _why_skipped(scene, case, platform):
        entry["skip"] = why
    return entry


def _why_skipped(scene: type[SceneTestCase], case: SceneCase, platform: str) -> str | None:
    if not platform:
        return f"no simulation among its platforms ({', '.join(case.platforms)}); name one by --platform"
    if platform not in case.platforms:
        return f"not for {platform}, but for {', '.join(case.platforms)}"
    for each in case.platforms:
        if each not in PLATFORMS:
            raise UsageError(f"{scene.__name__}: {UnknownName('platform', each, PLATFORMS)}")
    return lack_of_runtime(scene._scene_runtime, platform)


def _relative(file: Path) -> str:
    here = Path.cwd()
    return (file.relative_to(here) if file.is_relative_to(here) else file).as_posix()


def _digest(scene: type[SceneTestCase]) -> str:
    """Over the file and every source that the class names: what a resumed run must find unchanged."""
    digest = hashlib.blake2b(scene._scene_file.read_bytes(), digest_size=8)
    for source in _sources(absolute_sources(scene.CALLABLE, scene._scene_file.parent)):
        path = Path(source)
        digest.update(path.read_bytes() if path.is_file() else b"-")
    return digest.hexdigest()


def _sources(callable: Any) -> Iterator[str]:  # noqa: A002 - the seed's name
    if isinstance(callable, Mapping):
        for key, value in callable.items():
            if key == "source" and isinstance(value, str):
                yield value
            else:
                yield from _sources(value)
    elif isinstance(callable, list):
        for each in callable:
            yield from _sources(each)


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """The descriptor of a scene, whose tensors are known when it runs."""
    return OperatorDescriptor(
        name=name,
        category=CATEGORY,
        signature=" -> *out",
        attributes=(
            *(Attribute(name=each, type="str") for each in ("file", "case", "platform", "sources")),
            Attribute(name="golden", type="bool", default=True),
        ),
    )


def scene_of(case: TestCase) -> SceneTestCase:
    """A new instance of the class that a case is of.

    Raises:
        UsageError: if the file no longer declares it.
    """
    file, name = Path(case.attributes["file"]).absolute(), case.descriptor.name.removeprefix(PREFIX)
    for scene in scenes_in(file):
        if scene.__name__ == name:
            return scene()
    raise UsageError(f"{file} declares no scene {name}")


def case_of(case: TestCase) -> SceneCase:
    """The entry of ``CASES``.

    Raises:
        UsageError: if the class no longer has it.
    """
    scene, name = scene_of(case), case.attributes["case"]
    for each in scene._scene_cases:
        if each.name == name:
            return each
    raise UsageError(f"{type(scene).__name__} has no case {name!r}")

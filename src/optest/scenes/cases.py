"""Scenes as cases: ``optest run --source scene:FILE_OR_FOLDER``.

Every case of a class, on every platform, is one; its name is ``TestFoo[cpusim]::default``.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from operator import and_
from pathlib import Path
from types import ModuleType
from typing import Any

from optest.errors import OptestError, PlanError, Problem, UnknownName, UsageError
from optest.guests import Values
from optest.plan.select import matching_ids
from optest.plan.sources import Collected, SourceRequest, names_in
from optest.process import exits_refused
from optest.registry import load_file, loaded_from
from optest.scenes import compat  # noqa: F401 - files may import what stands in for simpler
from optest.scenes.declaration import SceneCase, SceneTestCase
from optest.scenes.runtimes import RUNTIMES, absolute_sources, lack_of_runtime
from optest.settings.platforms import PLATFORMS, platform_called, platforms_of_a_run, why_not_on
from optest.spec import Attribute, OperatorDescriptor, TestCase

PREFIX = "scene."
_NOT_LEFT = "only cases that --runtime, --level or --manual leave out"


def collect(request: SourceRequest) -> Collected:
    """Collect the scenes of files, and of all ``test_*.py`` below folders; a wrong file is a problem next to others.

    Raises:
        UsageError, UnknownName: for a path that does not exist, a single file that is wrong, and unknown selectors.
    """
    files = dict.fromkeys(file.absolute() for name in request.names for file in _files(Path(name)))
    scenes, problems, by_hand = list[type[SceneTestCase]](), list[Problem](), list[str]()
    for file in files:
        try:
            declared, others = tests_in(file)
            scenes += declared
            by_hand += [f"{', '.join(others)} ({file.name})"] if others else []
        except UsageError as error:  # noqa: PERF203 - every file is read
            problems.append(Problem(message=str(error).removeprefix(f"{file}: "), file=str(file)))
    if problems and not scenes:
        raise PlanError(problems)
    if not scenes:
        more = f"; pytest runs {', '.join(by_hand)}" if by_hand else ""
        raise UsageError(f"no scene is declared in {', '.join(request.names)}: a class under @scene_test(…){more}")
    options = request.options
    assert options is not None
    if options["platform"] is not None:
        platform_called(options["platform"])
    every = [
        (scene, case, platform)
        for scene in scenes
        for case in scene._scene_cases
        for platform in platforms_of_a_run(case.platforms, options["platform"])
    ]
    entries = [_entry(*each, options) for each in compress(every, left_by_options(every, options))]
    names = Counter(entry["name"] for entry in entries)
    above = os.path.commonpath([file.parent for file in files])
    for entry in entries:
        if names[entry["name"]] > 1:  # two files have a class of this name
            file = entry["attributes"]["file"]
            entry["name"] = f"{os.path.relpath(file, above) if os.path.isabs(file) else file}::{entry['name']}"
    notes = [] if entries else ["no scene is left by --runtime, --level, --manual and --case"]
    unchecked = [each["name"] for each in entries if not each["attributes"]["golden"]]
    if unchecked and not options["skip_golden"]:
        notes.append(f"not compared, as SKIP_GOLDEN says in the file, and no pass: {', '.join(unchecked)}")
    return Collected(
        backend="scene",
        origin=", ".join(request.names),
        entries=entries,
        notes=tuple(notes),
        notes_of_runs=(f"not run here, but by pytest: {', '.join(by_hand)}",) if by_hand else (),
        origins={entry["name"]: entry["attributes"]["file"] for entry in entries},
        problems=tuple(problems),
    )


def find_modules_beside(sources: Sequence[str]) -> None:
    """Let plug-ins be modules beside the scenes of ``sources``, after all others, as under pytest; import nothing.

    Raises:
        UsageError: for a path that does not exist.
    """
    paths = [Path(name) for text in sources if text.startswith("scene:") for name in names_in(text[len("scene:") :])]
    folders = dict.fromkeys(str(file.absolute().parent) for path in paths for file in _files(path))
    sys.path += [each for each in folders if each not in sys.path]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(each for each in path.rglob("test_*.py") if b"scene_test" in each.read_bytes())
    elif path.is_file():
        yield path
    else:
        raise UsageError(f"{path} is not there")


@lru_cache(maxsize=4096)
def tests_in(file: Path) -> tuple[list[type[SceneTestCase]], list[str]]:
    """Return the scenes that a file, by its absolute path, itself declares, and the names of its tests by hand.

    Both are in the order of the file's lines. Tests by hand are those that only pytest runs.

    Raises:
        UsageError: if the file cannot be imported.
    """
    try:
        with exits_refused():
            module = loaded_from(file) or _imported(file)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    except (OptestError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{file}: it cannot be imported: {type(error).__name__}: {error}") from error
    scenes = [each for each in vars(module).values() if is_scene(each) and vars(each).get("__test__", True)]
    for scene in scenes:
        if scene._scene_file != file and not scene._scene_file.stem.startswith("test_"):
            where = f"{scene.__name__} of {file} is declared in {scene._scene_file}"
            raise UsageError(f"{where}; declare it in {file.name}, or it would run in no file")
    by_hand = [
        name
        for name, each in vars(module).items()
        if name.lower().startswith("test") and getattr(each, "__module__", None) == module.__name__
        if getattr(each, "__test__", True) and not is_scene(each)
        if inspect.isfunction(each) or any(part.startswith("test") for part in dir(each))
    ]
    return [each for each in scenes if each._scene_file == file], by_hand


def _imported(file: Path) -> ModuleType:
    """A new module; files beside it can be imported as long as this process lives, as under pytest."""
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        return load_file(file)
    finally:
        sys.path.remove(folder)  # the first, which goes before those of other scenes' files
        for name in set(sys.modules) - before:  # a file of another folder has neighbours of its own
            top = Path(folder, name.partition(".")[0])
            # packages of an environment that lies in the folder stay: torch cannot be imported twice
            is_beside = top.is_dir() or top.with_suffix(".py").is_file()
            file_name = getattr(sys.modules[name], "__file__", None) or ""
            if is_beside and file_name.startswith(folder) and name != file.stem:
                del sys.modules[name]


def is_scene(thing: object) -> bool:
    """Whether something is a class under ``@scene_test(…)`` itself."""
    return inspect.isclass(thing) and issubclass(thing, SceneTestCase) and "_scene_file" in vars(thing)


def left_by_options(cases: Sequence[tuple[type[SceneTestCase], SceneCase, str]], options: Values) -> list[bool]:
    """Which of some cases on platforms ``--runtime``, ``--level`` and ``--manual`` leave.

    Raises:
        UnknownName: for a runtime that nobody knows.
        UsageError: for a ``--case`` that matches none of those that are left, but others.
    """
    runtime, level, manual = options["runtime"], options["level"], options["manual"]
    known = {scene._scene_runtime for scene, _, _ in cases} | {*RUNTIMES.names()}
    if runtime is not None and runtime not in known:
        raise UnknownName("runtime", runtime, sorted(known))
    fits = [
        runtime in (None, scene._scene_runtime) and str(level or scene._scene_level) == str(scene._scene_level)
        for scene, _, _ in cases
    ]
    wanted = {"include": (True, False), "only": (True,), "exclude": (False,)}[manual]
    left = [fit and case.is_manual_on(platform) in wanted for fit, (_, case, platform) in zip(fits, cases, strict=True)]
    for selector in options["case"]:
        names = [_name(*each) for each in cases]
        selected = matching_ids(selector, names)
        matches = [name in selected for name in names]
        if any(matches) and not any(map(and_, matches, left)):
            only_manual = any(map(and_, matches, fits)) and manual == "exclude"
            why = "manual cases alone; add --manual include" if only_manual else _NOT_LEFT
            raise UsageError(f"--case {selector!r} matches {why}")
    return left


def _name(scene: type[SceneTestCase], case: SceneCase, platform: str) -> str:
    """The id; before it stands the file where a run has two of them."""
    return f"{scene.__name__}[{platform or '-'}]::{case.name}"


def _entry(scene: type[SceneTestCase], case: SceneCase, platform: str, options: Values) -> dict[str, Any]:
    here, file = Path.cwd(), scene._scene_file
    entry: dict[str, Any] = {
        "op": f"{PREFIX}{scene.__name__}",
        "name": _name(scene, case, platform),
        "attributes": {
            "file": (file.relative_to(here) if file.is_relative_to(here) else file).as_posix(),
            "case": case.name,
            "platform": platform,
            "golden": not (case.skip_golden or options["skip_golden"]),
            "sources": digest_of(scene),
        },
        "generator": "optest.scenes.driver:SceneArguments",
        "tags": list(dict.fromkeys(["scene", f"level{scene._scene_level}", *(["manual"] if case.manual else [])])),
    }
    if case.timeout is not None:
        entry["timeout"] = case.timeout
    if scene.RTOL is not None or scene.ATOL is not None:
        entry["tolerance"] = {"rtol": scene.RTOL or 0.0, "atol": scene.ATOL or 0.0}
    why = why_not_on(platform, case.platforms)
    if not why and (unknown := [each for each in case.platforms if each not in PLATFORMS]):
        raise UsageError(f"{scene.__name__}: {UnknownName('platform', unknown[0], PLATFORMS)}")
    if why := why or lack_of_runtime(scene._scene_runtime, platform):
        entry["skip"] = why
    return entry


def digest_of(scene: type[SceneTestCase]) -> str:
    """Over the file and every source that the class names: what a resumed run must find unchanged."""
    digest, folder = hashlib.blake2b(digest_size=8), scene._scene_file.parent
    files = [scene._scene_file, *([folder / scene.GOLDEN] if scene.GOLDEN else [])]
    absolute_sources(scene.CALLABLE, folder, files)
    for path in files:
        digest.update(path.read_bytes() if path.is_file() else b"-")
    return digest.hexdigest()


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """The descriptor of a scene, whose tensors are known when it runs."""
    texts = [Attribute(name=each, type="str") for each in ("file", "case", "platform", "sources")]
    attributes = (*texts, Attribute(name="golden", type="bool", default=True))
    return OperatorDescriptor(name=name, category="scene", signature=" -> *out", attributes=attributes)


def scene_of(case: TestCase) -> SceneTestCase:
    """A new instance of the class that a case is of.

    Raises:
        UsageError: if the file no longer declares it.
    """
    file, name = Path(case.attributes["file"]).absolute(), case.descriptor.name.removeprefix(PREFIX)
    for scene in tests_in(file)[0]:
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

"""Scenes as cases of ``optest run --source scene:FILE_OR_FOLDER``, such as ``TestFoo[cpusim]::default``."""

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
from optest.plan.sources import Collected, SourceRequest, split_names
from optest.process import exits_refused
from optest.registry import load_file, loaded_from
from optest.scenes import compat  # noqa: F401 - files may import the replacement of simpler
from optest.scenes.declaration import SceneCase, SceneTestCase
from optest.scenes.runtimes import RUNTIMES, absolute_sources, lack_of_runtime
from optest.settings.platforms import PLATFORMS, get_platform, platforms_of_a_run, scene_skip_reason
from optest.spec import Attribute, OperatorDescriptor, TestCase

PREFIX = "scene."
_NOT_SELECTED = "only cases that --runtime, --level or --manual exclude"


def collect(request: SourceRequest) -> Collected:
    """Collect the cases of scenes in files and in all ``test_*.py`` below folders, on every platform.

    A file with an error becomes a problem, unless no file has a scene.

    Raises:
        UsageError, UnknownName, PlanError: for a missing path, files without a scene, and unknown selectors.
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
        get_platform(options["platform"])
    every = [
        (scene, case, platform)
        for scene in scenes
        for case in scene._scene_cases
        for platform in platforms_of_a_run(case.platforms, options["platform"])
    ]
    entries = [_plan_entry(*x, options) for x in compress(every, selected_by_options(every, options))]
    names = Counter(entry["name"] for entry in entries)
    common = os.path.commonpath([file.parent for file in files])
    for entry in entries:
        if names[entry["name"]] > 1:  # two files have a class of this name
            file = entry["attributes"]["file"]
            entry["name"] = f"{os.path.relpath(file, common) if os.path.isabs(file) else file}::{entry['name']}"
    notes = [] if entries else ["no scene is selected by --runtime, --level, --manual and --case"]
    unchecked = [entry["name"] for entry in entries if not entry["attributes"]["golden"]]
    if unchecked and not options["skip_golden"]:
        notes.append(f"not compared, since the file sets SKIP_GOLDEN, and not passed: {', '.join(unchecked)}")
    return Collected(
        backend="scene",
        origin=", ".join(request.names),
        entries=entries,
        notes=tuple(notes),
        notes_of_runs=(f"only pytest runs {', '.join(by_hand)}",) if by_hand else (),
        origins={entry["name"]: entry["attributes"]["file"] for entry in entries},
        problems=tuple(problems),
    )


def find_modules_beside(sources: Sequence[str]) -> None:
    """Append the folders of ``scene:`` sources to ``sys.path``, for plug-ins in them; raise UsageError without one."""
    paths = [Path(name) for text in sources if text.startswith("scene:") for name in split_names(text[len("scene:") :])]
    folders = dict.fromkeys(str(file.absolute().parent) for path in paths for file in _files(path))
    sys.path += [folder for folder in folders if folder not in sys.path]


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or the ``test_*.py`` of a folder that contain "scene_test"; raise UsageError if it is missing."""
    if path.is_dir():
        yield from sorted(file for file in path.rglob("test_*.py") if b"scene_test" in file.read_bytes())
    elif path.is_file():
        yield path
    else:
        raise UsageError(f"{path} does not exist")


@lru_cache(maxsize=4096)
def tests_in(file: Path) -> tuple[list[type[SceneTestCase]], list[str]]:
    """Return the scenes that a file, by its absolute path, declares itself, and the names of its other tests.

    Both are in the order of the file's lines. Only pytest runs the other tests.

    Raises:
        UsageError: if the file cannot be imported.
    """
    try:
        with exits_refused():
            module = loaded_from(file) or _import_file(file)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    except (OptestError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{file}: it cannot be imported: {type(error).__name__}: {error}") from error
    scenes = [x for x in vars(module).values() if is_scene(x) and vars(x).get("__test__", True)]
    for scene in scenes:
        if scene._scene_file != file and not scene._scene_file.stem.startswith("test_"):
            where = f"{scene.__name__} of {file} is declared in {scene._scene_file}"
            raise UsageError(f"{where}; declare it in {file.name}, or no file runs it")
    by_hand = [
        name
        for name, x in vars(module).items()
        if name.lower().startswith("test") and getattr(x, "__module__", None) == module.__name__
        if getattr(x, "__test__", True) and not is_scene(x)
        if inspect.isfunction(x) or any(part.startswith("test") for part in dir(x))
    ]
    return [scene for scene in scenes if scene._scene_file == file], by_hand


def _import_file(file: Path) -> ModuleType:
    """Import a file as a new module; keep its folder importable, but forget the modules imported from it."""
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        return load_file(file)
    finally:
        sys.path.remove(folder)  # only the first entry, which precedes the folders of other files
        # A file of another folder may import other modules of the same names. Packages of an environment in the folder
        # stay: torch cannot be imported twice.
        for name in set(sys.modules) - before:
            top = Path(folder, name.partition(".")[0])
            is_beside = top.is_dir() or top.with_suffix(".py").is_file()
            file_name = getattr(sys.modules[name], "__file__", None) or ""
            if is_beside and file_name.startswith(folder) and name != file.stem:
                del sys.modules[name]


def is_scene(thing: object) -> bool:
    """Return whether an object is a class that ``@scene_test(…)`` itself decorates."""
    return inspect.isclass(thing) and issubclass(thing, SceneTestCase) and "_scene_file" in vars(thing)


def selected_by_options(cases: Sequence[tuple[type[SceneTestCase], SceneCase, str]], options: Values) -> list[bool]:
    """Return for each case on a platform whether ``--runtime``, ``--level`` and ``--manual`` select it.

    Raises:
        UnknownName: for an unknown runtime.
        UsageError: for a ``--case`` that matches only cases that are not selected.
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
    names = [_case_name(*x) for x in cases]
    for selector in options["case"]:
        selected = matching_ids(selector, names)
        matches = [name in selected for name in names]
        if any(matches) and not any(map(and_, matches, left)):
            only_manual = any(map(and_, matches, fits)) and manual == "exclude"
            reason = "only manual cases; add --manual include" if only_manual else _NOT_SELECTED
            raise UsageError(f"--case {selector!r} matches {reason}")
    return left


# `collect` puts the file before the name if two files have the same one.
def _case_name(scene: type[SceneTestCase], case: SceneCase, platform: str) -> str:
    return f"{scene.__name__}[{platform or '-'}]::{case.name}"


def _plan_entry(scene: type[SceneTestCase], case: SceneCase, platform: str, options: Values) -> dict[str, Any]:
    """Return the plan entry of a case on a platform; it is skipped if the platform or runtime is not available."""
    here, file = Path.cwd(), scene._scene_file
    entry: dict[str, Any] = {
        "op": f"{PREFIX}{scene.__name__}",
        "name": _case_name(scene, case, platform),
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
    reason = scene_skip_reason(platform, case.platforms)
    if not reason and (unknown := [name for name in case.platforms if name not in PLATFORMS]):
        raise UsageError(f"{scene.__name__}: {UnknownName('platform', unknown[0], PLATFORMS)}")
    if reason := reason or lack_of_runtime(scene._scene_runtime, platform):
        entry["skip"] = reason
    return entry


def digest_of(scene: type[SceneTestCase]) -> str:
    """Return a digest of the scene's file, golden file and sources, which a resumed run must find unchanged."""
    digest, folder = hashlib.blake2b(digest_size=8), scene._scene_file.parent
    files = [scene._scene_file, *([folder / scene.GOLDEN] if scene.GOLDEN else [])]
    absolute_sources(scene.CALLABLE, folder, files)
    for path in files:
        digest.update(path.read_bytes() if path.is_file() else b"-")
    return digest.hexdigest()


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """Return the descriptor of a scene; its tensors are known only when it runs."""
    texts = [Attribute(name=attribute, type="str") for attribute in ("file", "case", "platform", "sources")]
    attributes = (*texts, Attribute(name="golden", type="bool", default=True))
    return OperatorDescriptor(name=name, category="scene", signature=" -> *out", attributes=attributes)


def scene_of(case: TestCase) -> SceneTestCase:
    """Return a new instance of the scene class of a case; raise UsageError if the file does not declare it any more."""
    file, name = Path(case.attributes["file"]).absolute(), case.descriptor.name.removeprefix(PREFIX)
    for scene in tests_in(file)[0]:
        if scene.__name__ == name:
            return scene()
    raise UsageError(f"{file} declares no scene {name}")


def case_of(case: TestCase) -> SceneCase:
    """Return the ``CASES`` entry of a case; raise UsageError if the class does not have it any more."""
    scene, name = scene_of(case), case.attributes["case"]
    for entry in scene._scene_cases:
        if entry.name == name:
            return entry
    raise UsageError(f"{type(scene).__name__} has no case {name!r}")

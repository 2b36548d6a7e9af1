"""Files of cases: their detection, ``--list-models`` and ``--list-cases``, and deselection by model and by id."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from optest.api import collecting
from optest.api.collecting import slug
from optest.errors import OptestError, did_you_mean
from optest.pytest_plugin.nodes import CaseItem, register_mark

_SUFFIXES = (".yaml", ".yml")
_INI_FILES = pytest.StashKey[list[Path]]()
_ONLY_INI_FILES = pytest.StashKey[bool]()


def add_ini_files(config: pytest.Config) -> None:
    """Add the ini's ``optest_models`` to the collection, unless the command line has paths and no ``--model``.

    Raise ``pytest.UsageError`` for a missing file or folder.
    """
    paths = config.stash[_INI_FILES] = list(config.getini("optest_models"))
    has_paths = config.args_source is pytest.Config.ArgsSource.ARGS
    config.stash[_ONLY_INI_FILES] = bool(paths) and not has_paths
    names_files = any(argument.partition("::")[0].endswith(_SUFFIXES) for argument in config.args)
    if names_files or (has_paths and not config.getoption("model")):
        return
    for path in paths:
        if not path.exists():
            raise pytest.UsageError(f"{config.inipath}: optest_models names {path}, which does not exist")
    config.args[:] = dict.fromkeys([*config.args, *map(str, paths)])


def is_taken(path: Path, config: pytest.Config) -> bool:
    """Return whether a file is collected: it is on the command line, or its keys (of a plan also its name) fit.

    If the ini has ``optest_models`` and the command line no path, model cases in other folders are not collected.
    """
    if path.suffix not in _SUFFIXES:
        return False
    if any(path == _absolute_path(argument, config) for argument in config.args):
        return True
    if any(path.is_relative_to(folder) for folder in config.stash[_INI_FILES]):
        return not collecting.top_keys(path).isdisjoint(("model", "cases"))
    if any(fnmatch.fnmatch(path.name, glob) for glob in config.getini("optest_plans")) and collecting.is_plan(path):
        return True
    return not config.stash[_ONLY_INI_FILES] and collecting.top_keys(path).issuperset(("model", "cases"))


def files_of(config: pytest.Config) -> Iterator[Path]:
    """Return every file of cases below the collected paths."""
    paths: dict[Path, None] = {}
    ignored = config.getini("norecursedirs")
    for argument in config.args:
        path = _absolute_path(argument, config)
        if path.is_dir():
            for here, folders, names in os.walk(path):
                kept = [x for x in folders if not any(fnmatch.fnmatch(x, glob) for glob in ignored)]
                folders[:] = sorted(x for x in kept if not Path(here, x, "pyvenv.cfg").is_file())
                files = (Path(here, name) for name in sorted(names) if name.endswith(_SUFFIXES))
                paths.update((file, None) for file in files if is_taken(file, config))
        elif path.suffix in _SUFFIXES:
            paths[path] = None
    return iter(paths)


def named(config: pytest.Config) -> list[tuple[Path, str]]:
    """Return the path of each argument of pytest, folders unexpanded, with its part after the first ``::`` or ""."""
    return [(_absolute_path(argument, config), argument.partition("::")[2]) for argument in config.args]


def _absolute_path(argument: str, config: pytest.Config) -> Path:
    return Path(os.path.abspath(config.invocation_params.dir / argument.partition("::")[0]))


def listed(config: pytest.Config) -> int:
    """Print one line for each model, or each case; return exit status 0, or 2 if a file cannot be read.

    Raise ``pytest.UsageError`` for a model that no file has.
    """
    cases: list[tuple[str, str]] = []
    faults: list[str] = []
    add_ini_files(config)
    for path in files_of(config):
        try:
            in_file, notes = collecting.listed_cases(path)
            for case in in_file:
                where = f"{case.operator}  ({case.path})"
                name = f"{case.model}::{case.name}" if case.model else case.name or "-"
                cases.append((case.model, f"{name}::{where}"))
            if not in_file:
                print(*notes, sep="\n", file=sys.stderr)  # noqa: T201
        except OptestError as error:  # noqa: PERF203 - every file is reported
            faults.append(str(error))
    selected = config.getoption("model")
    models = dict.fromkeys(model for model, _ in cases if model)
    slugs = {slug(name) for name in selected}
    if not faults:
        require_known(selected, models)
    if config.getoption("list_models"):
        lines = [model for model in models if not selected or slug(model) in slugs]
    else:
        lines = [line for model, line in cases if not selected or slug(model) in slugs]
    for line in lines:
        print(line)  # noqa: T201
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    return 2 if faults else 0


def register_marks(config: pytest.Config) -> None:
    """Register the tags of the cases in all files as marks, for ``--markers``."""
    for path in files_of(config):
        with suppress(OptestError):  # reported by the collection
            for case in collecting.listed_cases(path)[0]:
                for tag in case.tags:
                    register_mark(config, tag)


def require_known_in_files(config: pytest.Config) -> None:
    """Raise ``pytest.UsageError`` for a model that no file has, if all files can be read."""
    # Workers of xdist collect after that, and cannot report a wrong name.
    if not config.getoption("model"):
        return
    try:
        models = {x.model: None for path in files_of(config) for x in collecting.listed_cases(path)[0] if x.model}
    except OptestError:
        return  # reported by the collection
    require_known(config.getoption("model"), models)


def of_other_models(models: Sequence[str], items: Sequence[pytest.Item], *, is_complete: bool) -> list[pytest.Item]:
    """Return the cases of other models than ``--model``.

    Raise ``pytest.UsageError`` for a model that no case has, if the collection is complete.
    """
    if not models:
        return []
    cases = [item for item in items if isinstance(item, CaseItem)]
    if is_complete:
        require_known(models, dict.fromkeys(item.model for item in cases if item.model))
    words = {slug(name) for name in models}
    return [item for item in cases if slug(item.model) not in words]


def with_longer_ids(named: Iterable[tuple[Path, str]], items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that pytest collects for a named case but that only begin with its id: ``a[0]`` for ``a``.

    ``named`` are files and folders, each with the named part of the id, "" for all.
    """
    locations = {(item.path, item.nodeid.partition("::")[2]): item for item in items if isinstance(item, CaseItem)}
    arguments = set(named)
    cases = arguments & locations.keys()
    others = arguments - cases
    return [
        item
        for location, item in locations.items()
        if location not in cases and _is_below(location, cases) and not _is_below(location, others)
    ]


def _is_below(location: tuple[Path, str], named: Iterable[tuple[Path, str]]) -> bool:
    """Return whether an item is in one of these files or folders, below the named part of the id."""
    path, name = location
    return any(
        name.startswith((f"{part}[", f"{part}::")) and path == file if part else path.is_relative_to(file)
        for file, part in named
    )


def require_known(names: Iterable[str], models: Iterable[str]) -> None:
    """Raise ``pytest.UsageError`` for a name that is, also as a slug, none of the models."""
    known = {slug(name): name for name in models}
    for name in names:
        if slug(name) not in known:
            hint = did_you_mean(name, known.values(), text="; did you mean {!r}?")
            models = f"known: {', '.join(sorted(known.values()))}" if known else "no file of model cases was collected"
            raise pytest.UsageError(f"--model {name} is unknown{hint}; {models}")

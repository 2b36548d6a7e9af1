"""Detection of files of cases: named files, files of the ini, and in other folders model cases and plans."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from optest.api import collecting

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
                folders[:] = sorted(name for name in folders if not _is_ignored(Path(here, name), ignored))
                files = (Path(here, name) for name in sorted(names) if name.endswith(_SUFFIXES))
                paths.update((file, None) for file in files if is_taken(file, config))
        elif path.suffix in _SUFFIXES:
            paths[path] = None
    return iter(paths)


def named(config: pytest.Config) -> list[tuple[Path, str]]:
    """Return the collected paths, each with the part of the id after ``::``, "" for all."""
    return [(_absolute_path(argument, config), argument.partition("::")[2]) for argument in config.args]


def _absolute_path(argument: str, config: pytest.Config) -> Path:
    return Path(os.path.abspath(config.invocation_params.dir / argument.partition("::")[0]))


def _is_ignored(folder: Path, patterns: list[str]) -> bool:
    return (folder / "pyvenv.cfg").is_file() or any(fnmatch.fnmatch(folder.name, x) for x in patterns)

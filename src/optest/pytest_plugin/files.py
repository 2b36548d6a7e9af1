"""Which files hold cases: those that were named, those of the ini, and in other folders what has the keys of model
cases, or the name and the keys of a plan."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from optest.api import collecting

_SUFFIXES = (".yaml", ".yml")
_STATED = pytest.StashKey[list[Path]]()
_ONLY_STATED = pytest.StashKey[bool]()


def add_ini_files(config: pytest.Config) -> None:
    """Collect the ini's ``optest_models``, unless the command line says what to collect and names no model.

    Raises:
        pytest.UsageError: for a file or folder of the ini that is not there.
    """
    stated = config.stash[_STATED] = list(config.getini("optest_models"))
    is_said = config.args_source is pytest.Config.ArgsSource.ARGS
    config.stash[_ONLY_STATED] = bool(stated) and not is_said
    names_files = any(each.partition("::")[0].endswith(_SUFFIXES) for each in config.args)
    if names_files or (is_said and not config.getoption("model")):
        return
    for path in stated:
        if not path.exists():
            raise pytest.UsageError(f"{config.inipath}: optest_models names {path}, which is not there")
    config.args[:] = dict.fromkeys([*config.args, *map(str, stated)])


def is_taken(path: Path, config: pytest.Config) -> bool:
    """Whether this file is one of cases: by its name on the command line, else by its keys; a plan by its name, too.

    Where the ini says which files are of model cases, and the command line names none, no others are.
    """
    if path.suffix not in _SUFFIXES:
        return False
    if any(path == _path(each, config) for each in config.args):
        return True
    if any(path.is_relative_to(folder) for folder in config.stash[_STATED]):
        return not collecting.top_keys(path).isdisjoint(("model", "cases"))
    if any(fnmatch.fnmatch(path.name, each) for each in config.getini("optest_plans")) and collecting.is_plan(path):
        return True
    return not config.stash[_ONLY_STATED] and collecting.top_keys(path).issuperset(("model", "cases"))


def files_of(config: pytest.Config) -> Iterator[Path]:
    """Every file of cases that a collection of all items would come to."""
    paths: dict[Path, None] = {}
    ignored = config.getini("norecursedirs")
    for argument in config.args:
        path = _path(argument, config)
        if path.is_dir():
            for here, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not _is_ignored(Path(here, name), ignored))
                files = (Path(here, name) for name in sorted(names) if name.endswith(_SUFFIXES))
                paths.update((file, None) for file in files if is_taken(file, config))
        elif path.suffix in _SUFFIXES:
            paths[path] = None
    return iter(paths)


def named(config: pytest.Config) -> list[tuple[Path, str]]:
    """What the command line (or the ini) says to collect: files and folders, and what is named in each, "" for all."""
    return [(_path(each, config), each.partition("::")[2]) for each in config.args]


def _path(argument: str, config: pytest.Config) -> Path:
    return Path(os.path.abspath(config.invocation_params.dir / argument.partition("::")[0]))


def _is_ignored(folder: Path, patterns: list[str]) -> bool:
    return (folder / "pyvenv.cfg").is_file() or any(fnmatch.fnmatch(folder.name, each) for each in patterns)

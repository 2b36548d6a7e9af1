"""The configuration file: ``optest.toml``, or the table ``[tool.optest]`` of ``pyproject.toml``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from optest.errors import OptestError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """What a file states, by keys as they are written; ``folder`` is where its relative paths start."""

    path: str = ""
    folder: str = ""
    stated: Mapping[str, Any] = field(default_factory=dict)


def config_file(start: Path | None = None) -> ConfigFile:
    """The nearest file in the folder ``start`` (the current one) and those above it, up to the root of the repository.

    Raises:
        UsageError: if a file on the way is no TOML, or the table in it is none.
    """
    folder = Path(current_folder()) if start is None else start.resolve()
    for each in (folder, *folder.parents):
        for name in ("optest.toml", "pyproject.toml"):
            stated = _table(each / name)
            if stated is not None:
                return ConfigFile(path=os.path.relpath(each / name), folder=os.path.relpath(each), stated=stated)
        if (each / ".git").exists():
            break
    return ConfigFile()


def current_folder() -> str:
    """Return the working directory.

    Raises:
        UsageError: if it was removed or cannot be read.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(f"the working directory cannot be used: {error.strerror}\n  change to another one") from None


def find_modules_here() -> None:
    """Let plug-ins and dotted paths name modules of this folder and of the configuration file, after all others."""
    current_folder()
    with suppress(OptestError):  # whoever needs the file says what is wrong with it
        folders = ("", os.path.abspath(config_file().folder))
        sys.path += [each for each in folders if each not in sys.path and not getattr(sys.flags, "safe_path", False)]


def _table(file: Path) -> Mapping[str, Any] | None:
    """What the file says of optest, None where it says nothing."""
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return None
    table = _read(file, changed)
    for name in ("tool", "optest") if file.name == "pyproject.toml" else ():
        table = table.get(name) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{os.path.relpath(file)}: tool.optest should be a table, as [tool.optest]")
    return table


@lru_cache(maxsize=8)
def _read(file: Path, _changed: int) -> Any:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.path.relpath(file)} cannot be read: {error}") from None

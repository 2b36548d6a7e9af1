"""The configuration file: ``optest.toml``, or the table ``[tool.optest]`` of ``pyproject.toml``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
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
    for file in searched_files(start):
        stated = table_in(file)
        if stated is not None:
            return ConfigFile(path=os.path.relpath(file), folder=os.path.relpath(file.parent), stated=stated)
    return ConfigFile()


def searched_files(start: Path | None = None) -> Iterator[Path]:
    """Yield the files that may be the configuration file, existing or not, in the order of their precedence."""
    folder = Path(current_folder()) if start is None else start.resolve()
    for each in (folder, *folder.parents):
        yield from (each / name for name in ("optest.toml", "pyproject.toml"))
        if (each / ".git").exists():
            break


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


def table_in(file: Path) -> Mapping[str, Any] | None:
    """What the file says of optest, None where it says nothing."""
    try:
        found = file.stat()
    except OSError:
        return None
    table = _read(file, found.st_mtime_ns, found.st_ctime_ns)  # the second cannot be set
    for name in ("tool", "optest") if file.name == "pyproject.toml" else ():
        table = table.get(name) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{os.path.relpath(file)}: tool.optest should be a table, as [tool.optest]")
    return table


@lru_cache(maxsize=8)
def _read(file: Path, *_changed: int) -> Any:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.path.relpath(file)} cannot be read: {error}") from None

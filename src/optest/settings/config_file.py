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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """Keys and values of a configuration file; its relative paths start at ``folder``. Empty if there is no file."""

    path: str = ""
    folder: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def config_file(start: Path | None = None) -> ConfigFile:
    """Read the nearest configuration file in ``start`` (default: the working directory) or a folder above it.

    The search ends at the root of the git repository. Return an empty ``ConfigFile`` if there is no file.

    Raises:
        UsageError: if a candidate file is not valid TOML, or its ``tool.optest`` is not a table.
    """
    for file in searched_files(start):
        values = table_in(file)
        if values is not None:
            return ConfigFile(path=os.path.relpath(file), folder=os.path.relpath(file.parent), values=values)
    return ConfigFile()


def searched_files(start: Path | None = None) -> Iterator[Path]:
    """Yield the files that may be the configuration file, existing or not, in the order of their precedence."""
    folder = Path(current_folder()) if start is None else start.resolve()
    for parent in (folder, *folder.parents):
        yield from (parent / name for name in ("optest.toml", "pyproject.toml"))
        if (parent / ".git").exists():
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
    """Append the working directory and the configuration file's folder to ``sys.path``, unless Python runs with ``-P``.

    Raises:
        UsageError: if the working directory was removed or cannot be read.
    """
    current_folder()
    # A faulty configuration file is ignored here: the code that reads its values reports the fault.
    with suppress(OptestError):
        folders = ("", os.path.abspath(config_file().folder))
        sys.path += [x for x in folders if x not in sys.path and not getattr(sys.flags, "safe_path", False)]


def table_in(file: Path) -> Mapping[str, Any] | None:
    """Return the optest settings in ``file``, or None if it does not exist or has no ``[tool.optest]`` table.

    Raises:
        UsageError: if the file cannot be read, is not valid TOML, or ``tool.optest`` is not a table.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    # Programs can set the mtime back; the ctime they cannot, so the cache never returns old text.
    table = _parse_toml(file, status.st_mtime_ns, status.st_ctime_ns)
    for name in ("tool", "optest") if file.name == "pyproject.toml" else ():
        table = table.get(name) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{os.path.relpath(file)}: tool.optest is {table!r}, expected a table: [tool.optest]")
    return table


@lru_cache(maxsize=8)
def _parse_toml(file: Path, *_change_times: int) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.path.relpath(file)} cannot be read: {error}") from None

"""Several shared objects seen as one: found, loaded when asked for, and asked for symbols in order.

What a library does while it loads (prints, exits, crashes) is the business of the worker that loads it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optest.clib.ffi.elf import exported_names, why_unfit
from optest.errors import Unavailable, did_you_mean, nearest
from optest.settings import infini_root

__all__ = ["Library", "file_name", "find_library", "open_library"]

_SUFFIXES = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}
_FOLDERS = {"linux": ("lib", "lib64", ""), "darwin": ("lib", ""), "win32": ("bin", "lib", "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Loaded shared objects; a symbol is taken from the first that has it."""

    paths: tuple[str, ...]
    objects: tuple[Any, ...] = field(repr=False)

    def has(self, name: str) -> bool:
        return any(_symbol(each, name) is not None for each in self.objects)

    def symbol(self, name: str) -> Any:
        """The ctypes function called ``name``, a new one each time, without a signature.

        Raises:
            Unavailable: naming the symbol, where it was looked for, and the nearest name that is there.
        """
        for each in self.objects:
            found = _symbol(each, name)
            if found is not None:
                return found
        raise Unavailable(f"symbol {name}", _not_exported(name, self.paths))

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names`` that no object exports."""
        return tuple(name for name in names if not self.has(name))


def open_library(names: str | Path | Sequence[str | Path], *, root: str | Path | None = None) -> Library:
    """Load shared objects; symbols are looked for in the order of ``names``.

    The last is loaded first, so that a library which needs another finds it there (operators before their runtime:
    ``("infiniop", "infinirt")``). How a name is found: :func:`find_library`.

    Raises:
        Unavailable: naming the library that is missing, made for another machine or refused by the loader.
    """
    requested = [names] if isinstance(names, (str, Path)) else list(names)
    paths = [find_library(name, root=root) for name in requested]
    loaded = [_load(path) for path in reversed(paths)]
    return Library(paths=tuple(paths), objects=tuple(reversed(loaded)))


def find_library(name: str | Path, *, root: str | Path | None = None) -> str:
    """The file of a library. A name with a separator or the platform's suffix is a path.

    Another name is looked for in ``lib``, ``lib64`` (Windows: ``bin``) and the folder itself under ``root``; without
    ``root`` under ``INFINI_ROOT`` or ``~/.infini``, and then left to the system's loader, by its file name alone.

    Raises:
        Unavailable: with the places where it was looked for.
    """
    if _is_path(name):
        return _existing(Path(name).expanduser())
    folder = Path(root).expanduser() if root is not None else infini_root()
    file = file_name(str(name))
    candidates = [folder / part / file for part in _FOLDERS.get(sys.platform, ("lib", ""))]
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    looked = f"it was looked for as {', '.join(map(str, candidates))}"
    remedy = "name its file, or the folder it is installed in"
    if root is not None:
        raise Unavailable(f"library {name}", f"{looked}; {remedy}")
    refusal = _loader_refuses(file)
    if refusal:
        raise Unavailable(
            f"library {name}", f"{looked}, and the system's loader says: {refusal}; {remedy} (INFINI_ROOT)"
        )
    return file


def file_name(name: str) -> str:
    """How this platform calls the file of library ``name``: ``libinfiniop.so``, ``infiniop.dll``."""
    suffix = _SUFFIXES.get(sys.platform, ".so")
    prefix = "" if sys.platform == "win32" or name.startswith("lib") else "lib"
    return f"{prefix}{name}{suffix}"


def _is_path(name: str | Path) -> bool:
    text = str(name)
    return isinstance(name, Path) or "/" in text or "\\" in text or any(s in text for s in (".so", ".dylib", ".dll"))


def _existing(path: Path) -> str:
    if path.is_file():
        return str(path.resolve())
    if path.is_dir():
        raise Unavailable(f"library {path}", "it is a folder, but should be a shared object")
    beside = sorted(each.name for each in path.parent.glob("*") if each.is_file()) if path.parent.is_dir() else []
    if path.parent == Path() and not _loader_refuses(path.name):
        return path.name
    near = nearest(path.name, beside)
    hint = f"; did you mean {path.parent / near}?" if near else ""
    raise Unavailable(f"library {path}", f"there is no such file{hint}")


def _loader_refuses(file: str) -> str:
    """Why the system's loader does not load ``file`` from its own path; empty if it does: it is loaded, and stays."""
    try:
        ctypes.CDLL(file)
    except OSError as error:
        return str(error)
    return ""


def _load(path: str) -> Any:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise Unavailable(f"library {path}", why_unfit(path) or f"the loader says: {error}") from None


def _symbol(loaded: Any, name: str) -> Any:
    """A new function object, so that two users of one symbol do not share ``argtypes``."""
    try:
        return loaded[name]
    except (AttributeError, ValueError):
        return None


def _not_exported(name: str, paths: Sequence[str]) -> str:
    known = [each for path in paths for each in exported_names(path)]
    hint = did_you_mean(name, known, text="; did you mean {}?")
    return f"{', '.join(paths)} {'does' if len(paths) == 1 else 'do'} not export it{hint}"

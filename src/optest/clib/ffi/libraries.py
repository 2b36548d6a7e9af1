"""Several shared objects seen as one: found, loaded when asked for, and asked for symbols in order.

What a library does while it loads (prints, exits, crashes) is the business of the worker that loads it.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optest.clib.ffi.elf import Elf, elf_of, exported_names
from optest.errors import Unavailable, nearest
from optest.settings import infini_root

__all__ = ["Library", "file_name", "find_library", "open_library", "require_fit"]

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
    wanted = [names] if isinstance(names, (str, Path)) else list(names)
    paths = [find_library(name, root=root) for name in wanted]
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
    if root is not None:
        raise Unavailable(f"library {name}", f"{looked}; name its file, or the folder it is installed in")
    refusal = _loader_refuses(file)
    if not refusal:
        return file
    remedy = "name its file, or the folder it is installed in (INFINI_ROOT)"
    raise Unavailable(f"library {name}", f"{looked}, and the system's loader says: {refusal}; {remedy}")


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
    near = nearest(path.name, beside)
    if path.parent == Path() and not _loader_refuses(path.name):
        return path.name
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
        raise Unavailable(f"library {path}", _why_not(path, error)) from None


def _why_not(path: str, error: OSError) -> str:
    return _misfit(path) or f"the loader says: {error}"


def require_fit(path: str) -> None:
    """See that a file is a shared object for this machine, without loading it.

    Raises:
        Unavailable: saying what it is instead; elsewhere than on Linux the loader has to tell.
    """
    why = _misfit(path)
    if why:
        raise Unavailable(f"library {path}", why)


def _misfit(path: str) -> str:
    """What the file says about itself, where the loader's words would mislead; empty if it fits."""
    file = Path(path)
    if sys.platform != "linux" or not file.is_file():
        return ""
    elf = elf_of(file)
    if elf is None:
        return "it is no ELF file, but should be a shared object for " + platform.machine()
    if not elf.is_for_this_machine:
        return f"it is for {elf}, but should be for {Elf.here()}"
    if not elf.is_shared:
        return f"it is {elf.type_name}, but should be a shared object"
    return ""


def _symbol(loaded: Any, name: str) -> Any:
    """A new function object, so that two users of one symbol do not share ``argtypes``."""
    try:
        return loaded[name]
    except (AttributeError, ValueError):
        return None


def _not_exported(name: str, paths: Sequence[str]) -> str:
    known = [each for path in paths for each in exported_names(Path(path))]
    near = nearest(name, known)
    hint = f"; did you mean {near}?" if near else ""
    return f"{', '.join(paths)} {'does' if len(paths) == 1 else 'do'} not export it{hint}"

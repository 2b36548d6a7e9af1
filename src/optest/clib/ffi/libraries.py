"""Several shared objects seen as one: found, loaded when asked for, and asked for symbols in order; and what an ELF
file says about itself: for which machine it is made, and which functions it exports.

What a library does while it loads (prints, exits, crashes) is the business of the worker that loads it. Source of the
layout: System V ABI, chapters 4 and 5 (ELF header, section header, symbol table).
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optest.errors import Unavailable, did_you_mean, nearest
from optest.settings import infini_root

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
        known = [each for path in self.paths for each in exported_names(path)]
        hint = did_you_mean(name, known, text="; did you mean {}?")
        do = "does" if len(self.paths) == 1 else "do"
        raise Unavailable(f"symbol {name}", f"{', '.join(self.paths)} {do} not export it{hint}")

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
        raise Unavailable(f"library {path}", "it is a folder, expected a shared object")
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


_MACHINES = {3: "i386", 8: "mips", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MACHINES[258] = "loongarch64"
_SHARED = 3
_TYPES = {1: "a relocatable object", 2: "an executable", 4: "a core dump"}
_DYNAMIC_SYMBOLS = 11
_UNDEFINED = 0
_FUNCTIONS = (2, 10)
"""Types of a symbol: a function, and one that is chosen when it is first called (GNU's IFUNC)."""
_VISIBLE_BINDINGS = (1, 2)

_Target = tuple[str, int, str]
"""Machine, bits and byte order."""


def why_unfit(path: str) -> str:
    """Why a file is no shared object for this machine, where the loader's words would mislead; empty if it is one, and
    elsewhere than on Linux."""
    if sys.platform != "linux" or not Path(path).is_file():
        return ""
    with open(path, "rb") as file:
        head = _head(file.read(20))
    if head is None:
        return f"it is no ELF file, expected a shared object for {platform.machine()}"
    type_, target = head
    here = platform.machine(), 64 if sys.maxsize > 2**32 else 32, sys.byteorder
    if target != here:
        return f"it is for {_words(*target)}, expected for {_words(*here)}"
    if type_ != _SHARED:
        return f"it is {_TYPES.get(type_, f'of ELF type {type_}')}, expected a shared object"
    return ""


def _words(machine: str, bits: int, byte_order: str) -> str:
    return f"{machine} ({bits}-bit, {byte_order}-endian)"


def _head(data: bytes) -> tuple[int, _Target] | None:
    """The type of the file and what it is made for, None if it is no ELF file."""
    if len(data) < 20 or data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] not in (1, 2):
        return None
    order, mark = ("little", "<") if data[5] == 1 else ("big", ">")
    type_, machine = struct.unpack_from(f"{mark}HH", data, 16)
    return type_, (_MACHINES.get(machine, f"machine {machine}"), 32 * data[4], order)


def exported_names(path: str) -> frozenset[str]:
    """The dynamic symbols that a 64-bit ELF file defines; empty where that cannot be read."""
    return frozenset(name for name, _ in _exported(path))


def exported_functions(path: str) -> frozenset[str]:
    """The functions among them that another object can call; empty where that cannot be read."""
    return frozenset(
        name for name, info in _exported(path) if info & 0xF in _FUNCTIONS and info >> 4 in _VISIBLE_BINDINGS
    )


def _exported(path: str) -> list[tuple[str, int]]:
    """Names with the byte that holds binding and type; empty for a file that is cut off or has no section headers."""
    try:
        data = Path(path).read_bytes()
        head = _head(data)
        if head is None or head[1][1] != 64:
            return []
        return list(_dynamic_symbols(data, "<" if head[1][2] == "little" else ">"))
    except (OSError, struct.error, UnicodeDecodeError, ValueError):
        return []


def _dynamic_symbols(data: bytes, order: str) -> Iterator[tuple[str, int]]:
    (table,) = struct.unpack_from(f"{order}Q", data, 40)
    entry_size, entries = struct.unpack_from(f"{order}HH", data, 58)
    sections = [struct.unpack_from(f"{order}IIQQQQIIQQ", data, table + index * entry_size) for index in range(entries)]
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        strings = sections[section[6]][4]
        for place in range(section[4], section[4] + section[5], 24):
            name, info, _, where, _, _ = struct.unpack_from(f"{order}IBBHQQ", data, place)
            if name and where != _UNDEFINED:
                start = strings + name
                yield data[start : data.index(b"\0", start)].decode(), info

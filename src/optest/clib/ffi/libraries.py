"""Find and load shared objects, look up symbols, and read an ELF file's target machine and exported names.

The worker that loads a library handles its output, exit or crash. Source of the layout: System V ABI, chapters 4 and 5.
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
    """Loaded shared objects; a symbol is taken from the first object that exports it."""

    paths: tuple[str, ...]
    objects: tuple[Any, ...] = field(repr=False)

    def has(self, name: str) -> bool:
        return any(_find_symbol(loaded, name) is not None for loaded in self.objects)

    def symbol(self, name: str) -> Any:
        """Return a new ctypes function without a signature; raise Unavailable, with the nearest exported name."""
        for loaded in self.objects:
            symbol = _find_symbol(loaded, name)
            if symbol is not None:
                return symbol
        known = [exported for path in self.paths for exported in exported_names(path)]
        hint = did_you_mean(name, known, text="; did you mean {}?")
        do = "does" if len(self.paths) == 1 else "do"
        raise Unavailable(f"symbol {name}", f"{', '.join(self.paths)} {do} not export it{hint}")

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``names`` that no object exports."""
        return tuple(name for name in names if not self.has(name))


def open_library(names: str | Path | Sequence[str | Path], *, root: str | Path | None = None) -> Library:
    """Load shared objects, which :func:`find_library` locates; symbols are looked up in the order of ``names``.

    Raise Unavailable for a library that is missing, built for another machine or refused by the loader.
    """
    requested = [names] if isinstance(names, (str, Path)) else list(names)
    paths = [find_library(name, root=root) for name in requested]
    # The last is loaded first, so that a library finds the one that it needs: ("infiniop", "infinirt").
    loaded = [_load_object(path) for path in reversed(paths)]
    return Library(paths=tuple(paths), objects=tuple(reversed(loaded)))


def find_library(name: str | Path, *, root: str | Path | None = None) -> str:
    """Return the file of a library, else raise Unavailable. A name with a separator or suffix is a path.

    Any other name is looked up in ``lib``, ``lib64`` (Windows: ``bin``) and the folder itself under ``root``; without
    ``root`` under ``INFINI_ROOT`` or ``~/.infini``, and then by the system's loader, by file name only.
    """
    if _is_file_path(name):
        return _existing_file(Path(name).expanduser())
    folder = Path(root).expanduser() if root is not None else infini_root()
    file = file_name(str(name))
    candidates = [folder / part / file for part in _FOLDERS.get(sys.platform, ("lib", ""))]
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    searched = f"not found at {', '.join(map(str, candidates))}"
    remedy = "specify its file, or the folder it is installed in"
    if root is not None:
        raise Unavailable(f"library {name}", f"{searched}; {remedy}")
    loader_error = _loader_error(file)
    if loader_error:
        message = f"{searched}, and the system's loader reports: {loader_error}; {remedy} (INFINI_ROOT)"
        raise Unavailable(f"library {name}", message)
    return file


def file_name(name: str) -> str:
    """Return this platform's file name of library ``name``: ``libinfiniop.so``, ``infiniop.dll``."""
    suffix = _SUFFIXES.get(sys.platform, ".so")
    prefix = "" if sys.platform == "win32" or name.startswith("lib") else "lib"
    return f"{prefix}{name}{suffix}"


def _is_file_path(name: str | Path) -> bool:
    text = str(name)
    # A version may follow the suffix: libm.so.6.
    return isinstance(name, Path) or "/" in text or "\\" in text or any(s in text for s in (".so", ".dylib", ".dll"))


def _existing_file(path: Path) -> str:
    """Return the resolved path of a file, or a bare name that the system's loader accepts; else raise Unavailable."""
    if path.is_file():
        return str(path.resolve())
    if path.is_dir():
        raise Unavailable(f"library {path}", "it is a folder, expected a shared object")
    if path.parent == Path() and not _loader_error(path.name):  # A bare name such as libm.so.6 is the loader's to find.
        return path.name
    near = nearest(path.name, sorted(file.name for file in path.parent.glob("*") if file.is_file()))
    hint = f"; did you mean {path.parent / near}?" if near else ""
    raise Unavailable(f"library {path}", f"there is no such file{hint}")


def _loader_error(file: str) -> str:
    """Return the error with which the system's loader refuses ``file``; empty if it loads, and then it stays loaded."""
    try:
        ctypes.CDLL(file)
    except OSError as error:
        return str(error)
    return ""


def _load_object(path: str) -> Any:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise Unavailable(f"library {path}", unfit_reason(path) or f"the loader reports: {error}") from None


def _find_symbol(loaded: Any, name: str) -> Any:
    """Return a new function object, since users of a symbol must not share ``argtypes``; None if not exported."""
    try:
        return loaded[name]
    except (AttributeError, ValueError):
        return None


# e_machine of the ELF header.
_MACHINES = {3: "i386", 8: "mips", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MACHINES[258] = "loongarch64"
_SHARED = 3
_TYPES = {1: "a relocatable object", 2: "an executable", 4: "a core dump"}
_DYNAMIC_SYMBOLS = 11
_UNDEFINED = 0
# Symbol types: a function, and one that is selected at its first call (GNU's IFUNC).
_FUNCTIONS = (2, 10)
_VISIBLE_BINDINGS = (1, 2)

_Target = tuple[str, int, str]  # machine, bits and byte order


def unfit_reason(path: str) -> str:
    """Return why a file is no shared object for this machine; empty if it is one, is missing, or this is not Linux."""
    # The loader's own messages mislead in these cases.
    if sys.platform != "linux" or not Path(path).is_file():
        return ""
    with open(path, "rb") as file:
        head = _read_elf_head(file.read(20))  # up to e_machine
    if head is None:
        return f"it is not an ELF file, expected a shared object for {platform.machine()}"
    type_, target = head
    here = platform.machine(), 64 if sys.maxsize > 2**32 else 32, sys.byteorder
    if target != here:
        return f"it is built for {_describe_target(*target)}, expected {_describe_target(*here)}"
    if type_ != _SHARED:
        return f"it is {_TYPES.get(type_, f'of ELF type {type_}')}, expected a shared object"
    return ""


def _describe_target(machine: str, bits: int, byte_order: str) -> str:
    return f"{machine} ({bits}-bit, {byte_order}-endian)"


def _read_elf_head(data: bytes) -> tuple[int, _Target] | None:
    """Return type and target of an ELF file; None if the data is no ELF header."""
    if len(data) < 20 or data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] not in (1, 2):
        return None
    order, mark = ("little", "<") if data[5] == 1 else ("big", ">")
    type_, machine = struct.unpack_from(f"{mark}HH", data, 16)
    return type_, (_MACHINES.get(machine, f"machine {machine}"), 32 * data[4], order)


def exported_names(path: str) -> frozenset[str]:
    """Return the dynamic symbols that a 64-bit ELF file defines; empty if it cannot be read."""
    return frozenset(name for name, _ in _exported_symbols(path))


def exported_functions(path: str) -> frozenset[str]:
    """Return the functions that a 64-bit ELF file exports to other objects; empty if it cannot be read."""
    symbols = _exported_symbols(path)
    return frozenset(name for name, info in symbols if info & 0xF in _FUNCTIONS and info >> 4 in _VISIBLE_BINDINGS)


def _exported_symbols(path: str) -> list[tuple[str, int]]:
    """Return names with their byte of binding and type; empty if truncated or without section headers."""
    try:
        data = Path(path).read_bytes()
        head = _read_elf_head(data)
        if head is None or head[1][1] != 64:
            return []
        return list(_dynamic_symbols(data, "<" if head[1][2] == "little" else ">"))
    except (OSError, struct.error, UnicodeDecodeError, ValueError):
        return []


def _dynamic_symbols(data: bytes, order: str) -> Iterator[tuple[str, int]]:
    """Yield name and info byte of each defined dynamic symbol; ``order`` is struct's ``<`` or ``>``."""
    (table,) = struct.unpack_from(f"{order}Q", data, 40)
    entry_size, entries = struct.unpack_from(f"{order}HH", data, 58)
    sections = [struct.unpack_from(f"{order}IIQQQQIIQQ", data, table + index * entry_size) for index in range(entries)]
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        strings = sections[section[6]][4]  # sh_link names the string table
        for offset in range(section[4], section[4] + section[5], 24):  # 24 bytes: Elf64_Sym.
            name, info, _, section_index, _, _ = struct.unpack_from(f"{order}IBBHQQ", data, offset)
            if name and section_index != _UNDEFINED:
                start = strings + name
                yield data[start : data.index(b"\0", start)].decode(), info

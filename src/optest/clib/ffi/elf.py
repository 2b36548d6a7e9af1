"""What an ELF file says about itself: for which machine it is made, and which functions it exports.

Source of the layout: System V ABI, chapters 4 and 5 (ELF header, section header, symbol table).
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["exported_functions", "exported_names", "why_unfit"]

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
        return f"it is no ELF file, but should be a shared object for {platform.machine()}"
    type_, target = head
    here = platform.machine(), 64 if sys.maxsize > 2**32 else 32, sys.byteorder
    if target != here:
        return f"it is for {_words(*target)}, but should be for {_words(*here)}"
    if type_ != _SHARED:
        return f"it is {_TYPES.get(type_, f'of ELF type {type_}')}, but should be a shared object"
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

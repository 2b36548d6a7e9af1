"""What an ELF file says about itself: for which machine it is made, and which functions it exports.

Source of the layout: System V ABI, chapters 4 and 5 (ELF header, section header, symbol table).
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Elf", "elf_of", "exported_functions", "exported_names"]

_MACHINES = {3: "i386", 8: "mips", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MACHINES[258] = "loongarch64"
_TYPES = {1: "a relocatable object", 2: "an executable", 3: "a shared object", 4: "a core dump"}
_DYNAMIC_SYMBOLS = 11
_UNDEFINED = 0
_FUNCTIONS = (2, 10)
"""Types of a symbol: a function, and one that is chosen when it is first called (GNU's IFUNC)."""
_VISIBLE_BINDINGS = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """The head of an ELF file."""

    machine: str
    bits: int
    byte_order: str
    type: int = 3

    def __str__(self) -> str:
        return f"{self.machine} ({self.bits}-bit, {self.byte_order}-endian)"

    @classmethod
    def here(cls) -> Elf:
        """That of the machine on which this runs."""
        return cls(machine=platform.machine(), bits=64 if sys.maxsize > 2**32 else 32, byte_order=sys.byteorder)

    @property
    def is_for_this_machine(self) -> bool:
        here = Elf.here()
        return (self.machine, self.bits, self.byte_order) == (here.machine, here.bits, here.byte_order)

    @property
    def is_shared(self) -> bool:
        return self.type == 3

    @property
    def type_name(self) -> str:
        return _TYPES.get(self.type, f"of ELF type {self.type}")


def elf_of(path: Path) -> Elf | None:
    """The head of the file, None if it is no ELF file."""
    with path.open("rb") as file:
        return _head(file.read(20))


def _head(head: bytes) -> Elf | None:
    if len(head) < 20 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    order = "little" if head[5] == 1 else "big"
    type_, machine = struct.unpack_from("<HH" if head[5] == 1 else ">HH", head, 16)
    name = _MACHINES.get(machine, f"machine {machine}")
    return Elf(machine=name, bits=32 * head[4], byte_order=order, type=type_)


def exported_names(path: Path) -> list[str]:
    """The dynamic symbols that a 64-bit ELF file defines, for suggestions; empty where that cannot be read."""
    return sorted({name for name, _ in _exported(path)})


def exported_functions(path: Path) -> frozenset[str]:
    """The functions among them that another object can call; empty where that cannot be read."""
    return frozenset(
        name for name, info in _exported(path) if info & 0xF in _FUNCTIONS and info >> 4 in _VISIBLE_BINDINGS
    )


def _exported(path: Path) -> list[tuple[str, int]]:
    """Names with the byte that holds binding and type; empty for a file that is cut off or has no section headers."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    elf = _head(data[:20])
    if elf is None or elf.bits != 64:
        return []
    try:
        return list(_dynamic_symbols(data, "<" if elf.byte_order == "little" else ">"))
    except (struct.error, UnicodeDecodeError, ValueError):
        return []


def _dynamic_symbols(data: bytes, order: str) -> Iterator[tuple[str, int]]:
    table, entry_size, entries = _section_table(data, order)
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


def _section_table(data: bytes, order: str) -> tuple[int, int, int]:
    """Offset, size of an entry, number of entries."""
    (offset,) = struct.unpack_from(f"{order}Q", data, 40)
    size, count = struct.unpack_from(f"{order}HH", data, 58)
    return offset, size, count

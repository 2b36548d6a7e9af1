"""What C code leaves behind in the process that calls it: of the C heap, of open files and of threads, on standard
output, and in the processor's floating-point control words (rounding, subnormals, traps, x87 precision).

The heap is glibc's ``mallinfo2``, which counts what every arena has handed out, large blocks included. Layout of
fenv_t: glibc and musl on x86-64 (fnstenv, 28 bytes, then MXCSR) and on aarch64 (FPCR, FPSR).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any

from optest.memory.glibc import has_glibc_malloc
from optest.settings import environment

__all__ = ["FloatControl", "Printed", "blocks_kept", "counted", "heap_bytes"]

_BLOCKS_KEPT = 7
_TUNABLE = "glibc.malloc.tcache_count"
_MOST_KEPT = 255
"""Free blocks of a size that may count as used: among more of them no leak shows in any time."""


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _listed(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:  # not Linux
        return 0


def counted() -> dict[str, int]:
    """How many files, sockets and pipes are open, and how many threads there are; 0 where the system does not say."""
    return {"open files": _listed("/proc/self/fd"), "threads": _listed("/proc/self/task")}


def heap_bytes() -> int | None:
    """Bytes that ``malloc`` has handed out in all of the process; None where that is not known, where Python takes its
    own objects from there, which come and go with every call, or where hundreds of free blocks count as used."""
    count = _counter()
    return None if count is None else count()


@cache
def blocks_kept() -> int:
    """How many free blocks of a size glibc's malloc keeps for a thread, which count as used: what GLIBC_TUNABLES
    states."""
    found = _BLOCKS_KEPT
    for each in environment().get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = each.partition("=")
        if name == _TUNABLE and value.isascii() and value.isdecimal():
            found = int(value)
    return found


@cache
def _counter() -> Callable[[], int] | None:
    if environment().get("PYTHONMALLOC", "").startswith("malloc"):
        return None
    process = ctypes.CDLL(None)
    sanitized = getattr(process, "__sanitizer_get_current_allocated_bytes", None)
    if sanitized is not None:  # its malloc has taken the place of glibc's
        sanitized.restype = ctypes.c_size_t
        return lambda: int(sanitized())
    mallinfo2 = getattr(process, "mallinfo2", None)
    if mallinfo2 is None or not has_glibc_malloc() or blocks_kept() > _MOST_KEPT:
        return None
    mallinfo2.restype = _MallInfo

    def of_glibc() -> int:
        info = mallinfo2()
        return int(info.uordblks + info.hblkhd)

    return of_glibc


_SIZE = 64
_FLAGS = 0x3F
"""Bits of MXCSR that operations set; the others are the caller's."""
_ROUNDING, _FLUSH, _DENORMALS_ARE_ZERO, _MASKS = 0x6000, 0x8000, 0x40, 0x1F80
_ROUNDINGS = ("to nearest", "downward", "upward", "toward zero")


class FloatControl:
    """What the control words are now, to be compared with what they are later."""

    __slots__ = ("_environment", "_scratch", "_words")

    def __init__(self) -> None:
        """Read them; on another processor nothing is known, and nothing ever differs."""
        self._environment = (ctypes.c_char * _SIZE)()
        self._scratch = (ctypes.c_char * _SIZE)()
        self._words = _read(self._environment)

    @staticmethod
    def is_possible() -> bool:
        return _get_and_set()[0] is not None

    def changed(self) -> str:
        """What is not as it was, in words, and put back; empty if nothing is."""
        now = _read(self._scratch)
        if now == self._words:
            return ""
        _get_and_set()[1](self._environment)
        return _difference(self._words, now)


def _read(environment: Any) -> tuple[int, ...]:
    get = _get_and_set()[0]
    if get is None:
        return ()
    get(environment)
    held: bytes = environment.raw
    if not _IS_X86:
        return (int.from_bytes(held[:4], "little"),)
    return int.from_bytes(held[:2], "little"), int.from_bytes(held[28:31], "little") & ~_FLAGS


def _difference(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """In words, then in numbers."""
    numbers = " ".join(
        f"{was:#x} became {is_now:#x}" for was, is_now in zip(before, after, strict=True) if was != is_now
    )
    if not _IS_X86 or before[1] == after[1]:
        return f"another floating-point control word ({numbers})"
    changed, now = before[1] ^ after[1], after[1]
    words = {
        _ROUNDING: f"rounding {_ROUNDINGS[(now & _ROUNDING) >> 13]}",
        _FLUSH: "flush-to-zero" if now & _FLUSH else "no flush-to-zero",
        _DENORMALS_ARE_ZERO: "denormals-are-zero" if now & _DENORMALS_ARE_ZERO else "no denormals-are-zero",
        _MASKS: "floating-point traps",
    }
    return f"{' and '.join(word for mask, word in words.items() if changed & mask)} ({numbers})"


_IS_X86 = platform.machine() == "x86_64"


@cache
def _get_and_set() -> tuple[Any, Any]:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None, None
    found = ctypes.util.find_library("m")
    library = ctypes.CDLL(found)
    return library.fegetenv, library.fesetenv


_STDOUT = 1
_MOST_BYTES = 2000


class Printed:
    """While inside, file descriptor 1 is a file without a name, which is empty in the beginning.

    What the process itself had buffered in C is flushed first, and what the library buffered is flushed on leaving.
    ``was_taken`` is then whether code had closed the descriptor, or put another file there.
    """

    def __init__(self) -> None:
        self._file = _nameless_file()
        self._kept = -1
        self.was_taken = False

    def __enter__(self) -> Printed:
        _flush()
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._kept = os.dup(_STDOUT)
        os.dup2(self._file, _STDOUT)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _flush()
        self.was_taken = not self._is_there()
        os.dup2(self._kept, _STDOUT)
        os.close(self._kept)

    def mark(self) -> int:
        """How many bytes have been printed by now."""
        _flush()
        return os.fstat(self._file).st_size

    def _is_there(self) -> bool:
        try:
            return os.path.sameopenfile(_STDOUT, self._file)
        except OSError:
            return False

    def text(self) -> str:
        """What was printed, from its beginning, of much of it whole lines."""
        found = os.pread(self._file, _MOST_BYTES, 0)
        if os.fstat(self._file).st_size > _MOST_BYTES:
            found = found[: found.rfind(b"\n") + 1] or found
        return found.decode(errors="replace")

    def close(self) -> None:
        os.close(self._file)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("optest printed")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _flush() -> None:
    _fflush()(None)


@cache
def _fflush() -> Any:
    return ctypes.CDLL(None).fflush

"""What C code prints to standard output, caught where it belongs to nobody: the worker's own lines stay apart."""

from __future__ import annotations

import ctypes
import os
import tempfile
from functools import cache
from types import TracebackType
from typing import Any

__all__ = ["Printed"]

_STDOUT = 1
_MOST_BYTES = 2000


class Printed:
    """While inside, file descriptor 1 is a file without a name; :meth:`text` is what was printed since it was called.

    What the process itself had buffered in C is flushed first, and what the library buffered is flushed on leaving.
    Code that closes the descriptor, or puts another file there, is found out on leaving.
    """

    def __init__(self) -> None:
        self._file = _nameless_file()
        self._kept = -1
        self._was_taken = False

    def __enter__(self) -> Printed:
        _flush()
        self._kept = os.dup(_STDOUT)
        os.dup2(self._file, _STDOUT)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _flush()
        self._was_taken = not self._is_there()
        os.dup2(self._kept, _STDOUT)
        os.close(self._kept)

    def mark(self) -> int:
        """How many bytes have been printed by now."""
        _flush()
        return os.fstat(self._file).st_size

    def was_taken(self) -> bool:
        """Whether standard output was closed, or another file, on leaving the last time."""
        return self._was_taken

    def _is_there(self) -> bool:
        try:
            return os.path.sameopenfile(_STDOUT, self._file)
        except OSError:
            return False

    def text(self) -> str:
        """What was printed, from its beginning, of much of it whole lines; the next text begins anew."""
        size = os.fstat(self._file).st_size
        if not size:
            return ""
        os.lseek(self._file, 0, os.SEEK_SET)
        found = os.read(self._file, _MOST_BYTES)
        if size > _MOST_BYTES:
            found = found[: found.rfind(b"\n") + 1] or found
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
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

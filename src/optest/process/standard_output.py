"""Capture of the standard output of C code (file descriptor 1)."""

from __future__ import annotations

import ctypes
import os
import tempfile
from functools import cache
from types import TracebackType
from typing import Any

_STDOUT = 1
_MOST_BYTES = 2000


class Printed:
    """Context that redirects file descriptor 1 to an anonymous file, which is emptied at its start.

    C's buffers are flushed at the start and at the end. After the end ``was_taken`` is True if the code closed or
    replaced the descriptor.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("optest printed")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
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
        """Return the number of bytes printed so far."""
        _flush()
        return os.fstat(self._file).st_size

    def _is_there(self) -> bool:
        try:
            return os.path.sameopenfile(_STDOUT, self._file)
        except OSError:
            return False

    def text(self) -> str:
        """Return the captured output; if it exceeds 2000 bytes, only its first complete lines."""
        output = os.pread(self._file, _MOST_BYTES, 0)
        if os.fstat(self._file).st_size > _MOST_BYTES:
            output = output[: output.rfind(b"\n") + 1] or output
        return output.decode(errors="replace")

    def close(self) -> None:
        os.close(self._file)


def _flush() -> None:
    _fflush()(None)


@cache
def _fflush() -> Any:
    return ctypes.CDLL(None).fflush

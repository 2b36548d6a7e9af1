"""Writing whole files: the old content or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from optest.errors import UsageError


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by a file that holds ``data``; a device or pipe is written to as it is.

    Raises:
        UsageError: if it cannot be written; what was there before stays.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        target = path.resolve()
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(_mode(target))
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def check_writable(path: Path) -> None:
    """Say before the work whether a report could be written to ``path`` after it, and make its folder.

    Raises:
        UsageError: naming what is in the way.
    """
    if path.is_dir():
        raise UsageError(f"report path {path} is a directory, but should be a file")
    if path.exists() and not path.is_file():
        if not os.access(path, os.W_OK):
            raise UsageError(f"report path {path} is not writable")
        return
    parent = path.resolve().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".optest-"):
            pass
    except OSError as error:
        raise UsageError(f"report path {path} cannot be written: {error.strerror or error}") from None


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, else what the umask leaves of 0o666."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

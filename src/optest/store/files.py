"""Atomic writing of files: a reader sees the old or the new content, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from optest.errors import UsageError


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file ``path`` by one with the content ``data``; write directly to a device or pipe.

    Raises:
        UsageError: if it cannot be written; an existing file is then unchanged.
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
    """Create the folder of ``path`` and check that a report can be written there after the run.

    Raises:
        UsageError: if it cannot, with the reason.
    """
    if path.is_dir():
        raise UsageError(f"report path {path} is a directory, expected a file")
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
    """Return the permissions of the existing file, or those of a new file under the umask."""
    if target.exists():
        return target.stat().st_mode & 0o777
    # The umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

"""Files: atomic writing, bounded reading, and the paths in plans with the restriction of untrusted ones.

All paths in plans are resolved by :func:`resolve_path`, when the plan is read and again when the file is used, since a
symbolic link may be created in between.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from optest.errors import UsageError
from optest.spec import Fault, Reason, TestCase


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


def create_folder(path: Path) -> Path:
    """Create a folder, if it does not exist, and return it; raise ``UsageError`` if it cannot be created."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"folder {path} cannot be created: {error.strerror or error}") from None
    return path


def _mode(target: Path) -> int:
    """Return the permissions of the existing file, or those of a new file under the umask."""
    if target.exists():
        return target.stat().st_mode & 0o777
    # The umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


class PathError(UsageError):
    """A path that is rejected; the message names it."""


def resolve_path(base: str | os.PathLike[str], text: str, below: Sequence[str] = ()) -> Path:
    """Return ``text`` as an absolute path, relative to the folder ``base``.

    ``below`` are the folders (or files) that an untrusted plan may reach. If there are some, links are resolved, and
    the result has to be in one of them, and be a regular file, a folder, or not exist.

    Raises:
        PathError: naming the path and the reason.
    """
    printed = text if text.isprintable() else repr(text)
    if "\0" in text:
        raise PathError(f"path {printed} contains a NUL character")
    path = Path(os.path.join(os.getcwd(), base, text))
    if not below:
        return path
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in below):
        raise PathError(f"--untrusted refuses {printed}, which is not below the folder of the plan")
    if os.path.exists(real) and not (real.is_file() or real.is_dir()):
        raise PathError(f"{printed} is {_file_kind(real.stat().st_mode)}, expected a regular file")
    return real


def path_of(case: TestCase, text: str, folder: str | os.PathLike[str] = "") -> Path:
    """Resolve a path of a case, relative to ``folder`` in the folder of the case, by :func:`resolve_path`.

    Raises:
        Fault: BAD_CASE for a path that is rejected.
    """
    try:
        return resolve_path(os.path.join(case.base_dir, folder), text, case.allowed_folders)
    except PathError as error:
        raise Fault(Reason.BAD_CASE, str(error), details={"path": text}) from None


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        PathError: if it is no regular file, cannot be read, or is larger than ``most_bytes``.
    """
    text = os.fspath(path)
    named = text if text.isprintable() else repr(text)
    try:
        # Without O_NONBLOCK the open of a pipe would wait for its writer.
        handle = os.open(text, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:
        raise PathError(f"{named} is no path: {error}") from None
    except OSError as error:
        raise PathError(f"{named} cannot be read: {error.strerror or error}") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise PathError(f"{named} is {_file_kind(mode)}, expected a regular file")
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise PathError(f"{named} cannot be read: {error.strerror or error}") from None
    finally:
        os.close(handle)
    if len(raw) > most_bytes:
        raise PathError(f"{named} is larger than {most_bytes // 2**20} MiB, the limit for this kind of file")
    return raw


def require_regular(path: Path) -> None:
    """Raise PathError if ``path`` exists and is no regular file, such as a pipe."""
    if path.exists() and not path.is_file():
        raise PathError(f"{path} is {_file_kind(path.stat().st_mode)}, expected a regular file")


def _file_kind(mode: int) -> str:
    """Return the word for a kind of file that is not regular: a folder, a pipe, a socket, else a device."""
    words = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return words.get(stat.S_IFMT(mode), "a device")

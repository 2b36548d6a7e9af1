"""Files that a plan names: where their paths lead, what an untrusted plan may reach, and reading them with a bound.

Everything that turns text of a plan into a file goes through :func:`resolve_path`, when the plan is read and again when
the file is used: a link may appear in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from optest.errors import UsageError
from optest.spec import Fault, Reason, TestCase


class PathError(UsageError):
    """A path that is not taken; the message begins with it."""


def resolve_path(base: str | os.PathLike[str], text: str, below: Sequence[str] = ()) -> Path:
    """The absolute path that ``text`` means in the folder ``base``.

    With ``below``, the folders (or files) that an untrusted plan may reach, links are followed to the end, and the path
    has to lie in one of these and be a regular file, a folder, or nothing yet.

    Raises:
        PathError: naming the path and what is wrong with it.
    """
    named = text if text.isprintable() else repr(text)
    if "\0" in text:
        raise PathError(f"{named} is no path, for it holds a NUL")
    path = Path(os.path.join(os.getcwd(), base, text))
    if not below:
        return path
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(each)) for each in below):
        raise PathError(f"--untrusted refuses {named}, which is not below the folder of the plan")
    if os.path.exists(real) and not (real.is_file() or real.is_dir()):
        raise PathError(f"{named} is {_kind(real.stat().st_mode)}, but should be a regular file")
    return real


def path_of(case: TestCase, text: str, folder: str | os.PathLike[str] = "") -> Path:
    """:func:`resolve_path` for what a case states, in its own folder or in ``folder``, which lies in that.

    Raises:
        Fault: BAD_CASE for a path that is not taken.
    """
    try:
        return resolve_path(os.path.join(case.base_dir, folder), text, case.allowed_folders)
    except PathError as error:
        raise Fault(Reason.BAD_CASE, str(error), details={"path": text}) from None


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The bytes of a regular file; a pipe is not waited for, and a device is not read.

    Raises:
        PathError: if it is something else, cannot be read, or is larger.
    """
    text = os.fspath(path)
    named = text if text.isprintable() else repr(text)
    try:
        handle = os.open(text, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:
        raise PathError(f"{named} is no path: {error}") from None
    except OSError as error:
        raise PathError(f"{named} cannot be read: {error.strerror or error}") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise PathError(f"{named} is {_kind(mode)}, but should be a regular file")
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise PathError(f"{named} cannot be read: {error.strerror or error}") from None
    finally:
        os.close(handle)
    if len(raw) > most_bytes:
        raise PathError(f"{named} is larger than {most_bytes // 2**20} MB, which is the most that is read")
    return raw


def require_regular(path: Path) -> None:
    """Refuse a pipe, which would be waited for, and what else is no regular file; one that is not there passes.

    Raises:
        PathError: naming the path.
    """
    if path.exists() and not path.is_file():
        raise PathError(f"{path} is {_kind(path.stat().st_mode)}, but should be a regular file")


def _kind(mode: int) -> str:
    named = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return named.get(stat.S_IFMT(mode), "a device")

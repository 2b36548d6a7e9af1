"""Client of a guard process (:mod:`optest.process.guard_program`): start, requests, end."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from optest.errors import InternalError
from optest.process.channel import ReadEnd
from optest.process.guard_program import pack, read_fields, write_all

if TYPE_CHECKING:
    from optest.process.forks import ForkServer

_PROGRAM = Path(__file__).with_name("guard_program.py")


class CannotStart(Exception):
    """A command that could not be executed: no such file, no permission, no program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Report of a guard about a finished command; ``returncode`` is -N after signal N.

    ``cut`` is True if the deadline or a kill ended it; ``clean`` is False if a process could not be killed.
    """

    returncode: int
    signal: int | None
    cut: bool
    wall_s: float
    strays: int
    clean: bool
    stdout_bytes: int
    stderr_bytes: int
    stdout_tail: bytes
    stderr_tail: bytes


class Guard:
    """One guard process, which runs one command at a time for the process that created it.

    A forked child of that process only closes its pipes. With ``forks`` that server forks the guard, which forks its
    commands; the attribute ``keep_fds`` then holds the descriptor numbers in the guard.
    """

    def __init__(self, keep_fds: Sequence[int] = (), forks: ForkServer | None = None) -> None:
        if not sys.executable:
            raise InternalError("sys.executable is empty, so no guard process can be started for commands")
        self._owner = os.getpid()
        self._closing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[IO[bytes], IO[bytes]]
        forked = None if forks is None else forks.start_guard(keep_fds)
        if forked is not None:
            self.pid, to, from_, self.keep_fds = forked
            self._pipes = os.fdopen(to, "wb", buffering=0), os.fdopen(from_, "rb", buffering=0)
        else:
            self.keep_fds = tuple(keep_fds)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=self.keep_fds,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self.pid, self._pipes = self._process.pid, (self._process.stdin, self._process.stdout)
        self._to, self._from = (pipe.fileno() for pipe in self._pipes)
        _GUARDS.add(self)

    @property
    def is_ours(self) -> bool:
        """False in a forked copy of the process that started this guard."""
        return self._owner == os.getpid()

    @property
    def is_alive(self) -> bool:
        """True while the guard runs; always False for a guard that a fork server started."""
        return self._process is not None and self._process.poll() is None

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str],
        timeout_s: float | None = None,
        tail_bytes: int = 0,
        log: str | os.PathLike[str] = "",
    ) -> int:
        """Start ``command`` under the guard and return its process id.

        With ``log`` standard output and error are written to that file; otherwise :meth:`end` returns their tails.

        Raises:
            CannotStart: if a file is missing or cannot be executed; the message names it.
        """
        fields = [
            b"" if timeout_s is None else repr(float(timeout_s)).encode(),
            str(tail_bytes).encode(),
            os.fsencode(log),
            os.fsencode(cwd),
            " ".join(map(str, self.keep_fds)).encode(),
            str(len(command)).encode(),
            *map(os.fsencode, command),
            *(os.fsencode(f"{name}={value}") for name, value in env.items()),
        ]
        if any(b"\0" in field for field in fields):
            raise CannotStart(f"command {command[0]!r} has a NUL character in its arguments or environment")
        write_all(self._to, pack(fields))
        reply = self._reply()
        if reply[0] == b"failed":
            raise CannotStart(_describe_failure(command[0], int(reply[1]), reply[2].decode(), os.fspath(cwd)))
        return int(reply[1])

    def end(self, timeout_s: float | None = None) -> Ended:
        """Wait for the end of the command and return the guard's report.

        Raises:
            TimeoutError: if it did not end in ``timeout_s``.
            InternalError: if the guard died.
        """
        if timeout_s is not None and not ReadEnd(self._from).has_news(timeout_s):
            raise TimeoutError(f"the command did not end in {timeout_s} s")
        reply = self._reply()
        status = os.waitstatus_to_exitcode(int(reply[1]))
        return Ended(
            returncode=status,
            signal=-status if status < 0 else None,
            cut=bool(reply[2]),
            wall_s=float(reply[3]),
            strays=int(reply[4]),
            clean=bool(reply[5]),
            stdout_bytes=int(reply[6]),
            stderr_bytes=int(reply[7]),
            stdout_tail=reply[8],
            stderr_tail=reply[9],
        )

    def kill(self) -> None:
        """Request the end of the command with all its descendants; :meth:`end` waits for it.

        Do nothing if the guard is dead or was closed.
        """
        # Another thread may close it at any time; then the number of the pipe may already be that of another file.
        with self._closing, suppress(BrokenPipeError):
            if not self._pipes[0].closed:
                write_all(self._to, b"k")

    def close(self) -> None:
        """End the guard and all its descendants; may be repeated, and only closes the pipes in a forked copy."""
        _GUARDS.discard(self)
        with self._closing:
            self.close_pipes()
        if self.is_ours and self._process is not None:
            self._process.wait()

    def close_pipes(self) -> None:
        """Close this process's ends of the pipes."""
        for pipe in self._pipes:
            pipe.close()

    def _reply(self) -> list[bytes]:
        reply = read_fields(self._from)
        if reply is None:
            raise InternalError(f"the guard process {self.pid} of a command died; was it killed from outside?")
        return reply


_GUARDS: weakref.WeakSet[Guard] = weakref.WeakSet()


def _let_go_of_all() -> None:
    """Close the pipes of all guards in a forked child."""
    # A guard ends when its owner's end of the pipe closes, so a forked child must not keep it open.
    for guard in list(_GUARDS):
        # Another thread may have held the lock when this process was forked.
        guard._closing = threading.Lock()
        guard.close_pipes()
        if guard._process is not None:
            # The guard is no child of this process: `Popen` must neither wait for it nor warn.
            guard._process.returncode = 0
    _GUARDS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_of_all)


def _describe_failure(program: str, number: int, stage: str, cwd: str) -> str:
    """Return the message for a command that failed with errno ``number`` at ``stage`` (``cwd`` or ``exec``)."""
    if stage == "cwd":
        return f"working directory {cwd!r} cannot be entered: {os.strerror(number)}"
    path = Path(cwd, program)
    if number == errno.ENOEXEC:
        return f"command {program!r} cannot be executed: it is neither a binary nor a script with a '#!' line"
    if number == errno.ENOENT:
        if "/" in program and path.is_file():
            return f"command {program!r} cannot be executed: the interpreter in its first line does not exist"
        where = f" in {cwd!r}" if "/" in program else " on PATH"
        return f"command {program!r} does not exist{where}"
    if "/" in program and path.is_file() and not os.access(path, os.X_OK):
        return f"command {program!r} is not executable; chmod +x it, or put its interpreter in front"
    return f"command {program!r} cannot be executed: {os.strerror(number)}"

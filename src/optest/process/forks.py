"""Forks of this process that run a function and return bytes over a pipe, or exchange messages."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from optest.process import guard_program
from optest.process.channel import Channel, ReadEnd
from optest.process.guard_program import write_all

_LOOK_S = 0.005
# The end of the fork closes the pipe at once, unless a child of the fork holds it.
_LOOK_AT_SERVER_S = 0.05
_READ_BYTES = 1 << 20


class Forked(NamedTuple):
    """A running fork and the read end of its pipe."""

    pid: int
    read_fd: int

    def read(self, timeout_s: float | None = None) -> bytes:
        """Return all output of the fork until it ends, even if a child of it keeps the pipe open.

        Raises:
            TimeoutError: if it did not end in ``timeout_s``; the fork keeps running until :meth:`end`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        parts: list[bytes] = []
        pipe = ReadEnd(self.read_fd)
        while True:
            over = _is_over(self.pid)
            if pipe.has_news(0.0 if over else _LOOK_S):
                parts.append(os.read(self.read_fd, _READ_BYTES))
                if not parts[-1]:
                    return b"".join(parts)
            elif over:
                return b"".join(parts)
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the fork did not end in {timeout_s:g} s")

    def end(self) -> tuple[int, int | None]:
        """Kill the fork if it still runs, reap it, close the pipe; return ``(returncode, signal)`` as in ``Finished``.

        Its descendants are not killed: they become children of this process if it called ``adopt_orphans``, and
        ``end_children`` kills them.
        """
        ended = _end(self.pid)
        os.close(self.read_fd)
        return ended


class ForkedServer(NamedTuple):
    """A fork that replies to messages, and the channel to it."""

    pid: int
    channel: Channel

    def ask(self, message: bytes) -> bytes | None:
        """Send ``message`` and return the reply; None if the fork ended without one or closed its end of the channel.

        Raises:
            ValueError: if the reply is no message: foreign code wrote into the pipe.
        """
        with suppress(BrokenPipeError):
            self.channel.send(message)
        while True:
            over = self.is_over()
            try:
                return self.channel.receive(0.0 if over else _LOOK_AT_SERVER_S)
            except TimeoutError:
                if over:
                    return None

    def is_over(self) -> bool:
        return _is_over(self.pid)

    def end(self) -> tuple[int, int | None]:
        """Close the channel, kill the fork if it still runs, and reap it; see :meth:`Forked.end`."""
        self.channel.close()
        return _end(self.pid)


class ForkServer:
    """A fork of this process that forks further children, each under a guard.

    Children share the modules that are imported when it is created. Create it while this process has one thread and no
    open device: neither survives a fork. It calls ``prepare`` once, and ``run`` in each child with its arguments;
    ``environment`` is that of the children.
    """

    def __init__(
        self, prepare: Callable[[], None], run: Callable[[list[str]], None], environment: Mapping[str, str]
    ) -> None:
        self.environment = environment
        self._socket, theirs = socket.socketpair()
        self._requesting = threading.Lock()

        def serve() -> None:
            self._socket.close()
            prepare()
            _serve_guards(theirs, run)

        self._owner, self._pid = os.getpid(), _fork(serve)
        theirs.close()

    def start_guard(self, keep_fds: Sequence[int]) -> tuple[int, int, int, tuple[int, ...]] | None:
        """Fork a guard; return its pid, the pipes to and from it, and the numbers of ``keep_fds`` in it.

        Return None if the server is gone.
        """
        (their_in, to), (from_, their_out) = os.pipe(), os.pipe()
        try:
            with self._requesting, suppress(OSError):
                socket.send_fds(self._socket, [b"guard"], [their_in, their_out, *keep_fds])
                if reply := self._socket.recv(1024):
                    pid, *numbers = map(int, reply.split())
                    return pid, to, from_, tuple(numbers)
        finally:
            os.close(their_in)
            os.close(their_out)
        os.close(to)
        os.close(from_)
        return None

    def close(self) -> None:
        """End the server, but not the children that it forked; may be repeated, and does nothing in a forked copy."""
        if self._owner == os.getpid() and self._socket.fileno() >= 0:
            _end(self._pid)
        self._socket.close()


def _serve_guards(requests: socket.socket, run: Callable[[list[str]], None]) -> None:
    """Fork a guard for each request until the socket is closed; reply with its pid and descriptor numbers."""

    def reap(*_: object) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    os.setsid()
    # Otherwise ended guards remain as zombies.
    signal.signal(signal.SIGCHLD, reap)
    while (received := socket.recv_fds(requests, 64, 16))[0]:
        fds = received[1]
        pid = os.fork()
        if pid == 0:
            requests.close()
            for number in (0, 1):
                os.dup2(fds[number], number)
                os.close(fds[number])
            guard_program.main(lambda argv: _run_and_exit(lambda: run([argument.decode() for argument in argv])))
            os._exit(0)
        for fd in fds:
            os.close(fd)
        requests.send(" ".join(map(str, (pid, *fds[2:]))).encode())


def _is_over(pid: int) -> bool:
    """Return whether a child has ended, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(pid: int) -> tuple[int, int | None]:
    """Kill a child if it still runs, and reap it; return its exit code (-N after signal N) and the signal or None."""
    if not _is_over(pid):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, (-status if status < 0 else None)


def fork_and_run(function: Callable[[], bytes]) -> Forked:
    """Run ``function`` in a fork of this process, which writes the returned bytes to a pipe and exits with 0.

    If it raises, the fork prints the traceback to standard error and exits with 1. It runs no ``atexit`` functions.
    """
    read_fd, write_fd = os.pipe()
    pid = _fork(lambda: write_all(write_fd, function()))
    os.close(write_fd)
    return Forked(pid, read_fd)


def fork_server(serve: Callable[[Channel], None]) -> ForkedServer:
    """Run ``serve`` in a fork of this process, with a channel to this process; return the fork and the other end."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()

    def run() -> None:
        os.close(our_in)
        os.close(our_out)
        serve(Channel(their_in, their_out))

    pid = _fork(run)
    os.close(their_in)
    os.close(their_out)
    return ForkedServer(pid, Channel(our_in, our_out))


def _fork(run: Callable[[], None]) -> int:
    """Fork, run ``run`` in the child and exit there; return the child's pid."""
    # Otherwise the child would print buffered text a second time.
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run_and_exit(run)
    return pid


def _run_and_exit(run: Callable[[], None]) -> None:
    """Run ``run`` and end this process, with exit status 1 and a traceback if it raised, else 0."""
    status = 1
    try:
        run()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

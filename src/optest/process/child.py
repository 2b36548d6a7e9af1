"""Worker processes of optest: started under a guard, connected by private pipes, ended with all descendants."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from optest.errors import InternalError
from optest.process.channel import Channel
from optest.process.forks import ForkServer
from optest.process.guard import Ended, Guard

# A Python child registers it with `faulthandler.register`, which `Child.write_traceback` needs.
TRACEBACK_SIGNAL = signal.SIGUSR1

# Longest wait for a traceback: the child may get no processor time, or block the signal.
_TRACEBACK_S = 10.0

_LOOK_S = 0.02
# The traceback is complete if the log is unchanged for so many checks.
_SAME_LOOKS = 5

_WITHOUT_ITS_GUARD = Ended(
    returncode=-signal.SIGKILL,
    signal=signal.SIGKILL,
    cut=True,
    wall_s=0.0,
    strays=0,
    clean=False,
    stdout_bytes=0,
    stderr_bytes=0,
    stdout_tail=b"",
    stderr_tail=b"",
)


class Child:
    """A running child process. Its standard output and error are written to a file of at most a megabyte."""

    def __init__(self, guard: Guard, pid: int, channel: Channel, stderr_path: Path) -> None:
        self.pid = pid
        self.stderr_path = stderr_path
        self._guard = guard
        self._channel = channel
        self._ended: Ended | None = None
        self._ending = threading.Lock()

    def send(self, *messages: bytes) -> None:
        """Send messages, which the child reads one by one.

        Raises:
            BrokenPipeError: if the child is gone.
        """
        self._channel.send(*messages)

    def holds_bytes(self) -> int:
        """Return how many bytes can be sent before the child reads."""
        return self._channel.holds_bytes()

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """Return the child's next message, also one that it sent before its end; None if there are no more.

        Raises:
            TimeoutError: if no message came in ``timeout_s``.
        """
        return self._channel.receive(timeout_s)

    def wait(self, timeout_s: float | None = None) -> tuple[int, int | None]:
        """Wait for the end of the child and its descendants; return ``(returncode, signal)`` as in ``Finished``.

        Raises:
            TimeoutError: if it did not end in ``timeout_s``.
        """
        # The guard replies once: a second thread would wait for ever.
        with self._ending:
            if self._ended is None:
                try:
                    self._ended = self._guard.end(timeout_s)
                except TimeoutError:
                    raise
                except InternalError:
                    # The guard was killed, so it does not end the child.
                    with suppress(ProcessLookupError):
                        os.kill(self.pid, signal.SIGKILL)
                    self._ended = _WITHOUT_ITS_GUARD
                except BaseException:
                    # Ctrl-C: half of the guard's only reply may be lost.
                    self._ended = _WITHOUT_ITS_GUARD
                    self._guard.close()
                    raise
                self._guard.close()
            return self._ended.returncode, self._ended.signal

    def write_traceback(self) -> None:
        """Make the child write its Python traceback to its log, even while it executes C code, and wait for that."""
        if self._ended is not None:
            return
        before = now = self.stderr_tail()
        same = 0
        with suppress(ProcessLookupError):
            os.kill(self.pid, TRACEBACK_SIGNAL)
            ends = time.monotonic() + _TRACEBACK_S
            while same < _SAME_LOOKS and time.monotonic() < ends:
                time.sleep(_LOOK_S)
                last, now = now, self.stderr_tail()
                # Count only after the first new output.
                same = same + 1 if now == last != before else 0

    def kill(self) -> tuple[int, int | None]:
        """Kill the child with all descendants, if it still runs, and return as :meth:`wait`."""
        if self._ended is None:
            self._guard.kill()
        return self.wait()

    def finish(self, timeout_s: float) -> None:
        """Close the pipes, so that an idle child ends by itself; kill it if it takes longer than ``timeout_s``."""
        self._channel.close()
        with suppress(TimeoutError):
            self.wait(timeout_s)
        self.kill()

    @property
    def strays(self) -> int:
        """Number of processes that the child left running; 0 before its end."""
        return self._ended.strays if self._ended else 0

    def stderr_tail(self, tail_bytes: int = 8192) -> str:
        """Return the last ``tail_bytes`` of the child's standard output and error; complete after :meth:`wait`."""
        if not self.stderr_path.exists():
            return ""
        with self.stderr_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - tail_bytes))
            return file.read().decode(errors="replace")

    def close(self) -> None:
        """Kill the child if it still runs, and close the pipes."""
        self.kill()
        self._channel.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def module_command(name: str, *arguments: str) -> list[str]:
    """Return a command that runs a module as ``python -m`` does, but searches the working directory last."""
    # Foreign code may have left a json.py in the working directory.
    return [sys.executable, "-c", _RUNS_MODULE, name, *arguments]


_RUNS_MODULE = """\
import sys
sys.path.sort(key="".__eq__)
from runpy import run_module
run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def start_child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stderr_path: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    forks: ForkServer | None = None,
) -> Child:
    """Start ``argv`` with two more arguments: the descriptors that it reads messages from and writes them to.

    With ``forks`` a fork of that server runs with these arguments; ``env`` has to be the environment of the server.

    Raises:
        CannotStart: if the program does not exist or cannot be executed.
    """
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    channel = Channel(our_in, our_out)
    guard: Guard | None = None
    try:
        guard = Guard(keep_fds=(their_in, their_out), forks=forks)
        pid = guard.start(
            [*argv, *map(str, guard.keep_fds)],
            cwd=os.getcwd() if cwd is None else cwd,
            env=env,
            log=os.path.abspath(stderr_path),
        )
    except BaseException:
        if guard is not None:
            guard.close()
        channel.close()
        raise
    finally:
        os.close(their_in)
        os.close(their_out)
    return Child(guard, pid, channel, Path(stderr_path))

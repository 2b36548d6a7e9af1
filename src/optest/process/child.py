"""Our own child processes: started under a guard, spoken to over private pipes, ended with everything they started."""

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

TRACEBACK_SIGNAL = signal.SIGUSR1
"""A Python child hands this to ``faulthandler.register`` so that :meth:`Child.write_traceback` works."""

_TRACEBACK_S = 10.0
"""How long a child that does not write its traceback is waited for: it may have no processor, or block the signal."""

_LOOK_S = 0.02
_SAME_LOOKS = 5
"""After as many looks at the same words nothing more comes."""

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
    """A running child. Its standard output and error go to a file that never outgrows a megabyte."""

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
        """How much can be sent before the child reads."""
        return self._channel.holds_bytes()

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """Return the child's next message, None when it is gone; what it sent before is still delivered.

        Raises:
            TimeoutError: if none came in ``timeout_s``.
        """
        return self._channel.receive(timeout_s)

    def wait(self, timeout_s: float | None = None) -> tuple[int, int | None]:
        """Wait for the end; returns ``(returncode, signal)``, as in ``Finished``. Nothing below the child is left then.

        Raises:
            TimeoutError: if it did not end in ``timeout_s``.
        """
        with self._ending:  # the guard answers once: a second thread that asked it would wait for ever
            if self._ended is None:
                try:
                    self._ended = self._guard.end(timeout_s)
                except TimeoutError:
                    raise
                except InternalError:  # the guard was killed, so nobody else ends the child
                    with suppress(ProcessLookupError):
                        os.kill(self.pid, signal.SIGKILL)
                    self._ended = _WITHOUT_ITS_GUARD
                except BaseException:  # Ctrl-C: half of what the guard said may be lost, and it says it once
                    self._ended = _WITHOUT_ITS_GUARD
                    self._guard.close()
                    raise
                self._guard.close()
            return self._ended.returncode, self._ended.signal

    def write_traceback(self) -> None:
        """Have the child write where it stands to its log, also when it is stuck in C, and wait until that is done."""
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
                same = same + 1 if now == last != before else 0

    def kill(self) -> tuple[int, int | None]:
        """End the child with every descendant and return as :meth:`wait`; harmless when it is over already."""
        if self._ended is None:
            self._guard.kill()
        return self.wait()

    def finish(self, timeout_s: float) -> None:
        """Let a child that has nothing to do end by itself, as it does when its pipes are closed; kill it if it takes
        longer than ``timeout_s``."""
        self._channel.close()
        with suppress(TimeoutError):
            self.wait(timeout_s)
        self.kill()

    @property
    def strays(self) -> int:
        """How many processes the child left behind, known after its end."""
        return self._ended.strays if self._ended else 0

    def stderr_tail(self, tail_bytes: int = 8192) -> str:
        """The end of what the child wrote to standard output and error; complete after :meth:`wait`."""
        if not self.stderr_path.exists():
            return ""
        with self.stderr_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - tail_bytes))
            return file.read().decode(errors="replace")

    def close(self) -> None:
        """End the child if it still runs, and give up the pipes."""
        self.kill()
        self._channel.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def module_command(name: str, *arguments: str) -> list[str]:
    """Return what runs a module as ``python -m`` does, except that the working directory, where foreign code may leave
    a ``json.py``, is searched last."""
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
    """Start ``argv`` with two more arguments: the numbers of the pipes it reads from and writes to (a Channel).

    With ``forks`` a fork of that server runs these arguments; ``env`` has to be the environment of the server.

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

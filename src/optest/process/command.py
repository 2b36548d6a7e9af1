"""Running one foreign command to its end, with bounded memory, a deadline, and nothing left alive."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optest.process.guard import CannotStart, Guard

_IDLE_GUARDS = 4
_LATE_S = 15.0
"""How long a guard may take beyond the deadline to kill what it watches, before it is given up itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended; after a signal ``returncode`` is its negative, after a deadline ``signal`` is SIGKILL.

    ``strays`` counts the processes beside the command itself that were still alive and had to be killed. The tails
    are the last ``tail_bytes`` of each stream, ``stdout_bytes`` and ``stderr_bytes`` all that was written.
    """

    returncode: int
    signal: int | None
    timed_out: bool
    stdout_tail: str
    stderr_tail: str
    wall_s: float
    strays: int
    stdout_bytes: int = 0
    stderr_bytes: int = 0


def run(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    timeout_s: float | None,
    tail_bytes: int = 8192,
) -> Finished:
    """Run ``command`` without a shell in a session of its own, with ``env`` as its whole environment.

    Its output is drained and all but the tails thrown away. When it ends, or ``timeout_s`` is over, every process
    that descends from it is killed, whatever it did to get away. Calls may run at the same time in several threads.

    Raises:
        CannotStart: if the command or the directory does not exist or cannot be executed.
    """
    guard = _take_guard()
    try:
        guard.start(command, cwd=cwd, env=env, timeout_s=timeout_s, tail_bytes=tail_bytes)
        ended = guard.end(None if timeout_s is None else timeout_s + _LATE_S)
    except CannotStart:
        _give_back(guard)
        raise
    except BaseException:  # also Ctrl-C: closing the guard ends the command with all below it
        guard.close()
        raise
    if ended.clean:
        _give_back(guard)
    else:
        guard.close()
    return Finished(
        returncode=ended.returncode,
        signal=ended.signal,
        timed_out=ended.cut,
        stdout_tail=ended.stdout_tail.decode(errors="replace"),
        stderr_tail=ended.stderr_tail.decode(errors="replace"),
        wall_s=ended.wall_s,
        strays=ended.strays,
        stdout_bytes=ended.stdout_bytes,
        stderr_bytes=ended.stderr_bytes,
    )


_idle: list[Guard] = []


def _take_guard() -> Guard:
    """An idle guard, else a new one; starting one takes 10 ms."""
    while (guard := _popped()) is not None:
        if guard.is_ours and guard.is_alive:
            return guard
        guard.close()
    return Guard()


def _popped() -> Guard | None:
    """Another thread may take the last one at any time."""
    try:
        return _idle.pop()
    except IndexError:
        return None


def _give_back(guard: Guard) -> None:
    if len(_idle) < _IDLE_GUARDS:
        _idle.append(guard)
    else:
        guard.close()


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()

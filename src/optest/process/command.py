"""Execution of one foreign command to its end, with bounded memory, a time limit, and no surviving descendants."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optest.process.guard import CannotStart, Guard

_IDLE_GUARDS = 4
# Time for the guard to kill all processes after the deadline, before the guard itself is closed.
_LATE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Result of a command; after a signal ``returncode`` is its negative, after a deadline ``signal`` is SIGKILL.

    ``strays`` counts the descendants that were still alive at its end and were killed. The tails are the last
    ``tail_bytes`` of each stream; ``stdout_bytes`` and ``stderr_bytes`` are the numbers of bytes written.
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
    """Run ``command`` without a shell in a new session, with ``env`` as its complete environment.

    Only the tails of its output are kept. When it ends, or after ``timeout_s``, all its descendants are killed, also
    those in other sessions. Several threads may call this at the same time.

    Raises:
        CannotStart: if the command or the directory does not exist or cannot be executed.
    """
    guard = _take_guard()
    try:
        guard.start(command, cwd=cwd, env=env, timeout_s=timeout_s, tail_bytes=tail_bytes)
        ended = guard.end(None if timeout_s is None else timeout_s + _LATE_S)
    except CannotStart:
        _release_guard(guard)
        raise
    except BaseException:
        # Also Ctrl-C: closing the guard ends the command with all its descendants.
        guard.close()
        raise
    if ended.clean:
        _release_guard(guard)
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
    """Return an idle guard of this process, else start a new one."""
    # A start takes 10 ms.
    while _idle:
        try:
            guard = _idle.pop()
        except IndexError:
            # another thread took the last one
            break
        if guard.is_ours and guard.is_alive:
            return guard
        guard.close()
    return Guard()


def _release_guard(guard: Guard) -> None:
    """Keep the guard for the next command, or close it if four are idle."""
    if len(_idle) < _IDLE_GUARDS:
        _idle.append(guard)
    else:
        guard.close()


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()

"""Process-wide state that foreign code may change: working directory, signals, timers, streams, C's environment.

It is read before and after foreign calls; differences are described and restored for the next calls.
"""

from __future__ import annotations

# The C module of `signal`: the enumerations of `signal` cost more than all the rest of a snapshot.
import _signal  # type: ignore[import-not-found]
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

_STANDARD = {0: "standard input", 1: "standard output", 2: "standard error"}
# Without the signals of crashes: runtimes of libraries handle them for good reasons at their first use.
_WATCHED_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)

_ACTIONS = {0: "its default action", 1: "it is ignored"}
_HANDLED = "another handler"
_ACTION_BYTES = 256
_HANDLER_BYTES = ctypes.sizeof(ctypes.c_void_p)


def _count_entries(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        # not Linux
        return 0


def count_resources() -> dict[str, int]:
    """Return the numbers of open files (with sockets and pipes) and threads; 0 if the system has no ``/proc``."""
    return {"open files": _count_entries("/proc/self/fd"), "threads": _count_entries("/proc/self/task")}


@dataclass(frozen=True, slots=True)
class Change:
    """Description of a change; ``is_harmful`` if it affects other code of the process, else it is only noted."""

    said: str
    is_harmful: bool = True


# State that is read in a few microseconds, so that it can be checked after every case.
QUICK = ("folder", "blocked", "timer", "handlers", "standard", "streams")

# State checked from time to time; without the environment, since frameworks set variables.
THOROUGH = ("actions of frameworks",)

# State checked around a C library, which does not reach Python's handlers and streams.
OF_C = ("folder", "blocked", "actions", "timer", "environment", "standard")


class ProcessState:
    """Snapshot of the named parts of the process's state, to compare and restore later; empty except on Linux."""

    __slots__ = ("_held", "_parts")

    def __init__(self, names: Sequence[str] = OF_C) -> None:
        self._parts = [_PARTS[name] for name in names if name in _PARTS]
        self.renew()

    def renew(self) -> None:
        """Replace the snapshot by the present state."""
        self._held = [read() for read, _ in self._parts]

    def changes(self) -> list[Change]:
        """Describe all differences from the snapshot, and restore all that can be restored."""
        changes: list[Change] = []
        for (read, revert), held in zip(self._parts, self._held, strict=True):
            now = read()
            if now != held:
                changes += revert(held, now)
        return changes


# For each part, a function that reads it, and one that reverts and yields the changes between two readings.


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _revert_folder(before: str, after: str) -> Iterator[Change]:
    yield Change(f"the working directory: {before} became {after}")
    with suppress(OSError):
        os.chdir(before)


def _revert_blocked(before: set[int], after: set[int]) -> Iterator[Change]:
    for verb, numbers in (("blocks", after - before), ("no longer blocks", before - after)):
        names = [signal.Signals(number).name for number in sorted(numbers) if number in set(signal.Signals)]
        if numbers:
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            yield Change(f"the thread's signal mask: it {verb} {shown}")
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _actions() -> dict[int, bytes]:
    """Return the C library's ``struct sigaction`` of each watched signal; {} if there is no ``sigaction``."""
    # Python knows only its own handlers.
    sigaction = getattr(_process(), "sigaction", None)
    if sigaction is None:
        return {}
    actions = {}
    for number in map(int, _WATCHED_SIGNALS):
        action = (ctypes.c_char * _ACTION_BYTES)()
        sigaction(number, None, action)
        actions[number] = action.raw
    return actions


def _revert_actions(
    before: Mapping[int, bytes], after: Mapping[int, bytes], *, accepts_handlers: bool = False
) -> Iterator[Change]:
    """Revert and yield changed signal actions; with ``accepts_handlers`` new handlers are harmless."""
    for number, action in before.items():
        # The handler's address is the first field on every system. Bytes that C does not set are undefined, so the rest
        # is not compared.
        was, now = (int.from_bytes(x[:_HANDLER_BYTES], sys.byteorder) for x in (action, after[number]))
        if was != now:
            said = f"what happens at {signal.Signals(number).name}: {_ACTIONS.get(now, _HANDLED)}"
            yield Change(said, is_harmful=not accepts_handlers or now in _ACTIONS)
            _process().sigaction(number, action, None)


def _revert_handlers(before: list[Any], after: list[Any]) -> Iterator[Change]:
    for number, was, now in zip(_WATCHED_SIGNALS, before, after, strict=True):
        if was == now:
            continue
        yield Change(f"what happens at {number.name}: {_ACTIONS.get(now, _HANDLED)}")
        # None: C code installed the handler; `actions` restores it.
        if was is not None:
            # Only the main thread may set handlers.
            with suppress(ValueError):
                signal.signal(number, was)


_STREAMS = ("stdin", "stdout", "stderr")


def _revert_streams(before: list[bool], after: list[bool]) -> Iterator[Change]:
    """Yield the streams that were closed, and open them again if their descriptors are open."""
    for number, (name, was, now) in enumerate(zip(_STREAMS, before, after, strict=True)):
        if was and not now:
            yield Change(f"sys.{name}: it was closed")
            if _is_open(number):
                mode = "w" if number else "r"
                setattr(sys, name, open(number, mode, closefd=False, errors="backslashreplace"))  # noqa: SIM115


_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


def _revert_timers(before: list[bool], after: list[bool]) -> Iterator[Change]:
    """Stop the timers that are new; a timer that was stopped is not restored."""
    new = [timer for timer, was, now in zip(_TIMERS, before, after, strict=True) if now and not was]
    yield Change("a timer or alarm is running" if new else "a timer or alarm of the process was stopped")
    for timer in new:
        signal.setitimer(timer, 0)


def _environment() -> tuple[bytes, ...]:
    """Return the entries of C's ``environ``."""
    # Python holds a copy of the environment at its start.
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(_process(), "environ")
    entries: list[bytes] = []
    while bool(environ) and (entry := environ[len(entries)]) is not None:
        entries.append(entry)
    return tuple(entries)


def _revert_environment(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> Iterator[Change]:
    """Restore changed and removed variables; new ones are harmless, and stay."""
    # Runtimes set new variables for themselves; existing ones may be read by other code.
    was, now = (
        {name: value for name, _, value in (os.fsdecode(entry).partition("=") for entry in entries)}
        for entries in (before, after)
    )
    for name in sorted(was.keys() | now.keys()):
        if name not in was:
            yield Change(f"the environment: {name} is new", is_harmful=False)
        elif now.get(name) != was[name]:
            became = f"={was[name]} became {name}={now[name]}" if name in now else " was removed"
            yield Change(f"the environment: {name}{became}")
            _process().setenv(os.fsencode(name), os.fsencode(was[name]), 1)


def _is_open(descriptor: int) -> bool:
    try:
        os.get_inheritable(descriptor)
    except OSError:
        return False
    return True


def _revert_standard(before: frozenset[int], after: frozenset[int]) -> Iterator[Change]:
    """Open the null device as each standard descriptor that was closed."""
    for descriptor in sorted(before - after):
        yield Change(f"{_STANDARD[descriptor]}: it was closed")
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)


@cache
def _process() -> Any:
    return ctypes.CDLL(None)


_PARTS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Iterator[Change]]]] = {}
if sys.platform == "linux":
    _PARTS |= {
        "folder": (_folder, _revert_folder),
        "blocked": (lambda: _signal.pthread_sigmask(signal.SIG_BLOCK, ()), _revert_blocked),
        "actions": (_actions, _revert_actions),
        # LLVM, which run-time compilers use, handles the signals that end a process.
        "actions of frameworks": (_actions, partial(_revert_actions, accepts_handlers=True)),
        "handlers": (lambda: [*map(_signal.getsignal, _WATCHED_SIGNALS)], _revert_handlers),
        "streams": (
            lambda: [x is not None and not x.closed for x in (sys.stdin, sys.stdout, sys.stderr)],
            _revert_streams,
        ),
        "timer": (lambda: [_signal.getitimer(timer)[0] > 0 for timer in _TIMERS], _revert_timers),
        "environment": (_environment, _revert_environment),
        "standard": (lambda: frozenset(filter(_is_open, _STANDARD)), _revert_standard),
    }

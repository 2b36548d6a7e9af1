"""Process-wide state that foreign code may change: working directory, signals, locale, environment and others.

It is read before and after foreign calls; differences are described and restored for the next calls.
"""

from __future__ import annotations

# The C module of `signal`: the enumerations of `signal` cost more than all the rest of a snapshot.
import _signal  # type: ignore[import-not-found]
import ctypes
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
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
# LC_ALL of glibc and musl.
_ALL_LOCALES = 6


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
QUICK = ("folder", "mask", "blocked", "timer", "warnings", "handlers", "standard", "streams", "locale")

# State checked around Python code; without environment and processors, since frameworks set variables and bind threads.
OF_PYTHON = (*QUICK, "actions of frameworks")

# State checked around a C library, which does not reach Python's handlers and streams.
OF_C = ("folder", "mask", "blocked", "actions", "timer", "locale", "environment", "standard", "processors")


class ProcessState:
    """Snapshot of the named parts of the process's state, to compare and restore later; empty except on Linux."""

    __slots__ = ("_held", "_parts")

    def __init__(self, names: Sequence[str] = OF_C) -> None:
        self._parts = [_PARTS[name] for name in names if name in _PARTS]
        self._held = [part.read() for part in self._parts]

    def renew(self) -> None:
        """Replace the snapshot by the present state."""
        self._held = [part.read() for part in self._parts]

    def changes(self) -> list[Change]:
        """Describe all differences from the snapshot, and restore all that can be restored."""
        changes: list[Change] = []
        for part, held in zip(self._parts, self._held, strict=True):
            now = part.read()
            if now != held:
                changes += part.changes(held, now)
                part.put_back(held, now)
        return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One part of the state: its reader, the description of a difference, and its restoration."""

    read: Callable[[], Any]
    changes: Callable[[Any, Any], Iterable[Change]]
    put_back: Callable[[Any, Any], object]


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _enter(before: str, _: str) -> None:
    with suppress(OSError):
        os.chdir(before)


def _mask() -> int:
    # It can only be read by setting it; no other thread creates files meanwhile.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _changes_of_blocked(before: set[int], after: set[int]) -> Iterator[Change]:
    for verb, numbers in (("blocks", after - before), ("no longer blocks", before - after)):
        if numbers:
            yield Change(f"the thread's signal mask: it {verb} {_signal_names(numbers)}")


def _signal_names(numbers: set[int]) -> str:
    """Return the names of up to four signals, and how many more there are."""
    names = [signal.Signals(number).name for number in sorted(numbers) if number in set(signal.Signals)]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


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


def _handlers(actions: Mapping[int, bytes]) -> dict[int, int]:
    """Return the handler's address in each ``struct sigaction``."""
    # It is the first field on every system. Bytes that C does not set are undefined, so the rest is not compared.
    return {number: int.from_bytes(action[:_HANDLER_BYTES], sys.byteorder) for number, action in actions.items()}


def _changes_of_actions(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> Iterator[Change]:
    was = _handlers(before)
    for number, handler in _handlers(after).items():
        if handler != was[number]:
            yield Change(f"what happens at {signal.Signals(number).name}: {_ACTIONS.get(handler, _HANDLED)}")


def _changes_by_frameworks(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> Iterator[Change]:
    """Yield changes of signal actions as :func:`_changes_of_actions`, but new handlers as harmless."""
    # LLVM, which run-time compilers use, handles the signals that end a process.
    for change in _changes_of_actions(before, after):
        yield replace(change, is_harmful=not change.said.endswith(_HANDLED))


def _set_actions(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> None:
    was, now = _handlers(before), _handlers(after)
    for number, action in before.items():
        if was[number] != now[number]:
            _process().sigaction(number, action, None)


def _changes_of_handlers(before: list[Any], after: list[Any]) -> Iterator[Change]:
    for number, was, now in zip(_WATCHED_SIGNALS, before, after, strict=True):
        if was != now:
            yield Change(f"what happens at {number.name}: {_ACTIONS.get(now, _HANDLED)}")


def _set_handlers(before: list[Any], after: list[Any]) -> None:
    for number, was, now in zip(_WATCHED_SIGNALS, before, after, strict=True):
        # None: C code installed the handler; `actions` restores it.
        if was != now and was is not None:
            # Only the main thread may set handlers.
            with suppress(ValueError):
                signal.signal(number, was)


_STREAMS = ("stdin", "stdout", "stderr")


def _changes_of_streams(before: list[bool], after: list[bool]) -> Iterator[Change]:
    for name, was, now in zip(_STREAMS, before, after, strict=True):
        if was and not now:
            yield Change(f"sys.{name}: it was closed")


def _open_streams_again(before: list[bool], after: list[bool]) -> None:
    for number, (name, was, now) in enumerate(zip(_STREAMS, before, after, strict=True)):
        if was and not now and _is_open(number):
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, closefd=False, errors="backslashreplace"))  # noqa: SIM115


_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


def _changes_of_timers(before: list[bool], after: list[bool]) -> Iterator[Change]:
    is_new = any(now and not was for was, now in zip(before, after, strict=True))
    yield Change("a timer or alarm is running" if is_new else "a timer or alarm of the process was stopped")


def _stop_timers(before: list[bool], after: list[bool]) -> None:
    for timer, was, now in zip(_TIMERS, before, after, strict=True):
        if now and not was:
            signal.setitimer(timer, 0)


def _changes_of_warnings(before: list[Any], after: list[Any]) -> Iterator[Change]:
    kinds = dict.fromkeys(entry[2].__name__ for entry in after if entry not in before)
    change = f"{', '.join(kinds)} raises an exception" if kinds else "filters that raise exceptions were removed"
    yield Change(f"the warning filters: {change}")


def _put_warnings(before: list[Any], after: list[Any]) -> None:
    for entry in after:
        if entry not in before:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]
    for entry in reversed(before):
        if entry not in after:
            warnings.filterwarnings("error", category=entry[2])
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _environment() -> tuple[bytes, ...]:
    """Return the entries of C's ``environ``."""
    # Python holds a copy of the environment at its start.
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(_process(), "environ")
    entries: list[bytes] = []
    while bool(environ) and (entry := environ[len(entries)]) is not None:
        entries.append(entry)
    return tuple(entries)


def _variables(entries: tuple[bytes, ...]) -> dict[str, str]:
    split = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in split}


def _changes_of_environment(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> Iterator[Change]:
    """Yield changes of environment variables; new ones are harmless, changed and removed ones are harmful."""
    # Runtimes set new variables for themselves; existing ones may be read by other code.
    was, now = _variables(before), _variables(after)
    for name in sorted(was.keys() | now.keys()):
        if name not in was:
            yield Change(f"the environment: {name} is new", is_harmful=False)
        elif name not in now:
            yield Change(f"the environment: {name} was removed")
        elif was[name] != now[name]:
            yield Change(f"the environment: {name}={was[name]} became {name}={now[name]}")


def _put_environment(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> None:
    was, now = _variables(before), _variables(after)
    for name, value in was.items():
        if now.get(name) != value:
            _process().setenv(os.fsencode(name), os.fsencode(value), 1)


def _is_open(descriptor: int) -> bool:
    try:
        os.get_inheritable(descriptor)
    except OSError:
        return False
    return True


def _open_again(before: frozenset[int], after: frozenset[int]) -> None:
    """Open the null device as each standard descriptor that was closed."""
    for descriptor in sorted(before - after):
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)


@cache
def _process() -> Any:
    return ctypes.CDLL(None)


@cache
def _setlocale() -> Any:
    function = ctypes.CDLL(None).setlocale
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_int, ctypes.c_char_p]
    return function


_PARTS: dict[str, _Part] = {}
if sys.platform == "linux":
    _PARTS |= {
        "folder": _Part(
            read=_folder,
            changes=lambda before, after: [Change(f"the working directory: {before} became {after}")],
            put_back=_enter,
        ),
        "mask": _Part(
            read=_mask,
            changes=lambda before, after: [
                Change(f"the mask of new files' permissions: {before:#o} became {after:#o}")
            ],
            put_back=lambda before, _: os.umask(before),
        ),
        "blocked": _Part(
            read=lambda: _signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            changes=_changes_of_blocked,
            put_back=lambda before, _: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        ),
        "actions": _Part(read=_actions, changes=_changes_of_actions, put_back=_set_actions),
        "handlers": _Part(
            read=lambda: [*map(_signal.getsignal, _WATCHED_SIGNALS)],
            changes=_changes_of_handlers,
            put_back=_set_handlers,
        ),
        "streams": _Part(
            read=lambda: [stream is not None and not stream.closed for stream in (sys.stdin, sys.stdout, sys.stderr)],
            changes=_changes_of_streams,
            put_back=_open_streams_again,
        ),
        "actions of frameworks": _Part(read=_actions, changes=_changes_by_frameworks, put_back=_set_actions),
        "timer": _Part(
            read=lambda: [_signal.getitimer(timer)[0] > 0 for timer in _TIMERS],
            changes=_changes_of_timers,
            put_back=_stop_timers,
        ),
        "warnings": _Part(
            # Only filters that raise exceptions: frameworks add others when they are loaded.
            read=lambda: [entry for entry in warnings.filters if entry[0] == "error"],
            changes=_changes_of_warnings,
            put_back=_put_warnings,
        ),
        "locale": _Part(
            read=lambda: _setlocale()(_ALL_LOCALES, None) or b"",
            changes=lambda before, after: [
                Change(f"the locale: {before.decode(errors='replace')} became {after.decode(errors='replace')}")
            ],
            put_back=lambda before, _: _setlocale()(_ALL_LOCALES, before),
        ),
        "environment": _Part(read=_environment, changes=_changes_of_environment, put_back=_put_environment),
        "standard": _Part(
            read=lambda: frozenset(filter(_is_open, _STANDARD)),
            changes=lambda before, after: [
                Change(f"{_STANDARD[descriptor]}: it was closed") for descriptor in sorted(before - after)
            ],
            put_back=_open_again,
        ),
        "processors": _Part(
            read=lambda: frozenset(os.sched_getaffinity(0)),
            # A note only: OpenMP binds the calling thread too if the user requests it.
            changes=lambda before, after: [
                Change(
                    f"the processors that the thread may run on: {len(before)} became {len(after)}", is_harmful=False
                )
            ],
            put_back=lambda before, _: os.sched_setaffinity(0, before),
        ),
    }

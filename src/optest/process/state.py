"""What a process has one of for everybody in it, as foreign code left it: folder, signals, locale, environment.

Read before foreign calls and after them; what is different is described and put back, so that the next calls find
what these found.
"""

from __future__ import annotations

# Below `signal`, whose enumerations cost more than all the rest of a look.
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
_WATCHED_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""Not those of crashes: runtimes that libraries bring along handle them for good reasons, once they are needed."""

_ACTIONS = {0: "its default action", 1: "it is ignored"}
_HANDLED = "another handler"
_ACTION_BYTES = 256
_HANDLER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_ALL_LOCALES = 6
"""LC_ALL of glibc and musl."""


def _listed(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:  # not Linux
        return 0


def counted() -> dict[str, int]:
    """How many files, sockets and pipes are open, and how many threads there are; 0 where the system does not say."""
    return {"open files": _listed("/proc/self/fd"), "threads": _listed("/proc/self/task")}


@dataclass(frozen=True, slots=True)
class Change:
    """``is_harmful`` where other code of the process would behave otherwise; else it is worth a note."""

    said: str
    is_harmful: bool = True


QUICK = ("folder", "mask", "blocked", "timer", "warnings", "handlers", "standard", "streams", "locale")
"""What is read in a few microseconds, so that it can be after every case."""

OF_PYTHON = (*QUICK, "actions of frameworks")
"""All that is watched around Python code: frameworks state variables for themselves, and bind threads."""

OF_C = ("folder", "mask", "blocked", "actions", "timer", "locale", "environment", "standard", "processors")
"""All that is watched around a C library, which reaches neither Python's handlers nor its streams."""


class ProcessState:
    """What it is now, to be compared with what it is later; only Linux is asked."""

    __slots__ = ("_held", "_parts")

    def __init__(self, names: Sequence[str] = OF_C) -> None:
        self._parts = [_PARTS[name] for name in names if name in _PARTS]
        self._held = [part.read() for part in self._parts]

    def renew(self) -> None:
        """Hold what it is now."""
        self._held = [part.read() for part in self._parts]

    def changes(self) -> list[Change]:
        """What is not as it was, in words, and put back, but for what only deserves a note."""
        changes: list[Change] = []
        for part, held in zip(self._parts, self._held, strict=True):
            now = part.read()
            if now != held:
                changes += part.changes(held, now)
                part.put_back(held, now)
        return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
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
    """There is no reading it alone; nobody else makes files meanwhile."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _changes_of_blocked(before: set[int], after: set[int]) -> Iterator[Change]:
    for what, numbers in (("blocks", after - before), ("no longer blocks", before - after)):
        if numbers:
            yield Change(f"the thread's signal mask: it {what} {_named(numbers)}")


def _named(numbers: set[int]) -> str:
    names = [signal.Signals(each).name for each in sorted(numbers) if each in set(signal.Signals)]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _actions() -> dict[int, bytes]:
    """What the C library holds for each signal: Python knows its own handlers only."""
    sigaction = getattr(_process(), "sigaction", None)
    if sigaction is None:
        return {}
    actions = {}
    for each in _WATCHED_SIGNALS:
        action = (ctypes.c_char * _ACTION_BYTES)()
        sigaction(int(each), None, action)
        actions[int(each)] = action.raw
    return actions


def _handlers(actions: Mapping[int, bytes]) -> dict[int, int]:
    """The first field on every system; what C does not fill of the others is whatever stood there."""
    return {number: int.from_bytes(each[:_HANDLER_BYTES], sys.byteorder) for number, each in actions.items()}


def _changes_of_actions(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> Iterator[Change]:
    was = _handlers(before)
    for number, handler in _handlers(after).items():
        if handler != was[number]:
            yield Change(f"what happens at {signal.Signals(number).name}: {_ACTIONS.get(handler, _HANDLED)}")


def _changes_by_frameworks(before: Mapping[int, bytes], after: Mapping[int, bytes]) -> Iterator[Change]:
    """LLVM, and so every compiler at run time that is made with it, handles the signals that end a process."""
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
        if was != now and was is not None:  # None: C code installed it, which `actions` puts back
            with suppress(ValueError):  # only the main thread may
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
    kinds = dict.fromkeys(each[2].__name__ for each in after if each not in before)
    listed = ", ".join(kinds) or "the filters that do"
    yield Change(f"what warnings do: {listed} {'raises an exception' if kinds else 'were removed'}")


def _put_warnings(before: list[Any], after: list[Any]) -> None:
    for each in after:
        if each not in before:
            warnings.filters.remove(each)  # type: ignore[attr-defined]
    for each in reversed(before):
        if each not in after:
            warnings.filterwarnings("error", category=each[2])
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _environment() -> tuple[bytes, ...]:
    """As C sees it: Python knows what was there when it began."""
    listed = ctypes.POINTER(ctypes.c_char_p).in_dll(_process(), "environ")
    entries: list[bytes] = []
    while bool(listed) and (entry := listed[len(entries)]) is not None:
        entries.append(entry)
    return tuple(entries)


def _variables(entries: tuple[bytes, ...]) -> dict[str, str]:
    split = (os.fsdecode(each).partition("=") for each in entries)
    return {name: value for name, _, value in split}


def _changes_of_environment(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> Iterator[Change]:
    """A variable that is new may be how a runtime finds itself again; one that others read is theirs."""
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
    for each in sorted(before - after):
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != each:
            os.dup2(opened, each)
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
            read=lambda: [_signal.getitimer(each)[0] > 0 for each in _TIMERS],
            changes=_changes_of_timers,
            put_back=_stop_timers,
        ),
        "warnings": _Part(  # filters that make exceptions of them; frameworks add others when they are loaded
            read=lambda: [each for each in warnings.filters if each[0] == "error"],
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
                Change(f"{_STANDARD[each]}: it was closed") for each in sorted(before - after)
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

"""Opaque handles and descriptors: made, used, destroyed once, and counted, so that a leak has a name."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from optest.errors import OptestError, UsageError

__all__ = ["Handle", "HandleError", "Leak", "Ledger"]


class HandleError(UsageError):
    """A handle that is used after its end, or destroyed twice; C was not called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A handle that was made and not destroyed; ``made_at`` is ``file:line`` of the call that made it.

    ``why`` is ``alive``, ``forgotten`` (collected by Python while alive in C; it was destroyed then) or the
    library's refusal to destroy it.
    """

    what: str
    made_at: str
    why: str = "alive"

    def __str__(self) -> str:
        return f"{self.what} made at {self.made_at} was not destroyed ({self.why})"


@dataclass(slots=True)
class _Entry:
    what: str
    made_at: str
    pointer: int
    destroy: Callable[[int], Any]


class Ledger:
    """Every handle of one library, one worker or one case.

    As a context manager it destroys what is left at the end, the youngest first, so that a descriptor goes before
    the handle that it belongs to; what it had to destroy stays in :meth:`leaks`.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Entry] = {}
        self._lost: list[Leak] = []
        self._created: Counter[str] = Counter()
        self._destroyed: Counter[str] = Counter()
        self._next = 0

    def make(self, what: str, create: Callable[[Any], Any], destroy: Callable[[int], Any], *, tag: str = "") -> Handle:
        """Make a handle: ``create(out)`` gets the address of a pointer to fill in, ``destroy(pointer)`` ends it.

        Both raise for a status of failure (``Function.succeed``). ``tag`` is the C struct's, which checked calls
        compare. A creation that fails leaves nothing to destroy.

        Raises:
            HandleError: if C reports success and leaves the pointer NULL.
        """
        slot = ctypes.c_void_p()
        create(ctypes.byref(slot))
        if not slot.value:
            raise HandleError(f"{what} was created without an error, but its pointer is NULL")
        return self.adopt(what, slot.value, destroy, tag=tag)

    def adopt(
        self, what: str, pointer: int, destroy: Callable[[int], Any], *, tag: str = "", made_at: str = ""
    ) -> Handle:
        """Take over a pointer that C returned otherwise; ``made_at`` where the caller is not who made it."""
        number, self._next = self._next, self._next + 1
        self._open[number] = _Entry(what, made_at or _caller(), pointer, destroy)
        self._created[what] += 1
        return Handle(self, number, what=what, pointer=pointer, tag=tag)

    @property
    def created(self) -> Counter[str]:
        """How many handles of each kind were made."""
        return Counter(self._created)

    @property
    def destroyed(self) -> Counter[str]:
        """How many of each kind were destroyed by their user."""
        return Counter(self._destroyed)

    def leaks(self) -> tuple[Leak, ...]:
        """What was made and not destroyed by its user, the oldest first."""
        alive = (Leak(what=entry.what, made_at=entry.made_at) for entry in self._open.values())
        return (*self._lost, *alive)

    def close(self) -> tuple[Leak, ...]:
        """Destroy whatever is left, the youngest first, and return all leaks."""
        for number in sorted(self._open, reverse=True):
            self._lose(number, "alive at the end")
        return self.leaks()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _is_open(self, number: int) -> bool:
        return number in self._open

    def _end(self, number: int) -> None:
        """The entry stays open if the library refuses: then it is a leak."""
        entry = self._open[number]
        entry.destroy(entry.pointer)
        del self._open[number]
        self._destroyed[entry.what] += 1

    def _lose(self, number: int, why: str) -> None:
        entry = self._open.pop(number, None)
        if entry is None:
            return
        try:
            entry.destroy(entry.pointer)
        except OptestError as error:
            why = f"{why}; {error}"
        self._lost.append(Leak(what=entry.what, made_at=entry.made_at, why=why))


class Handle:
    """A pointer to something that C made. ``with handle:`` destroys it at the end; using it later is refused."""

    __slots__ = ("__weakref__", "_finalizer", "_ledger", "_number", "_pointer", "tag", "what")

    def __init__(self, ledger: Ledger, number: int, *, what: str, pointer: int, tag: str) -> None:
        """Made by :meth:`Ledger.make`."""
        self.what = what
        self.tag = tag
        self._ledger = ledger
        self._number = number
        self._pointer = pointer
        self._finalizer = weakref.finalize(self, ledger._lose, number, "forgotten")
        self._finalizer.atexit = False  # a library may be half gone when the interpreter ends

    @property
    def is_alive(self) -> bool:
        return self._ledger._is_open(self._number)

    @property
    def address(self) -> int:
        """The pointer, for calls.

        Raises:
            HandleError: after it was destroyed.
        """
        if self._number not in self._ledger._open:
            raise HandleError(f"{self.what} was destroyed already, but is used")
        return self._pointer

    @property
    def stale_address(self) -> int:
        """The pointer, also after its end: for calls that are meant to be wrong."""
        return self._pointer

    def destroy(self) -> None:
        """End it.

        Raises:
            HandleError: if it was destroyed already.
            StatusError: if the library refuses; the handle is a leak then.
        """
        if not self.is_alive:
            raise HandleError(f"{self.what} was destroyed already, but is destroyed again")
        self._ledger._end(self._number)
        self._finalizer.detach()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.is_alive:
            self.destroy()

    def __repr__(self) -> str:
        return f"<{self.what} at {self._pointer:#x}{'' if self.is_alive else ', destroyed'}>"


def _caller() -> str:
    """``file:line`` of the nearest frame outside this module."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"

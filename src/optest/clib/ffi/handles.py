"""Ledger of opaque handles and descriptors that C created: each is destroyed once, by the function that matches it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from optest.errors import OptestError, UsageError


class HandleError(UsageError):
    """A handle that is used after its end, destroyed twice or by the wrong function; C was not called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A handle that was not destroyed; ``made_at`` is ``file:line`` of the call that created it."""

    what: str
    made_at: str


class Handle:
    """Pointer to an object that C created; destroyed when Python collects it, if nothing did so before."""

    __slots__ = ("__weakref__", "_destroy", "_finalizer", "address", "destroyer", "made_at", "what")

    def __init__(self, what: str, address: int, destroy: Callable[[int], Any], destroyer: str, made_at: str) -> None:
        """Store the arguments; ``destroy`` raises for a failure status; ``destroyer`` is the name of the C function."""
        self.what = what
        self.address = address
        self.destroyer = destroyer
        self.made_at = made_at
        self._destroy = destroy
        self._finalizer = weakref.finalize(self, _destroy_forgotten, destroy, address)
        # At exit a library may be half unloaded.
        self._finalizer.atexit = False

    def detach(self) -> None:
        """Cancel the destruction at garbage collection: another owner destroys the object."""
        self._finalizer.detach()

    def destroy(self) -> None:
        """Destroy the object; raise StatusError if the library refuses."""
        self.detach()
        self._destroy(self.address)


def _destroy_forgotten(destroy: Callable[[int], Any], address: int) -> None:
    with suppress(OptestError):  # an exception in a finalizer reaches no caller
        destroy(address)


class Ledger:
    """Handles of one library, by address."""

    def __init__(self) -> None:
        self._alive: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
        self._kept: dict[int, Handle] = {}
        self._ended: set[int] = set()

    def adopt(
        self, what: str, address: int, destroy: Callable[[int], Any], *, destroyer: str = "", made_at: str = ""
    ) -> Handle:
        """Return a new handle for an address that C returned; keep it until it is destroyed or handed over."""
        handle = Handle(what, address, destroy, destroyer, made_at)
        self._ended.discard(address)  # C may reuse the address of a destroyed object
        self._alive[address] = self._kept[address] = handle
        return handle

    def handed_over(self, address: int) -> Handle:
        """Return the handle at `address` to a new owner, with whom it is destroyed; the ledger keeps no reference."""
        return self._kept.pop(address)

    def end(self, address: int, destroyer: str) -> None:
        """Record the destruction at `address` by ``destroyer``; raise HandleError for a second or a wrong one."""
        if address in self._ended:
            raise HandleError(f"{destroyer} got a pointer that was destroyed before; destroy each handle once")
        handle = self._alive.get(address)
        if handle is None:
            return  # not created through this ledger
        if handle.destroyer != destroyer:
            raise HandleError(f"{handle.what} is destroyed by {destroyer}, expected {handle.destroyer}")
        handle.detach()
        self._forget(address)

    def kept(self) -> frozenset[int]:
        """Return the addresses that were neither destroyed nor handed over."""
        return frozenset(self._kept)

    def release(self, before: frozenset[int] = frozenset()) -> list[Leak]:
        """Destroy all kept handles except `before` and return them as leaks; raise StatusError on failure."""
        leaked = [handle for address, handle in self._kept.items() if address not in before]
        # A descriptor has to be destroyed before the older handle that it belongs to.
        for handle in reversed(leaked):
            self._forget(handle.address)
            handle.destroy()
        return [Leak(what=handle.what, made_at=handle.made_at) for handle in leaked]

    def _forget(self, address: int) -> None:
        self._alive.pop(address, None)
        self._kept.pop(address, None)
        self._ended.add(address)

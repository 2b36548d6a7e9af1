"""Opaque handles and descriptors: what C made is kept account of, and destroyed once, by the function that it needs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from optest.errors import OptestError, UsageError


class HandleError(UsageError):
    """A handle that is used after its end, or destroyed twice; C was not called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A handle that was made and not destroyed; ``made_at`` is ``file:line`` of the call that made it."""

    what: str
    made_at: str


class Handle:
    """A pointer to something that C made. What is forgotten is destroyed when Python collects it."""

    __slots__ = ("__weakref__", "_destroy", "_finalizer", "address", "destroyer", "made_at", "what")

    def __init__(self, what: str, address: int, destroy: Callable[[int], Any], destroyer: str, made_at: str) -> None:
        """``destroy`` raises for a status of failure; ``destroyer`` is the name of its function."""
        self.what = what
        self.address = address
        self.destroyer = destroyer
        self.made_at = made_at
        self._destroy = destroy
        self._finalizer = weakref.finalize(self, _destroy_forgotten, destroy, address)
        self._finalizer.atexit = False  # a library may be half gone when the interpreter ends

    def detach(self) -> None:
        """Leave its end to somebody else."""
        self._finalizer.detach()

    def destroy(self) -> None:
        """End it.

        Raises:
            StatusError: if the library refuses.
        """
        self.detach()
        self._destroy(self.address)


def _destroy_forgotten(destroy: Callable[[int], Any], address: int) -> None:
    with suppress(OptestError):
        destroy(address)


class Ledger:
    """The handles of one library, by address."""

    def __init__(self) -> None:
        self._alive: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
        self._kept: dict[int, Handle] = {}
        self._ended: set[int] = set()

    def adopt(
        self, what: str, address: int, destroy: Callable[[int], Any], *, destroyer: str = "", made_at: str = ""
    ) -> Handle:
        """Keep account of what C returned, until it is destroyed or handed over."""
        handle = Handle(what, address, destroy, destroyer, made_at)
        self._ended.discard(address)
        self._alive[address] = self._kept[address] = handle
        return handle

    def handed_over(self, address: int) -> Handle:
        """The handle for an owner of its own: it is destroyed when that goes away."""
        return self._kept.pop(address)

    def end(self, address: int, destroyer: str) -> None:
        """``destroyer`` is about to end what lies there; nothing happens for what nobody keeps account of.

        Raises:
            HandleError: if it was destroyed already, or belongs to another function; C would free what is not its.
        """
        if address in self._ended:
            raise HandleError(f"the pointer that {destroyer} is given was destroyed already")
        handle = self._alive.get(address)
        if handle is None:
            return
        if handle.destroyer != destroyer:
            raise HandleError(f"{handle.what} is given to {destroyer}, expected to {handle.destroyer}")
        handle.detach()
        self._forget(address)

    def kept(self) -> frozenset[int]:
        """The addresses of what nobody has destroyed or taken over."""
        return frozenset(self._kept)

    def release(self, before: frozenset[int] = frozenset()) -> list[Leak]:
        """Destroy what is kept and was not ``before``, the youngest first, so that a descriptor goes before the handle
        that it belongs to.

        Raises:
            StatusError: if the library refuses.
        """
        left = [handle for address, handle in self._kept.items() if address not in before]
        for handle in reversed(left):
            self._forget(handle.address)
            handle.destroy()
        return [Leak(what=handle.what, made_at=handle.made_at) for handle in left]

    def _forget(self, address: int) -> None:
        self._alive.pop(address, None)
        self._kept.pop(address, None)
        self._ended.add(address)

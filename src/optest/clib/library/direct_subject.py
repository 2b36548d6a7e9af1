"""A plain function that is called again and again, with the things that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from optest.clib.ffi.calls import BadCall
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.direct_calls import DirectFunction
from optest.clib.library.subject import Subject
from optest.spec import Fault

__all__ = ["DirectSubject"]


class DirectSubject(Subject):
    """What lasts for many calls (a plan, a context) is made once and made anew when it is asked for; it runs while its
    function is alive."""

    def __init__(self, function: DirectFunction, other: Callable[[], DirectFunction | None]) -> None:
        """``other`` is the same operator for tensors of other sizes, None where it takes none."""
        super().__init__(function)
        self.name = function.function.name
        self._function = function
        self._other = other

    @property
    def has_descriptors(self) -> bool:  # type: ignore[override]
        return self._function.has_objects

    @property
    def workspace_bytes(self) -> int:
        return self._function.workspace_bytes

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        with self._function.alive(forgets=forgets):
            yield

    @contextmanager
    def apart(self, pointers: Mapping[str, Any]) -> Iterator[Callable[[], None]]:
        """A call with these pointers and things of its own, for another thread."""
        own = self._function.copied()
        with own.alive():
            yield lambda: own(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """Things of the same kind are alive, made later for tensors of other sizes, or for the same where it takes no
        others."""
        with ExitStack() as alive:
            if self._function.lasting:
                with suppress(StatusError, BadCall, Fault):
                    alive.enter_context((self._other() or self._function).alive_beside())
            yield

"""A function with what is known of its arguments, and what is made before it is called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from optest.clib.ffi.calls import Function, StatusError
from optest.spec import DType, Fault, Reason

__all__ = ["Given", "PlainCall", "Pointer", "PreparedObject"]

Given = Mapping[str, Any]
"""What is known when a call is made: pointers by role, ``object:plan``, ``self``, ``slot``."""
_NOTHING: Mapping[Any, Any] = {}


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address inside a buffer, where a function gets another one than that of element [0, 0, …]."""

    address: int
    element: DType


class PlainCall:
    """A function, the values of its arguments, and the keys of those that are known when it is called (``late``).

    The first call is checked against the prototype; later ones get values of the same kinds.
    """

    def __init__(
        self,
        function: Function,
        values: Sequence[Any],
        late: Mapping[int, str] = _NOTHING,
        behind: Mapping[str, int] = _NOTHING,
    ) -> None:
        """``behind`` is how many bytes behind element [0, 0, …] a pointer points, by key."""
        self.function = function
        self._values = values
        self._late = [(index, key, behind.get(key, 0)) for index, key in late.items()]
        self._checked: list[Any] | None = None

    def __call__(self, given: Given, copies: list[Any] | None = None) -> Any:
        """Call, and return what C returned; with ``copies`` of the arrays, which are put there.

        Raises:
            StatusError: if that is a status, and no success.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        if copies is not None:
            copied = [_copied(each, copies) for each in self.arguments(given)]
            return self.function.again(self.function.converted(copied))
        if self._checked is None:
            self._checked = self.function.converted(self.arguments(given))
            return self.function.again(self._checked)
        arguments = self._checked.copy()  # another thread may call, too
        for index, key, behind in self._late:
            value = given.get(key)
            address = getattr(value, "address", value)
            arguments[index] = address + behind if behind and address is not None else address
        return self.function.again(arguments)

    def arguments(self, given: Given) -> list[Any]:
        made = list(self._values)
        for index, key, behind in self._late:
            buffer = given.get(key)
            made[index] = Pointer(buffer.address + behind, buffer.element) if behind and buffer is not None else buffer
        return made

    @property
    def slot(self) -> Any:
        """Memory for what the function fills in; None if it fills in nothing."""
        index = next((index for index, key, _ in self._late if key == "slot"), None)
        if index is None:
            return None
        pointee = self.function.prototype.parameters[index].pointee
        return ctypes.c_void_p() if pointee is None or not pointee.is_integer else pointee.ctype()()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedObject:
    """Something that a call needs: made by ``create``, or a struct of which ``fill`` fills in the fields.

    ``is_late`` is whether it can only be made when memory is there; ``late_sets`` are calls that can only be made then.
    ``is_brief`` is whether nobody needs it any more when the others are made.
    """

    name: str
    create: PlainCall | None
    sets: Sequence[PlainCall]
    late_sets: Sequence[PlainCall]
    destroy: PlainCall | None
    struct: type[ctypes.Structure] | None
    fill: Callable[[Any, Given], Any] | None
    is_late: bool
    is_brief: bool
    said: Callable[[int], str] | None

    @property
    def key(self) -> str:
        """Under which calls find it."""
        return f"object:{self.name}"

    def made(self, given: Given, alive: ExitStack, copies: list[Any] | None = None) -> int:
        """Its address; it ends with ``alive``. Functions get copies of arrays, which are put into ``copies``.

        Raises:
            StatusError: if the library refuses, by a status or by NULL.
            Fault: NOT_REFUSED for a status of success, and NULL.
        """
        held: list[Any] = []
        if self.struct is None:
            address = self._created(given, copies)
        else:
            held.append(self.struct())
            alive.callback(held.clear)  # as long as C has their addresses
            address = ctypes.addressof(held[0])
        given = {**given, "self": address}
        if self.destroy is not None:
            alive.callback(self.destroy, given)
        for each in self.sets:
            each(given, copies)
        if self.fill is not None:
            held.append(self.fill(held[0], given))
        return address

    def _created(self, given: Given, copies: list[Any] | None) -> int:
        create = self.create
        assert create is not None
        slot = create.slot
        if slot is None:
            pointer = create(given, copies)
        else:
            create({**given, "slot": ctypes.byref(slot)}, copies)
            pointer = slot.value
        if not pointer and slot is not None and create.function.codes is not None:
            detail = f"{self.name} was created without an error, but its pointer is NULL"
            raise Fault(Reason.NOT_REFUSED, f"{create.function.name} returned success, but made nothing: {detail}")
        if not pointer:
            said = self.said(0) if self.said is not None else ""
            raise StatusError(create.function.name, 0, "NULL", said=said)
        return int(pointer)


def _copied(value: Any, copies: list[Any]) -> Any:
    if not isinstance(value, ctypes.Array) or not ctypes.sizeof(value):
        return value
    copies.append(type(value).from_buffer_copy(value))
    return copies[-1]

"""A plain function with what is known of its arguments, and what is made before it is called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from optest.clib.ffi.calls import Function
from optest.clib.ffi.statuses import StatusCodes, StatusError
from optest.clib.library.c_objects import is_of_a_tensor
from optest.spec import DType

__all__ = ["DirectFunction", "PlainCall", "PreparedObject"]

Given = Mapping[str, Any]
"""What is known when a call is made: pointers by role, ``object:plan``, ``self``, ``slot``."""


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An address inside a buffer, for a function that wants another one than that of element [0, 0, …]."""

    address: int
    element: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCall:
    """A function, the values of its arguments, and the keys of those that are known when it is called (``late``).

    ``behind`` is in bytes; ``codes`` are those of its status, None for a function that returns none.
    """

    function: Function
    values: Sequence[Any]
    late: Mapping[int, str]
    behind: Mapping[str, int] = field(default_factory=dict)
    codes: StatusCodes | None = None

    def __call__(self, given: Given, copies: list[Any] | None = None) -> Any:
        """Call, and return what C returned; with ``copies`` of the arrays, which are put there.

        Raises:
            StatusError: if that is a status, and no success.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        arguments = self.arguments(given)
        if copies is not None:
            arguments = [_copied(each, copies) for each in arguments]
        result = self.function(*arguments)
        if self.codes is not None:
            self.codes.require(self.function.name, result)
        return result

    def arguments(self, given: Given) -> list[Any]:
        made = list(self.values)
        for index, key in self.late.items():
            made[index] = _pointer(given.get(key), self.behind.get(key, 0))
        return made

    @property
    def slot(self) -> Any:
        """Memory for what the function fills in; None if it fills in nothing."""
        index = next((index for index, key in self.late.items() if key == "slot"), None)
        if index is None:
            return None
        pointee = self.function.prototype.parameters[index].pointee
        return ctypes.c_void_p() if pointee is None or not pointee.is_integer else pointee.ctype()()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedObject:
    """Something that a call needs: made by ``create``, or a struct of which ``fill`` fills in the fields.

    ``is_late`` is whether it can only be made when memory is there; ``late_sets`` are calls that can only be made then.
    """

    name: str
    create: PlainCall | None
    sets: Sequence[PlainCall]
    late_sets: Sequence[PlainCall]
    destroy: PlainCall | None
    struct: type[ctypes.Structure] | None
    fill: Callable[[Any, Given], Any] | None
    is_late: bool
    said: Callable[[int], str] | None

    def made(self, given: Given, alive: ExitStack, copies: list[Any] | None = None) -> int:
        """Its address; it ends with ``alive``. It was told ``copies`` of arrays, where those are asked for.

        Raises:
            StatusError: if the library refuses, by a status or by NULL.
        """
        if self.struct is not None:
            value = self.struct()
            address = ctypes.addressof(value)
            self._set({**given, "self": address}, copies)
            assert self.fill is not None
            held = self.fill(value, given)
            alive.push(_Kept((value, held)))  # as long as C has their addresses
            return address
        address = self._created(given, copies)
        if self.destroy is not None:
            destroy = self.destroy
            alive.callback(lambda: destroy({**given, "self": address}))
        self._set({**given, "self": address}, copies)
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
        if not pointer:
            said = self.said(0) if self.said is not None else ""
            raise StatusError(create.function.name, 0, "NULL", said=said)
        return int(pointer)

    def _set(self, given: Given, copies: list[Any] | None) -> None:
        for each in self.sets:
            each(given, copies)


class DirectFunction:
    """A function with everything but its tensors, which come by role.

    Where the function returns an output, what it returned is written into that output's memory. What it needs is made
    while one is :meth:`alive`.
    """

    def __init__(
        self,
        call: PlainCall,
        *,
        c_objects: Sequence[PreparedObject] = (),
        sized: PlainCall | None = None,
        returns: str = "",
        without: frozenset[str] = frozenset(),
    ) -> None:
        """``sized`` says how large the workspace is; ``without`` are objects that C gets NULL in place of."""
        self._call = call
        self._c_objects = c_objects
        self._sized = sized
        self._returns = returns
        self._without = dict.fromkeys(without)
        self._given: dict[str, Any] = {}
        self._alive = ExitStack()

    def copied(self) -> DirectFunction:
        """The same call, for which nothing is made yet."""
        without = frozenset(self._without)
        return DirectFunction(
            self._call, c_objects=self._c_objects, sized=self._sized, returns=self._returns, without=without
        )

    @property
    def function(self) -> Function:
        return self._call.function

    @property
    def has_objects(self) -> bool:
        """Whether anything has to be made before a call."""
        return bool(self._c_objects)

    @property
    def lasting(self) -> bool:
        """Whether some of it lasts for many calls."""
        return any(not each.is_late and not is_of_a_tensor(each.name) for each in self._c_objects)

    @contextmanager
    def alive(self, *, forgets: bool = False) -> Iterator[None]:
        """While inside, what lasts for many calls is there; with ``forgets`` the arrays that it was told of are gone.

        Raises:
            StatusError: if the library refuses to make it.
        """
        before = self._given, self._alive
        with ExitStack() as alive:
            copies: list[Any] | None = [] if forgets else None
            self._given, self._alive = self._made(alive, copies), alive
            for each in copies or ():
                ctypes.memset(each, 0xFF, ctypes.sizeof(each))
            alive.push(_Kept(copies))
            try:
                yield
            finally:
                self._given, self._alive = before

    @contextmanager
    def alive_beside(self) -> Iterator[None]:
        """The same, but calls go on using what they used."""
        with ExitStack() as alive:
            self._made(alive)
            yield

    def _made(self, alive: ExitStack, copies: list[Any] | None = None) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for each in self._c_objects:
            if not each.is_late:
                given[f"object:{each.name}"] = each.made(given, alive, copies)
        return given

    @property
    def workspace_bytes(self) -> int:
        """What the library asks for.

        Raises:
            StatusError: if it refuses to say.
        """
        if self._sized is None:
            return 0
        slot = self._sized.slot
        with ExitStack() as alive:
            given = self._with_late({}, alive)
            if slot is None:
                return int(self._sized(given))
            self._sized({**given, "slot": ctypes.byref(slot)})
            return int(slot.value)

    def __call__(self, pointers: Given) -> None:
        """Call, and require success if the result is a status.

        Raises:
            StatusError: for any other status.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        if not self._c_objects:
            result = self._call(pointers)
        else:
            with ExitStack() as alive:
                result = self._call({**self._with_late(pointers, alive), **self._without})
        if self._returns:
            pointers[self._returns].array[...] = result

    def ready(self, pointers: Given) -> Callable[[], Any]:
        """The call with these tensors, checked once, for timings; what is made for it ends with what is alive."""
        given = {**self._with_late(pointers, self._alive), **self._without}
        return self._call.function.ready(*self._call.arguments(given))

    def _with_late(self, pointers: Given, alive: ExitStack) -> dict[str, Any]:
        """What is there, with what can only be made or told now."""
        given = {**self._given, **pointers}
        for each in self._c_objects:
            if each.is_late:
                given[f"object:{each.name}"] = each.made(given, alive)
            for late in each.late_sets:
                late({**given, "self": given[f"object:{each.name}"]})
        return given


class _Kept(AbstractContextManager[None]):
    """Keeps Python's objects until it is left."""

    def __init__(self, held: object) -> None:
        self._held = held

    def __exit__(self, *_: object) -> None:
        self._held = None


def _copied(value: Any, copies: list[Any]) -> Any:
    if not isinstance(value, ctypes.Array) or not ctypes.sizeof(value):
        return value
    copies.append(type(value).from_buffer_copy(value))
    return copies[-1]


def _pointer(buffer: Any, behind: int) -> Any:
    return _Pointer(buffer.address + behind, buffer.element) if behind and buffer is not None else buffer

"""A function with what is known of its arguments, and what is made before it is called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from optest.clib.ffi.calls import Function
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.c_objects import is_of_a_tensor
from optest.spec import DType, Fault, Reason

__all__ = ["OperatorCall", "PlainCall", "PreparedObject"]

Given = Mapping[str, Any]
"""What is known when a call is made: pointers by role, ``object:plan``, ``self``, ``slot``."""
_NOTHING_LATE: Mapping[int, str] = {}
_NOTHING_BEHIND: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An address inside a buffer, for a function that wants another one than that of element [0, 0, …]."""

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
        late: Mapping[int, str] = _NOTHING_LATE,
        behind: Mapping[str, int] = _NOTHING_BEHIND,
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
        told = self._checked.copy()  # another thread may call, too
        for index, key, behind in self._late:
            value = given.get(key)
            address = getattr(value, "address", value)
            told[index] = address + behind if behind and address is not None else address
        return self.function.again(told)

    def arguments(self, given: Given) -> list[Any]:
        made = list(self._values)
        for index, key, behind in self._late:
            made[index] = _pointer(given.get(key), behind)
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

    @property
    def is_of_a_tensor(self) -> bool:
        return is_of_a_tensor(self.name)

    def made(self, given: Given, alive: ExitStack, copies: list[Any] | None = None) -> int:
        """Its address; it ends with ``alive``. It was told ``copies`` of arrays, where those are asked for.

        Raises:
            StatusError: if the library refuses, by a status or by NULL.
            Fault: NOT_REFUSED for a status of success, and NULL.
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
        if not pointer and slot is not None and create.function.codes is not None:
            detail = f"{self.name} was created without an error, but its pointer is NULL"
            raise Fault(Reason.NOT_REFUSED, f"{create.function.name} returned success, but made nothing: {detail}")
        if not pointer:
            said = self.said(0) if self.said is not None else ""
            raise StatusError(create.function.name, 0, "NULL", said=said)
        return int(pointer)

    def _set(self, given: Given, copies: list[Any] | None) -> None:
        for each in self.sets:
            each(given, copies)


class OperatorCall:
    """An operator's function with everything but its tensors, which come by role.

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
        """``sized`` says how large the workspace is; ``without`` are objects that C gets NULL in place of, those of
        tensors in every call."""
        self._call = call
        self._c_objects = [each for each in c_objects if not (each.is_of_a_tensor and each.key in without)]
        self._sized = sized
        self._returns = returns
        self._without = dict.fromkeys(without)
        self._lasting = [each for each in self._c_objects if not each.is_late]
        self._late = [each for each in self._c_objects if each.is_late or each.late_sets]
        self._given: dict[str, Any] = {}
        self._alive = ExitStack()

    def copied(self) -> OperatorCall:
        """The same call, for which nothing is made yet."""
        without = frozenset(self._without)
        return OperatorCall(
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
        return any(not each.is_of_a_tensor for each in self._lasting)

    @contextmanager
    def alive(self, *, forgets: bool = False) -> Iterator[None]:
        """While inside, what lasts for many calls is there; with ``forgets`` the arrays that a function was told hold
        something else as soon as what it makes is made.

        Raises:
            StatusError: if the library refuses to make it.
        """
        before = self._given, self._alive
        with ExitStack() as alive:
            self._given, self._alive = self._made(alive, forgets=forgets), alive
            try:
                yield
            finally:
                self._given, self._alive = before

    @contextmanager
    def alive_beside(self) -> Iterator[None]:
        """The same, but calls go on using what they used, and nothing ends before."""
        with ExitStack() as alive:
            self._made(alive, keeps=True)
            yield

    def _made(self, alive: ExitStack, *, forgets: bool = False, keeps: bool = False) -> dict[str, Any]:
        given: dict[str, Any] = {}
        with ExitStack() as brief:
            for each in self._lasting:
                copies: list[Any] | None = [] if forgets else None
                given[each.key] = each.made(given, brief if each.is_brief and not keeps else alive, copies)
                for array in copies or ():
                    array[:] = [1] * len(array)  # legal sizes and strides, of other tensors
                if copies:
                    alive.push(_Kept(copies))
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
        if not self._late:
            result = self._call({**self._given, **pointers, **self._without} if self._c_objects else pointers)
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
        for each in self._late:
            if each.is_late:
                given[each.key] = each.made(given, alive)
            for late in each.late_sets:
                late({**given, "self": given[each.key]})
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

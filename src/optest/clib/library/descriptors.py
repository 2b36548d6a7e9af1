"""C functions bound to the roles of their arguments, and operator descriptors that are made with them again and again
for tensors of the same kinds, of what was converted once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from optest.clib.ffi.calls import Function
from optest.clib.library.roles import Role
from optest.spec import Fault, Reason, TensorSpec

__all__ = ["BoundCall", "BoundOperator", "Descriptor", "Recipe", "TensorFunctions"]

Values = Mapping[str, Any]
Destroy = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCall:
    """A C function and the roles of its arguments, checked against its prototype; ``keys`` are those of the roles."""

    function: Function
    roles: tuple[Role, ...]
    keys: tuple[str, ...]

    def __call__(self, values: Values) -> None:
        """Call with the values of the roles and require success.

        Raises:
            StatusError: for any other status.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        self.function.succeed(*[values[key] for key in self.keys])

    def again(self, values: Values) -> None:
        """Call once more, with values of the kinds that were checked before; only addresses may be others.

        Raises:
            StatusError: for any status but success.
        """
        self.function.again(self.told(values))

    def told(self, values: Values) -> list[Any]:
        """The arguments as ctypes takes them, unchecked: addresses in place of what has one."""
        return [getattr(value, "address", value) for value in [values[key] for key in self.keys]]

    def ready(self, values: Values) -> Callable[[], Any]:
        """The call with these values, checked once, for timings; it returns C's status."""
        return self.function.ready(*[values[key] for key in self.keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOperator:
    """The functions of one operator; ``workspace`` is None where it has none."""

    name: str
    create: BoundCall
    run: BoundCall
    destroy: Function
    workspace: Function | None


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor while it is alive: what calls take for a pointer."""

    address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFunctions:
    """Those that make and end the descriptor of a tensor; ``values`` are the roles that say what it is like."""

    create: BoundCall
    destroy: Function
    values: Callable[[TensorSpec], Values]


class Recipe:
    """Makes one descriptor after the other. The first is made with every argument checked, the others as that one."""

    def __init__(
        self,
        what: str,
        create: BoundCall,
        destroy: Function,
        tensors: TensorFunctions,
        specs: Mapping[str, TensorSpec | None],
        values: Values,
    ) -> None:
        """``specs`` are the tensors by role, None for one that is left out; ``values`` those of the other roles."""
        self._what = what
        self._create = _Creation(create)
        self._destroy = _ended_by(destroy)
        self._tensors = {
            role: None if spec is None else (_Creation(tensors.create), tensors.values(spec), f"descriptor of {role}")
            for role, spec in specs.items()
        }
        self._end_tensor = _ended_by(tensors.destroy)
        self._values = {**values, "null": None}

    @contextmanager
    def made(self, *, keeps_tensors: bool = False, forgets: bool = False) -> Iterator[Descriptor]:
        """A descriptor while inside. Those of the tensors are gone when the caller gets it, unless he ``keeps`` them,
        for a descriptor that shall be in the way of another. With ``forgets`` the arrays of sizes and strides hold
        something else as soon as the tensors have their descriptors.

        Raises:
            StatusError: if the library refuses.
            Fault: NOT_REFUSED for success without a descriptor.
        """
        alive: list[int] = []
        try:
            descriptor = self._described(alive, forgets=forgets)
            try:
                if not keeps_tensors:
                    self._end(alive)
                yield Descriptor(descriptor)
            finally:
                self._destroy(descriptor)
        finally:
            self._end(alive)

    def _described(self, alive: list[int], *, forgets: bool) -> int:
        """``alive`` gets the tensors' descriptors."""
        pointers: dict[str, int | None] = {}
        for role, tensor in self._tensors.items():
            if tensor is None:
                pointers[role] = None
                continue
            creation, values, what = tensor
            pointers[role] = pointer = creation.pointer(values, {}, what)
            alive.append(pointer)
        if not forgets:
            return self._create.pointer(self._values, pointers, self._what)
        with self._overwritten():
            return self._create.pointer(self._values, pointers, self._what)

    @contextmanager
    def _overwritten(self) -> Iterator[None]:
        """While inside, every array that described a tensor holds ones: legal sizes and strides, of other tensors."""
        told = (values for tensor in self._tensors.values() if tensor is not None for values in tensor[1].values())
        kept = [(array, bytes(array)) for array in told if isinstance(array, ctypes.Array)]
        for array, _ in kept:
            array[:] = [1] * len(array)
        try:
            yield
        finally:
            for array, held in kept:
                ctypes.memmove(array, held, len(held))

    def _end(self, alive: list[int]) -> None:
        while alive:
            self._end_tensor(alive.pop())


class _Creation:
    """A function that fills in a pointer; what it is told apart from that and from other pointers stays the same."""

    def __init__(self, call: BoundCall) -> None:
        self._call = call
        self._told: list[Any] | None = None
        self._slot = ctypes.c_void_p()
        self._changing: list[tuple[int, str]] = []

    def pointer(self, values: Values, pointers: Mapping[str, int | None], what: str) -> int:
        """What the function filled in; ``pointers`` are the arguments that differ from call to call."""
        slot, told_again = self._slot, self._told
        slot.value = None
        if told_again is None:
            told = {**values, **pointers, "slot": ctypes.byref(slot)}
            self._call(told)
            self._told = [getattr(told[key], "address", told[key]) for key in self._call.keys]
            self._changing = [(index, key) for index, key in enumerate(self._call.keys) if key in pointers]
        else:
            for index, key in self._changing:
                told_again[index] = pointers[key]
            self._call.function.again(told_again)
        pointer: int | None = slot.value
        if not pointer:
            name = self._call.function.name
            detail = f"the {what} was created without an error, but its pointer is NULL"
            raise Fault(Reason.NOT_REFUSED, f"{name} returned success, but no descriptor: {detail}")
        return pointer


def _ended_by(destroy: Function) -> Destroy:
    """The function's call with a pointer; the first is checked."""
    checked = False

    def end(pointer: int) -> None:
        nonlocal checked
        if checked:
            destroy.again((pointer,))
            return
        destroy.succeed(pointer)
        checked = True

    return end

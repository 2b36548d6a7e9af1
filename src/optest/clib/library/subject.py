"""A call that runs many times: a C function with its known arguments, the C objects it needs, and its variants."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from optest.clib.ffi.calls import BadCall, Function, StatusError
from optest.clib.library.operator_mapping import is_of_a_tensor
from optest.spec import DType, Fault, Reason, TensorSpec, contiguous_strides

Given = Mapping[str, Any]  # Arguments known when a call runs: pointers by role, object:plan, self, slot.
_NOTHING: Mapping[Any, Any] = {}


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address inside a buffer, for a function that receives another address than that of element [0, 0, …]."""

    address: int
    element: DType


class PlainCall:
    """A function, its argument values, and the keys of arguments that are known only at the call (``late``).

    The first call is checked against the prototype; later ones must get values of the same types.
    """

    def __init__(
        self,
        function: Function,
        values: Sequence[Any],
        late: Mapping[int, str] = _NOTHING,
        behind: Mapping[str, int] = _NOTHING,
    ) -> None:
        """Store the arguments; ``behind`` is the byte offset of a pointer from element [0, 0, …], by key."""
        self.function = function
        self._values = values
        self._late = [(index, key, behind.get(key, 0)) for index, key in late.items()]
        self._checked: list[Any] | None = None

    def __call__(self, given: Given, copies: list[Any] | None = None) -> Any:
        """Call C and return the result; pass copies of arrays, kept in ``copies``; raise StatusError, BadCall."""
        if copies is not None:
            copied = [_copy_array(arg, copies) for arg in self.arguments(given)]
            return self.function.call_converted(self.function.convert_arguments(copied))
        if self._checked is None:
            self._checked = self.function.convert_arguments(self.arguments(given))
            return self.function.call_converted(self._checked)
        arguments = self._checked.copy()  # another thread may call at the same time
        for index, key, behind in self._late:
            value = given.get(key)
            address = getattr(value, "address", value)
            arguments[index] = address + behind if behind and address is not None else address
        return self.function.call_converted(arguments)

    def arguments(self, given: Given) -> list[Any]:
        """Return the argument values, with the late ones filled in."""
        values = list(self._values)
        for index, key, behind in self._late:
            buffer = given.get(key)
            if behind and buffer is not None:
                buffer = Pointer(buffer.address + behind, buffer.element)
            values[index] = buffer
        return values

    @property
    def slot(self) -> Any:
        """New memory for the value that the function returns through its slot; None if it has no slot."""
        index = next((index for index, key, _ in self._late if key == "slot"), None)
        if index is None:
            return None
        pointee = self.function.prototype.parameters[index].pointee
        return ctypes.c_void_p() if pointee is None or not pointee.is_integer else pointee.ctype()()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedObject:
    """An object that a call needs: created by ``create``, or a struct that ``fill`` fills in."""

    name: str
    create: PlainCall | None
    sets: Sequence[PlainCall]
    late_sets: Sequence[PlainCall]  # possible only after memory is allocated
    destroy: PlainCall | None
    struct: type[ctypes.Structure] | None
    fill: Callable[[Any, Given], Any] | None
    is_late: bool  # created only after memory is allocated
    is_brief: bool  # can be destroyed once the other objects exist
    read_message: Callable[[int], str] | None  # returns the library's message for a status

    @property
    def key(self) -> str:
        """Key of the object among a call's arguments."""
        return f"object:{self.name}"

    def made(self, given: Given, alive: ExitStack, copies: list[Any] | None = None) -> int:
        """Create the object until ``alive`` ends and return its address; raise StatusError, NOT_REFUSED for NULL."""
        held: list[Any] = []
        if self.struct is None:
            address = self._create(given, copies)
        else:
            held.append(self.struct())
            alive.callback(held.clear)  # C has their addresses until then
            address = ctypes.addressof(held[0])
        given = {**given, "self": address}
        if self.destroy is not None:
            alive.callback(self._destroy, self.destroy, given)
        for call in self.sets:
            call(given, copies)
        if self.fill is not None:
            held.append(self.fill(held[0], given))
        return address

    def _destroy(self, destroy: PlainCall, given: Given) -> None:
        """Destroy the object; turn a status into a RAISED fault, since the case's call was not refused."""
        try:
            destroy(given)
        except StatusError as error:
            raise Fault(Reason.RAISED, f"{self.name} was not destroyed: {error}") from None

    def _create(self, given: Given, copies: list[Any] | None) -> int:
        """Call ``create`` and return the object's address; raise if it is NULL."""
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
            raise Fault(Reason.NOT_REFUSED, f"{create.function.name} returned success, but created nothing: {detail}")
        if not pointer:
            said = self.read_message(0) if self.read_message is not None else ""
            raise StatusError(create.function.name, 0, "NULL", said=said)
        return int(pointer)


def _copy_array(value: Any, copies: list[Any]) -> Any:
    """Return a copy of a non-empty C array and append it to ``copies``; return other values unchanged."""
    if not isinstance(value, ctypes.Array) or not ctypes.sizeof(value):
        return value
    copies.append(type(value).from_buffer_copy(value))
    return copies[-1]


Specs = Mapping[str, TensorSpec]


class Subject:
    """An operator's function with all arguments except its tensors, which are passed by role.

    An output that the function returns is written to that output's memory. Lasting objects (a descriptor, a plan) are
    created once, by :meth:`renewed`. ``others`` are factories of other calls of the operator: of each group, the first
    that the library supports is used.
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
        """Store the arguments; ``sized`` returns the workspace size, and objects with keys ``without`` are NULL."""
        self._call = call
        self._c_objects = [obj for obj in c_objects if not (is_of_a_tensor(obj.name) and obj.key in without)]
        self._sized = sized
        self._returns = returns
        self._without = dict.fromkeys(without)
        self._lasting = [obj for obj in self._c_objects if not obj.is_late]
        self._late = [obj for obj in self._c_objects if obj.is_late or obj.late_sets]
        self.others: Sequence[Sequence[Other]] = ()
        self._given: dict[str, Any] = {}
        self._alive = ExitStack()

    @property
    def name(self) -> str:
        return self._call.function.name

    @property
    def has_descriptors(self) -> bool:
        """Return whether objects are created before a call."""
        return bool(self._c_objects)

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        """Use new C objects within the block; with ``forgets`` their size arrays are overwritten after creation."""
        before = self._given, self._alive
        with ExitStack() as alive:
            self._given, self._alive = self._create_objects(alive, forgets=forgets), alive
            try:
                yield
            finally:
                self._given, self._alive = before

    @contextmanager
    def second_objects(self) -> Iterator[None]:
        """Create a second set of C objects that exists within the block; calls keep using the first set."""
        with ExitStack() as alive:
            self._create_objects(alive, keeps=True)
            yield

    @contextmanager
    def separate_call(self, pointers: Given) -> Iterator[Callable[[], None]]:
        """Yield a call on these pointers with its own C objects, for another thread."""
        other = copy(self)
        with other.renewed():
            other.run(pointers)
            yield lambda: other.run(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """Keep C objects of other calls alive within the block, created after those that :meth:`run` uses."""
        lasts = any(not is_of_a_tensor(obj.name) for obj in self._lasting)
        with ExitStack() as alive:
            for group in self.others if lasts else ():
                for other in group:
                    with suppress(StatusError, BadCall, Fault):
                        subject = other()
                        if subject is not None:
                            alive.enter_context(subject.second_objects())
                            break
            yield

    def _create_objects(self, alive: ExitStack, *, forgets: bool = False, keeps: bool = False) -> dict[str, Any]:
        """Create the lasting objects; return their addresses by key."""
        given: dict[str, Any] = {}
        with ExitStack() as brief:
            for obj in self._lasting:
                copies: list[Any] | None = [] if forgets else None
                given[obj.key] = obj.made(given, brief if obj.is_brief and not keeps else alive, copies)
                for array in copies or ():
                    # Valid sizes and strides: a library that kept the array computes garbage, but does not crash.
                    array[:] = [1] * len(array)
                if copies:
                    alive.callback(copies.clear)  # C may have their addresses until then
        return given

    @property
    def workspace_bytes(self) -> int:
        """Size of the workspace that the library requests; raises StatusError if it returns an error."""
        if self._sized is None:
            return 0
        slot = self._sized.slot
        with ExitStack() as alive:
            given = self._with_late({}, alive)
            if slot is None:
                return int(self._sized(given))
            self._sized({**given, "slot": ctypes.byref(slot)})
            return int(slot.value)

    def run(self, pointers: Given) -> None:
        """Call C; raise StatusError for a failure status, BadCall (before calling C) for a value that does not fit."""
        if not self._late:
            result = self._call({**self._given, **pointers, **self._without} if self._c_objects else pointers)
        else:
            with ExitStack() as alive:
                result = self._call({**self._with_late(pointers, alive), **self._without})
        if self._returns:
            pointers[self._returns].array[...] = result

    def ready(self, pointers: Given) -> Callable[[], Any]:
        """Return the call with these tensors, checked once, for timings; late objects live as long as the others."""
        given = {**self._with_late(pointers, self._alive), **self._without}
        return self._call.function.bind_arguments(*self._call.arguments(given))

    def _with_late(self, pointers: Given, alive: ExitStack) -> dict[str, Any]:
        """Return all arguments, after creating the late objects and running the late ``set`` calls."""
        given = {**self._given, **pointers}
        for obj in self._late:
            if obj.is_late:
                given[obj.key] = obj.made(given, alive)
            for late in obj.late_sets:
                late({**given, "self": given[obj.key]})
        return given


# Return the same operator's call for tensors by role and attributes by name; None if it is not supported.
CallOf = Callable[[Specs, Mapping[str, Any]], Subject | None]
Other = Callable[[], Subject | None]


def other_calls(call_of: CallOf, specs: Specs, attributes: Mapping[str, Any]) -> list[list[Other]]:
    """Return factories of two groups of calls: with doubled sizes, and with other strides; attributes differ."""
    # A library that caches by shape must also distinguish strides, hence the second group.
    changed = {name: 2 * value + 1 if type(value) is float else value for name, value in attributes.items()}
    twice = {key: TensorSpec(dtype=x.dtype, shape=tuple(2 * size for size in x.shape)) for key, x in specs.items()}
    relaid = {
        key: spec if index % 2 == 0 else _with_other_strides(spec)  # equal layouts of all tensors could share one loop
        for index, (key, spec) in enumerate(specs.items())
    }
    groups = (((twice, changed), (twice, attributes), (specs, changed)), ((relaid, changed),))
    return [[cache(partial(call_of, *pair)) for pair in group] for group in groups]


def _with_other_strides(spec: TensorSpec) -> TensorSpec:
    """Return the spec with other strides: dense tensors get columns or gaps, others become dense."""
    strides = None
    if spec.is_plain:
        columns = contiguous_strides(spec.shape[::-1])[::-1]
        strides = columns if columns != contiguous_strides(spec.shape) else tuple(2 * x for x in columns)
    return TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides)

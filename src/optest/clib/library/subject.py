"""What is called again and again: an operator's function with what is known of its arguments, what is made before it is
called, and what is done around calls."""

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
            Fault: NOT_REFUSED for a status of success, and NULL; RAISED from ``alive`` if it cannot be destroyed.
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
            alive.callback(self._destroyed, self.destroy, given)
        for each in self.sets:
            each(given, copies)
        if self.fill is not None:
            held.append(self.fill(held[0], given))
        return address

    def _destroyed(self, destroy: PlainCall, given: Given) -> None:
        """Destroy the object; a status of that is no refusal of the case's call, which was taken."""
        try:
            destroy(given)
        except StatusError as error:
            raise Fault(Reason.RAISED, f"{self.name} was not destroyed: {error}") from None

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


Specs = Mapping[str, TensorSpec]


class Subject:
    """An operator's function with everything but its tensors, which come by role.

    Where the function returns an output, what it returned is written into that output's memory. What lasts for many
    calls (a descriptor, a plan) is made once, by :meth:`renewed`. ``others`` make calls of the same operator, of each
    group the first for which the library makes what it needs.
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
        self._c_objects = [each for each in c_objects if not (is_of_a_tensor(each.name) and each.key in without)]
        self._sized = sized
        self._returns = returns
        self._without = dict.fromkeys(without)
        self._lasting = [each for each in self._c_objects if not each.is_late]
        self._late = [each for each in self._c_objects if each.is_late or each.late_sets]
        self.others: Sequence[Sequence[Other]] = ()
        self._given: dict[str, Any] = {}
        self._alive = ExitStack()

    @property
    def name(self) -> str:
        return self._call.function.name

    @property
    def has_descriptors(self) -> bool:
        """Whether anything is made before a call."""
        return bool(self._c_objects)

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        """While inside, calls use what was made just now; with ``forgets`` the arrays of sizes and strides were
        overwritten as soon as the functions that got them had returned.

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

    @contextmanager
    def apart(self, pointers: Given) -> Iterator[Callable[[], None]]:
        """A call with these pointers that has nothing in common with :meth:`run`, made once, for another thread."""
        own = copy(self)
        with own.renewed():
            own.run(pointers)
            yield lambda: own.run(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """While inside, other things of the same kind are alive, which were made after those that :meth:`run` uses."""
        lasts = any(not is_of_a_tensor(each.name) for each in self._lasting)
        with ExitStack() as alive:
            for group in self.others if lasts else ():
                for other in group:
                    with suppress(StatusError, BadCall, Fault):
                        subject = other()
                        if subject is not None:
                            alive.enter_context(subject.alive_beside())
                            break
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
                    alive.callback(copies.clear)  # as long as C may have their addresses
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

    def run(self, pointers: Given) -> None:
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


CallOf = Callable[[Specs, Mapping[str, Any]], Subject | None]
"""Of the same operator for tensors by role and attributes by name; None where it takes none such."""
Other = Callable[[], Subject | None]


def other_calls(call_of: CallOf, specs: Specs, attributes: Mapping[str, Any]) -> list[list[Other]]:
    """One for other attributes and tensors of twice the sizes, as far as the operator takes them; one for the same
    shapes and other attributes, every second tensor in another layout: what is kept for a shape has to be kept for its
    strides too."""
    other = {name: 2 * value + 1 if type(value) is float else value for name, value in attributes.items()}
    twice = {
        key: TensorSpec(dtype=spec.dtype, shape=tuple(2 * size for size in spec.shape)) for key, spec in specs.items()
    }
    relaid = {
        key: spec if index % 2 == 0 else _relaid(spec)  # all of them alike are walked alike
        for index, (key, spec) in enumerate(specs.items())
    }
    groups = (((twice, other), (twice, attributes), (specs, other)), ((relaid, other),))
    return [[cache(partial(call_of, *pair)) for pair in group] for group in groups]


def _relaid(spec: TensorSpec) -> TensorSpec:
    """The same shape in other strides: what is dense lies by columns, or with gaps, everything else dense."""
    strides = None
    if spec.is_plain:
        columns = contiguous_strides(spec.shape[::-1])[::-1]
        strides = columns if columns != contiguous_strides(spec.shape) else tuple(2 * each for each in columns)
    return TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides)

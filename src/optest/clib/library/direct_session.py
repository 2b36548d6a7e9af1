"""A loaded library whose operators are plain functions: bound once, held against the header, called with values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from optest.clib.ffi.calls import Function, bind
from optest.clib.ffi.handles import Handle, Ledger
from optest.clib.ffi.preprocessor import find_header
from optest.clib.ffi.signatures import CKind, CType, Header, Prototype
from optest.clib.ffi.statuses import StatusCodes
from optest.clib.ffi.structs import field_of, structure_of
from optest.clib.library.c_objects import Call, CObject, Step, is_of_a_tensor, key_of_tensor, object_key
from optest.clib.library.config import FfiConfig
from optest.clib.library.direct import DirectCall
from optest.clib.library.direct_arguments import Argument
from optest.clib.library.direct_binding import BoundCase
from optest.clib.library.direct_calls import DirectFunction, PlainCall, PreparedObject
from optest.clib.library.direct_drift import drift_of_operator
from optest.clib.library.direct_values import Late, Values, put
from optest.clib.library.mapping import PLAIN_STATUSES
from optest.clib.library.mapping_lines import drifted
from optest.clib.library.requests import NO_REQUEST, CallRequest
from optest.clib.library.roles import Role, drift, literal
from optest.clib.library.session import header_of, opened, take_handle
from optest.errors import Unavailable, UsageError, nearest
from optest.spec import DType, Fault, dtype

__all__ = ["DirectSession"]


class DirectSession:
    """One library, for as long as its worker lives."""

    fault: Fault | None = None
    """No device is selected, so there is none."""

    def __init__(self, config: FfiConfig) -> None:
        """Load and read the headers.

        Raises:
            Unavailable: for a library or header that is not there.
        """
        self._mapping = config.mapping
        self._mapping_file = config.mapping_file
        self._library = opened(config)
        self._header: Header = header_of(config.headers or [str(find_header(each)) for each in config.mapping.headers])
        self._codes = self._status_codes()
        self._functions: dict[str, Function] = {}
        self._held: set[tuple[int, str]] = set()
        self._ledger = Ledger()
        self._handle: Handle | None = None
        for index, call in enumerate(self._mapping.setup):
            self._set_up(index, call)

    def _set_up(self, index: int, call: Call) -> None:
        """Call one of the functions that come before all others.

        Raises:
            StatusError: if it fails.
        """
        function = self._bound(call.function)
        roles = tuple(map(Role.parse, call.arguments))
        why = drift(f"mapping {self._mapping.name}, setup[{index}]", roles, function.prototype)
        if why is not None:
            raise drifted(why, self._mapping_file, "setup", index)
        given = [None if each.kind == "null" else self._number(each) for each in roles]
        result = function(*given)
        if self._codes is not None and _is_a_status(function.prototype.result):
            self._codes.require(function.name, result)

    def _number(self, role: Role) -> float | int:
        stated = literal(role.name, role.type)
        return self._constant(role.name) if stated is None else stated

    def call(
        self, bound: BoundCase, attributes: Mapping[str, Any], request: CallRequest = NO_REQUEST
    ) -> DirectFunction:
        """The call with everything but its tensors, which come by role: ``input:a``, ``output:out``.

        Raises:
            Unavailable: if the library lacks a function.
            Fault: BAD_CASE where the mapping is not what the headers say.
        """
        entry, element = bound.entry, dtype(bound.dtype)
        self._require_no_drift(entry, element)
        values = Values(
            bound=bound,
            attributes=attributes,
            element=element,
            constant=self._constant,
            handle=lambda: None if "handle" in request.null else self._taken_handle(),
        )
        late: set[str] = set()
        c_objects = []
        for c_object in entry.c_objects():
            if values.is_left_out(c_object):
                continue
            prepared = self._prepared(c_object, values, late)
            if prepared.is_late:
                late.add(f"object:{c_object.name}")
            c_objects.append(prepared)
        sized = entry.asked_for_workspace()
        return DirectFunction(
            self._plain(bound.function, entry.arguments(), values, has_status=not entry.returns),
            c_objects=c_objects,
            sized=None if sized is None else self._sized(sized, values),
            returns=f"output:{entry.returns}" if entry.returns else "",
            without=_without(c_objects, request),
        )

    def synchronize(self) -> None:
        """Plain functions return when they are done."""

    def _plain(self, name: str, arguments: Sequence[Argument], values: Values, *, has_status: bool) -> PlainCall:
        function = self._bound(name)
        codes = self._codes if has_status and _is_a_status(function.prototype.result) else None
        parameters = function.prototype.parameters
        told = [values.of(each, parameter.type) for each, parameter in zip(arguments, parameters, strict=True)]
        return PlainCall(
            function=function,
            values=[None if isinstance(each, Late) else each for each in told],
            late={index: each.key for index, each in enumerate(told) if isinstance(each, Late)},
            behind=values.behind,
            codes=codes,
        )

    def _prepared(self, c_object: CObject, values: Values, late: Collection[str]) -> PreparedObject:
        """``late`` are the keys of objects that can only be made when memory is there."""

        def needs_memory(arguments: Iterable[Argument]) -> bool:
            return any(each.is_late or object_key(each) in late for each in arguments)

        def called(step: Step, *, has_status: bool = True) -> PlainCall:
            name = step.call.named(values.element.name)
            return self._plain(name, step.arguments, values, has_status=has_status)

        fields = [each for _, each in c_object.fields]
        is_late = needs_memory([*(c_object.create.arguments if c_object.create else ()), *fields])
        sets = [(called(step), not is_late and needs_memory(step.arguments)) for step in c_object.set]
        return PreparedObject(
            name=c_object.name,
            create=called(c_object.create) if c_object.create else None,
            sets=[each for each, waits in sets if not waits],
            late_sets=[each for each, waits in sets if waits],
            destroy=called(c_object.destroy) if c_object.destroy else None,
            struct=structure_of(self._header, c_object.struct) if c_object.struct else None,
            fill=self._filler(c_object, values) if c_object.struct else None,
            is_late=is_late,
            said=self._codes.said if self._codes else None,
        )

    def _filler(self, c_object: CObject, values: Values) -> Callable[[Any, Mapping[str, Any]], Any]:
        fields = [(path, field_of(self._header, c_object.struct, path), each) for path, each in c_object.fields]
        told = [(path, field, values.of(each, field.type)) for path, field, each in fields]

        def fill(struct: Any, given: Mapping[str, Any]) -> list[Any]:
            held = [given.get(value.key) if isinstance(value, Late) else value for _, _, value in told]
            for (path, field, value), known in zip(told, held, strict=True):
                behind = values.behind.get(value.key, 0) if isinstance(value, Late) else 0
                put(struct, path, field, known, behind)
            return held

        return fill

    def _sized(self, sized: Step, values: Values) -> PlainCall:
        has_slot = any(each.kind == "slot" for each in sized.arguments)
        return self._plain(sized.call.function, sized.arguments, values, has_status=has_slot)

    def _constant(self, name: str) -> int:
        """Of a number, or of a name of the headers.

        Raises:
            Fault: BAD_CASE if no header has it.
        """
        if name.lstrip("+-").isdecimal():
            return int(name)
        if name not in self._header.constants:
            near = nearest(name, self._header.constants)
            hint = f"; did you mean {near}?" if near else ""
            said = f"mapping {self._mapping.name}: {name} is declared in no header{hint}"
            raise drifted(said, self._mapping_file, "operators")
        return self._header.constants[name]

    def _taken_handle(self) -> Handle:
        """One for all calls, made when the first function wants it.

        Raises:
            StatusError: if the library refuses to make it.
        """
        if self._handle is None:
            where = f"mapping {self._mapping.name}, handle"
            self._handle = take_handle(
                self._ledger, self._mapping.handle, where, self._opaque, self._constant, file=self._mapping_file
            )
        return self._handle

    def _opaque(self, name: str) -> Function:
        """A function that makes or ends a handle; it returns a status, a pointer or nothing."""
        prototype = self._prototype(name)
        return bind(self._library, prototype, codes=self._codes if prototype.result.is_integer else None)

    def _prototype(self, name: str) -> Prototype:
        try:
            return self._header.prototype(name)
        except UsageError as error:
            raise Unavailable(f"function {name}", str(error)) from None

    def _status_codes(self) -> StatusCodes | None:
        mapping = self._mapping
        if not mapping.status:
            return None
        names: Mapping[str, int] = {}
        if mapping.status not in PLAIN_STATUSES:
            try:
                names = self._header.enum(mapping.status)
            except UsageError as error:
                said = f"mapping {mapping.name}, status: {error}"
                raise drifted(said, self._mapping_file, "status") from None
        usual = 1 if mapping.status == "bool" else 0
        stated = [each if isinstance(each, int) else self._constant(each) for each in mapping.statuses.success]
        return StatusCodes.of(names, success=frozenset(stated or [usual]), said=self._said())

    def _said(self) -> Callable[[int], str] | None:
        """What the library says of a status, as text."""
        message = self._mapping.statuses.message
        if message is None:
            return None
        function = bind(self._library, self._prototype(message.function))

        def said(code: int) -> str:
            known = {"status": code, "null": None}
            given = [self._taken_handle() if each == "handle" else known[each] for each in message.arguments]
            text = function(*given)
            return ctypes.string_at(text).decode(errors="replace") if text else ""

        return said

    def _bound(self, name: str) -> Function:
        if name not in self._functions:
            self._functions[name] = bind(self._library, self._prototype(name))
        return self._functions[name]

    def _require_no_drift(self, entry: DirectCall, element: DType) -> None:
        """Ask once for each operator and dtype."""
        key = (id(entry), element.name)
        if key in self._held:
            return
        where = f"mapping {self._mapping.name}"
        has_status = self._codes is not None
        missing = [each for each in self._needed(entry, element) if each not in self._header.prototypes]
        if missing:
            self._prototype(missing[0])
        for each in drift_of_operator(where, entry, element, self._header, has_status=has_status):
            raise drifted(each.why, self._mapping_file, "operators", *self._place_of(entry), *each.keys)
        self._held.add(key)

    def _needed(self, entry: DirectCall, element: DType) -> list[str]:
        sized = entry.asked_for_workspace()
        steps = [step for c_object in entry.c_objects() for step in c_object.steps()]
        own = entry.functions.get(element.name) or next(iter(entry.functions.values()))
        return [own, *(each.call.named(element.name) for each in (*steps, *((sized,) if sized else ())))]

    def _place_of(self, entry: DirectCall) -> tuple[str | int, ...]:
        """The operator that an entry is of, and which of its alternatives it is."""
        places = (
            (name, index)
            for name, alternatives in self._mapping.direct.items()
            for index, each in enumerate(alternatives)
            if each is entry
        )
        return next(places, ())


def _is_a_status(result: CType) -> bool:
    return result.is_integer or result.kind is CKind.BOOL


def _without(c_objects: Sequence[PreparedObject], request: CallRequest) -> frozenset[str]:
    """The objects that a call that has to be refused gets NULL in place of."""
    hidden = [
        f"object:{each.name}" for each in c_objects if "descriptor" in request.null and not is_of_a_tensor(each.name)
    ]
    tensors = [key_of_tensor(each.partition(":")[2]) for each in request.null_descriptor]
    return frozenset([*hidden, *tensors])

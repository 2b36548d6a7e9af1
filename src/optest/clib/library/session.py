"""A loaded library that follows a mapping: its device and handle, and its functions, bound once and held against the
headers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from optest.clib.ffi.calls import Function, StatusCodes, StatusError, bind
from optest.clib.ffi.handles import Handle
from optest.clib.ffi.libraries import Library, open_library
from optest.clib.ffi.preprocessor import find_header
from optest.clib.ffi.signatures import CKind, Header
from optest.clib.library.arguments import Argument, key_of_tensor, literal, parsed
from optest.clib.library.binding import BoundCase
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest
from optest.clib.library.config import FfiConfig
from optest.clib.library.drift import drift_of_arguments, drift_of_entry, functions_of_entry, functions_of_tensors
from optest.clib.library.mapping import PLAIN_STATUSES
from optest.clib.library.mapping_file import drifted, keys_of
from optest.clib.library.operator_mapping import Call, CObject, ObjectEntry, OperatorMapping, Reading, is_of_a_tensor
from optest.clib.library.subject import PlainCall, PreparedObject, Subject
from optest.clib.library.values import Late, Values, field_of, put, structure_of
from optest.errors import Unavailable, UsageError, did_you_mean
from optest.spec import DType, Fault, Reason, dtype

_NO_SUCH_DEVICE = 9_999


class Session:
    """One library on one device, for as long as its worker lives.

    ``fault`` is what the library did wrong when its device was selected. It is no case's: the case that has ``session``
    in its configuration reports it, the others note it.
    """

    def __init__(self, config: FfiConfig) -> None:
        """Load, read the headers, select the device.

        Raises:
            Unavailable: for a library, header, symbol or device that is not there.
            Fault: BAD_CASE where the mapping is not what the headers say.
            StatusError: if a function of ``setup`` fails.
        """
        self._mapping = config.mapping
        self._file = config.mapping_file
        self._library = opened(config)
        self._header: Header = header_of_config(config)
        self._functions: dict[tuple[str, bool], Function] = {}
        self._held: set[tuple[int, str]] = set()
        self._handle: Handle | None = None
        self._wait: Callable[[Mapping[str, Any]], Any] | None = None
        self._codes = self._status_codes()
        for index in range(len(self._mapping.setup)):
            self._whole(f"setup[{index}]")({})
        self._device = {"device": self._mapping.devices[config.device], "device_id": config.device_number}
        self._select(config)
        self.fault = self._fault_of_selection(config)

    def call(
        self,
        bound: BoundCase,
        attributes: Mapping[str, Any],
        scalars: Mapping[str, Any],
        request: CallRequest = NO_REQUEST,
    ) -> Subject:
        """The call with everything but its tensors, which come by role: ``input:a``, ``output:out``.

        Raises:
            Unavailable: if the library lacks a function.
            Fault: BAD_CASE where the mapping is not what the headers say.
            StatusError: if the library refuses to make the handle.
        """
        entry, element, read = bound.entry, dtype(bound.dtype), bound.entry.read
        self._require_no_drift(entry, element)
        values = Values(
            bound=bound,
            attributes=attributes,
            scalars=scalars,
            element=element,
            constant=self._constant,
            handle=lambda: None if "handle" in request.null else self._taken_handle(),
        )
        c_objects = [self._prepared(each, values, read) for each in read.c_objects if not values.is_left_out(each)]
        return Subject(
            self._plain(bound.function, read.arguments, values, has_status=not entry.returns),
            c_objects=c_objects,
            sized=None if entry.workspace is None else self._sized(entry.workspace, values),
            returns=f"output:{entry.returns}" if entry.returns else "",
            without=_without(c_objects, request),
        )

    def synchronize(self) -> None:
        """Wait for the device, with the function that the mapping names; without one nothing is waited for.

        Raises:
            StatusError: if the device reports an error.
        """
        if self._wait is None:
            self._wait = self._whole("synchronize")
        self._wait({})

    def _select(self, config: FfiConfig) -> None:
        try:
            self._whole("set_device")(self._device)
        except StatusError as error:
            raise Unavailable(f"device {config.device}:{config.device_number}", str(error)) from None

    def _fault_of_selection(self, config: FfiConfig) -> Fault | None:
        """STATE if a device that is not there stays selected after it was refused, NOT_REFUSED if it is accepted where
        the mapping promises otherwise; the right one is selected again."""
        if self._mapping.get_device is None:
            return None
        before = self._selected()
        faults: dict[Reason, str] = {}
        for device in dict.fromkeys((self._mapping.devices[config.device], *self._mapping.devices.values())):
            try:
                self._whole("set_device")({"device": device, "device_id": _NO_SUCH_DEVICE})
            except StatusError as error:
                after = self._selected()
                if after != before:
                    detail = f"device {before[0]}:{before[1]} was selected, and then {after[0]}:{after[1]}; {error}"
                    faults.setdefault(Reason.STATE, f"a device that was refused stays selected: {detail}")
            else:
                if "device" in self._mapping.refuses:
                    detail = f"device {device}:{_NO_SUCH_DEVICE}, which no machine has, was selected without an error"
                    faults.setdefault(Reason.NOT_REFUSED, detail)
            self._select(config)
        if not faults:
            return None
        message = "; ".join(faults.values())
        return Fault(next(iter(faults)), message, details={"selected_device": message})

    def _selected(self) -> tuple[int, int]:
        device, number = ctypes.c_int(-1), ctypes.c_int(-1)
        slots = {"device_slot": ctypes.byref(device), "device_id_slot": ctypes.byref(number)}
        self._whole("get_device")(slots)
        return device.value, number.value

    def _whole(self, where: str) -> Callable[[Mapping[str, Any]], Any]:
        """A function that belongs to no operator, held against its prototype; without one nothing is done."""
        call = self._mapping.whole_calls().get(where)
        if call is None:
            return lambda _given: None
        function, arguments = self._bound(call.function), parsed(call.arguments)
        place = f"mapping {self._mapping.name}, {where}"
        why = drift_of_arguments(place, arguments, function.prototype, None, self._header)
        if why:
            raise drifted(why, self._file, *keys_of(where))

        def called(given: Mapping[str, Any]) -> Any:
            known = {"null": None, "stream": None, **given}
            values = [
                known[each.kind] if each.kind in known else self._constant(each.name, each.type) for each in arguments
            ]
            return function.again(function.converted(values))

        return called

    def _plain(self, name: str, arguments: Sequence[Argument], values: Values, *, has_status: bool) -> PlainCall:
        function = self._bound(name, has_status=has_status)
        parameters = function.prototype.parameters
        passed = [values.of(each, parameter.type) for each, parameter in zip(arguments, parameters, strict=True)]
        return PlainCall(
            function,
            [None if isinstance(each, Late) else each for each in passed],
            {index: each.key for index, each in enumerate(passed) if isinstance(each, Late)},
            values.behind,
        )

    def _prepared(self, c_object: CObject, values: Values, read: Reading) -> PreparedObject:
        made, late = c_object.made, read.late_objects
        is_late = c_object.key in late
        calls = {
            key: self._plain(call.named(values.element.name), call.parsed, values, has_status=True)
            for key, call in c_object.calls.items()
        }
        create, destroy = calls.pop("create", None), calls.pop("destroy", None)
        waiting = {
            f"set[{index}]"
            for index, call in enumerate(made.set)
            if not is_late and any(each.is_late or each.made_as in late for each in call.parsed)
        }
        return PreparedObject(
            name=c_object.name,
            create=create,
            sets=[call for key, call in calls.items() if key not in waiting],
            late_sets=[call for key, call in calls.items() if key in waiting],
            destroy=destroy,
            struct=structure_of(self._header, made.struct) if made.struct else None,
            fill=self._filler(made, values) if made.struct else None,
            is_late=is_late,
            is_brief=c_object.key in read.brief_objects,
            said=self._codes.said if self._codes else None,
        )

    def _filler(self, made: ObjectEntry, values: Values) -> Callable[[Any, Mapping[str, Any]], Any]:
        fields = [(path, field_of(self._header, made.struct, path), each) for path, each in made.parsed_fields()]
        known = [(path, field, values.of(each, field.type)) for path, field, each in fields]

        def fill(struct: Any, given: Mapping[str, Any]) -> list[Any]:
            held = []
            for path, field, value in known:
                is_late = isinstance(value, Late)
                held.append(given.get(value.key) if is_late else value)
                put(struct, path, field, held[-1], values.behind.get(value.key, 0) if is_late else 0)
            return held

        return fill

    def _sized(self, call: Call, values: Values) -> PlainCall:
        has_slot = any(each.kind == "slot" for each in call.parsed)
        return self._plain(call.function, call.parsed, values, has_status=has_slot)

    def _constant(self, name: str, type_: str = "int") -> float | int:
        """A number as this type, or the value of a name of the headers; BAD_CASE if no header has it."""
        number = literal(name, type_)
        if number is not None:
            return number
        if name not in self._header.constants:
            hint = did_you_mean(name, self._header.constants, text="; did you mean {}?")
            key = next((key for key, constant in self._mapping.dtypes.items() if constant == name), "")
            why = f"mapping {self._mapping.name}: {name} is declared in no header{hint}"
            raise drifted(why, self._file, *(("dtypes", key) if key else ("operators",)))
        return self._header.constants[name]

    def _taken_handle(self) -> Handle:
        """One for all calls, made when the first function needs it; RAISED for success without a handle."""
        if self._handle is None:
            made, slot = self._mapping.handle, ctypes.c_void_p()
            result = self._whole("handle.create")({"slot": ctypes.byref(slot)})
            pointer = slot.value if "slot" in made.create.arguments else result
            if not pointer:
                detail = "the handle was created without an error, but its pointer is NULL"
                raise Fault(Reason.RAISED, f"{made.create.function}: {detail}")
            self._handle = Handle("handle", pointer, self._bound(made.ended_by), made.ended_by, "")
        return self._handle

    def _status_codes(self) -> StatusCodes | None:
        mapping = self._mapping
        if not mapping.status:
            return None
        names: Mapping[str, int] = {}
        if mapping.status not in PLAIN_STATUSES:
            try:
                names = self._header.enum(mapping.status)
            except UsageError as error:
                raise drifted(f"mapping {mapping.name}, status: {error}", self._file, "status") from None
        usual = 1 if mapping.status == "bool" else 0
        success = [each if isinstance(each, int) else int(self._constant(each)) for each in mapping.statuses.success]
        return StatusCodes.of(names, success=frozenset(success or [usual]), said=self._said())

    def _said(self) -> Callable[[int], str] | None:
        """What the library says of a status, as text."""
        message = self._mapping.statuses.message
        if message is None:
            return None
        function = self._bound(message.function, has_status=False)

        def said(code: int) -> str:
            known = {"status": code, "null": None}
            given = [self._taken_handle() if each == "handle" else known[each] for each in message.arguments]
            text = function(*given)
            return ctypes.string_at(text).decode(errors="replace") if text else ""

        return said

    def _bound(self, name: str, *, has_status: bool = True) -> Function:
        """A function that requires success where its result is a status; Unavailable if headers or library lack it."""
        key = (name, has_status)
        if key not in self._functions:
            try:
                prototype = self._header.prototype(name)
            except UsageError as error:
                raise Unavailable(f"function {name}", str(error)) from None
            is_status = prototype.result.is_integer or prototype.result.kind is CKind.BOOL
            codes = self._codes if has_status and is_status else None
            self._functions[key] = bind(self._library, prototype, codes=codes)
        return self._functions[key]

    def _require_no_drift(self, entry: OperatorMapping, element: DType) -> None:
        """Ask once for each operator and dtype."""
        key = (id(entry), element.name)
        if key in self._held:
            return
        for each in (*functions_of_entry(entry, (element.name,)), *functions_of_tensors((entry,))):
            self._bound(each)
        place = next(
            (name, index)
            for name, alternatives in self._mapping.operators.items()
            for index, each in enumerate(alternatives)
            if each is entry
        )
        for found in drift_of_entry(self._mapping, place, element, self._header):
            raise drifted(found.why, self._file, *found.keys)
        self._held.add(key)


def opened(config: FfiConfig) -> Library:
    """The library that a case names, else the mapping's own."""
    if config.objects:
        return open_library(config.objects)
    return open_library(config.mapping.library, root=config.root)


def header_of_config(config: FfiConfig) -> Header:
    """The headers that a case names, else the mapping's own."""
    return _header_of(tuple(config.headers or [str(find_header(each)) for each in config.mapping.headers]))


@lru_cache(maxsize=8)
def _header_of(headers: tuple[str, ...]) -> Header:
    """Read once, as a library is loaded once."""
    try:
        return header_of(headers)
    except UsageError as error:
        raise Unavailable("what the library declares", str(error)) from None


def header_of(headers: Sequence[str]) -> Header:
    """The headers, read; pycparser is asked for here and nowhere before."""
    try:
        from optest.clib.ffi.headers import read_headers
    except ImportError:
        raise Unavailable("pycparser", "C headers cannot be read without it; pip install pycparser") from None
    return read_headers([Path(each) for each in headers])


def _without(c_objects: Sequence[PreparedObject], request: CallRequest) -> frozenset[str]:
    """The objects that a call that has to be refused gets NULL in place of."""
    hidden = [each.key for each in c_objects if "descriptor" in request.null and not is_of_a_tensor(each.name)]
    return frozenset([*hidden, *(key_of_tensor(each.partition(":")[2]) for each in request.null_descriptor)])

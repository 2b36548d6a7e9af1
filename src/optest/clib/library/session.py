"""A loaded library that follows a mapping: device, handle, and functions that are checked against the headers once."""

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
from optest.clib.library.arguments import Argument, key_of_tensor, literal, parse_arguments
from optest.clib.library.binding import BoundCase
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest
from optest.clib.library.config import FfiConfig
from optest.clib.library.drift import drift_of_arguments, drift_of_entry, functions_of_entry, functions_of_tensors
from optest.clib.library.mapping import PLAIN_STATUSES
from optest.clib.library.mapping_file import drift_fault, keys_of
from optest.clib.library.operator_mapping import CObject, ObjectEntry, OperatorMapping, Reading, is_of_a_tensor
from optest.clib.library.subject import PlainCall, PreparedObject, Subject
from optest.clib.library.values import Late, Values, field_of, put, structure_of
from optest.errors import Unavailable, UsageError, did_you_mean
from optest.spec import DType, Fault, Reason, dtype

_NO_SUCH_DEVICE = 9_999  # no machine has so many


class Session:
    """One library on one device, for the lifetime of its worker.

    ``fault`` is a fault of the library during device selection. The case with ``session`` in its configuration reports
    it; other cases carry a note.
    """

    def __init__(self, config: FfiConfig) -> None:
        """Load library and headers, select the device; raise Unavailable, BAD_CASE (drift) or StatusError."""
        self._mapping = config.mapping
        self._mapping_file = config.mapping_file
        self._library = load_library(config)
        self._header: Header = header_of_config(config)
        self._functions: dict[tuple[str, bool], Function] = {}
        self._checked: set[tuple[int, str]] = set()
        self._handle: Handle | None = None
        self._synchronize: Callable[[Mapping[str, Any]], Any] | None = None
        self._codes = self._status_codes()
        for index in range(len(self._mapping.setup)):
            self._global_call(f"setup[{index}]")({})
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
        """Return the call without its tensors, which come by role; raise Unavailable, BAD_CASE or StatusError."""
        entry, element, read = bound.entry, dtype(bound.dtype), bound.entry.read
        self._require_no_drift(entry, element)
        values = Values(
            bound=bound,
            attributes=attributes,
            scalars=scalars,
            element=element,
            constant=self._constant,
            handle=lambda: None if "handle" in request.null else self._get_handle(),
        )
        c_objects = [self._prepare_object(obj, values, read) for obj in read.c_objects if not values.is_left_out(obj)]
        # A wrong call gets NULL in place of these objects.
        hidden = [obj.key for obj in c_objects if "descriptor" in request.null and not is_of_a_tensor(obj.name)]
        hidden += [key_of_tensor(key.partition(":")[2]) for key in request.null_descriptor]
        sized = None
        if (size := entry.workspace) is not None:
            # Without a slot the function returns the size itself, which is no status.
            has_slot = any(arg.kind == "slot" for arg in size.parsed)
            sized = self._plain_call(size.function, size.parsed, values, has_status=has_slot)
        return Subject(
            self._plain_call(bound.function, read.arguments, values, has_status=not entry.returns),
            c_objects=c_objects,
            sized=sized,
            returns=f"output:{entry.returns}" if entry.returns else "",
            without=frozenset(hidden),
        )

    def synchronize(self) -> None:
        """Wait for the device if the mapping has a function for it; raise StatusError for the device's error."""
        if self._synchronize is None:
            self._synchronize = self._global_call("synchronize")
        self._synchronize({})

    def _select(self, config: FfiConfig) -> None:
        try:
            self._global_call("set_device")(self._device)
        except StatusError as error:
            raise Unavailable(f"device {config.device}:{config.device_number}", str(error)) from None

    def _fault_of_selection(self, config: FfiConfig) -> Fault | None:
        """Try invalid devices; return STATE if one stays selected, NOT_REFUSED if wrongly accepted, else None."""
        if self._mapping.get_device is None:
            return None
        before = self._selected_device()
        faults: dict[Reason, str] = {}
        for device in dict.fromkeys((self._mapping.devices[config.device], *self._mapping.devices.values())):
            try:
                self._global_call("set_device")({"device": device, "device_id": _NO_SUCH_DEVICE})
            except StatusError as error:
                after = self._selected_device()
                if after != before:
                    detail = f"device {before[0]}:{before[1]} was selected, and then {after[0]}:{after[1]}; {error}"
                    faults.setdefault(Reason.STATE, f"a refused device stays selected: {detail}")
            else:
                if "device" in self._mapping.refuses:
                    detail = f"device {device}:{_NO_SUCH_DEVICE}, which no machine has, was selected without an error"
                    faults.setdefault(Reason.NOT_REFUSED, detail)
            self._select(config)  # the cases need the valid device
        if not faults:
            return None
        message = "; ".join(faults.values())
        return Fault(next(iter(faults)), message, details={"selected_device": message})

    def _selected_device(self) -> tuple[int, int]:
        device, number = ctypes.c_int(-1), ctypes.c_int(-1)
        slots = {"device_slot": ctypes.byref(device), "device_id_slot": ctypes.byref(number)}
        self._global_call("get_device")(slots)
        return device.value, number.value

    def _global_call(self, where: str) -> Callable[[Mapping[str, Any]], Any]:
        """Return a call that belongs to no operator, checked against its prototype; a no-op if it is not set."""
        call = self._mapping.global_calls().get(where)
        if call is None:
            return lambda _given: None
        function, arguments = self._function(call.function), parse_arguments(call.arguments)
        place = f"mapping {self._mapping.name}, {where}"
        why = drift_of_arguments(place, arguments, function.prototype, None, self._header)
        if why:
            raise drift_fault(why, self._mapping_file, *keys_of(where))

        def call_function(values_by_kind: Mapping[str, Any]) -> Any:
            available = {"null": None, "stream": None, **values_by_kind}
            passed = [available[x.kind] if x.kind in available else self._constant(x.name, x.type) for x in arguments]
            return function.call_converted(function.convert_arguments(passed))

        return call_function

    def _plain_call(self, name: str, arguments: Sequence[Argument], values: Values, *, has_status: bool) -> PlainCall:
        """Return a C call with its known arguments; late ones are filled in at each call."""
        function = self._function(name, has_status=has_status)
        parameters = function.prototype.parameters
        passed = [values.of(x, parameter.type) for x, parameter in zip(arguments, parameters, strict=True)]
        return PlainCall(
            function,
            [None if isinstance(value, Late) else value for value in passed],
            {index: value.key for index, value in enumerate(passed) if isinstance(value, Late)},
            values.behind,
        )

    def _prepare_object(self, obj: CObject, values: Values, read: Reading) -> PreparedObject:
        """Return an object with its create, set and destroy calls; calls that need memory are ``late_sets``."""
        template, late = obj.made, read.late_objects
        is_late = obj.key in late
        calls = {
            key: self._plain_call(call.named(values.element.name), call.parsed, values, has_status=True)
            for key, call in obj.calls.items()
        }
        create, destroy = calls.pop("create", None), calls.pop("destroy", None)
        late_keys = {
            f"set[{index}]"
            for index, call in enumerate(template.set)
            if not is_late and any(arg.is_late or arg.object_key in late for arg in call.parsed)
        }
        return PreparedObject(
            name=obj.name,
            create=create,
            sets=[call for key, call in calls.items() if key not in late_keys],
            late_sets=[call for key, call in calls.items() if key in late_keys],
            destroy=destroy,
            struct=structure_of(self._header, template.struct) if template.struct else None,
            fill=self._struct_filler(template, values) if template.struct else None,
            is_late=is_late,
            is_brief=obj.key in read.brief_objects,
            read_message=self._codes.said if self._codes else None,
        )

    def _struct_filler(self, template: ObjectEntry, values: Values) -> Callable[[Any, Mapping[str, Any]], Any]:
        """Return a function that fills in a struct's fields and returns the values that must stay alive."""
        fields = [(path, field_of(self._header, template.struct, path), arg) for path, arg in template.parsed_fields()]
        known = [(path, field, values.of(x, field.type)) for path, field, x in fields]

        def fill(struct: Any, given: Mapping[str, Any]) -> list[Any]:
            kept = []
            for path, field, value in known:
                is_late = isinstance(value, Late)
                kept.append(given.get(value.key) if is_late else value)
                put(struct, path, field, kept[-1], values.behind.get(value.key, 0) if is_late else 0)
            return kept

        return fill

    def _constant(self, name: str, type_: str = "int") -> float | int:
        """Return the number, or the value of a name from the headers; raise BAD_CASE if no header declares it."""
        number = literal(name, type_)
        if number is not None:
            return number
        if name not in self._header.constants:
            hint = did_you_mean(name, self._header.constants, text="; did you mean {}?")
            key = next((key for key, constant in self._mapping.dtypes.items() if constant == name), "")
            why = f"mapping {self._mapping.name}: {name} is declared in no header{hint}"
            raise drift_fault(why, self._mapping_file, *(("dtypes", key) if key else ("operators",)))
        return self._header.constants[name]

    def _get_handle(self) -> Handle:
        """Return the handle, created at the first use; raise RAISED for success with a NULL handle."""
        if self._handle is None:
            template, slot = self._mapping.handle, ctypes.c_void_p()
            result = self._global_call("handle.create")({"slot": ctypes.byref(slot)})
            pointer = slot.value if "slot" in template.create.arguments else result
            if not pointer:
                detail = "the handle was created without an error, but its pointer is NULL"
                raise Fault(Reason.RAISED, f"{template.create.function}: {detail}")
            self._handle = Handle("handle", pointer, self._function(template.destructor), template.destructor, "")
        return self._handle

    def _status_codes(self) -> StatusCodes | None:
        """Return the names and success values of statuses; None if the mapping has no status."""
        mapping = self._mapping
        if not mapping.status:
            return None
        names: Mapping[str, int] = {}
        if mapping.status not in PLAIN_STATUSES:
            try:
                names = self._header.enum(mapping.status)
            except UsageError as error:
                raise drift_fault(f"mapping {mapping.name}, status: {error}", self._mapping_file, "status") from None
        default = 1 if mapping.status == "bool" else 0
        success = [x if isinstance(x, int) else int(self._constant(x)) for x in mapping.statuses.success]
        return StatusCodes.of(names, success=frozenset(success or [default]), said=self._message_reader())

    def _message_reader(self) -> Callable[[int], str] | None:
        """Return a function that reads the library's message for a status; None if the mapping sets no such call."""
        message = self._mapping.statuses.message
        if message is None:
            return None
        function = self._function(message.function, has_status=False)

        def said(code: int) -> str:
            known = {"status": code, "null": None}
            arguments = [self._get_handle() if arg == "handle" else known[arg] for arg in message.arguments]
            text = function(*arguments)
            return ctypes.string_at(text).decode(errors="replace") if text else ""

        return said

    def _function(self, name: str, *, has_status: bool = True) -> Function:
        """Return a function, cached, that raises for a failure status; raise Unavailable if it is missing."""
        key = (name, has_status)  # a result that is an output must not be read as a status
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
        """Check an entry against the headers, once for each operator and dtype."""
        key = (id(entry), element.name)
        if key in self._checked:
            return
        for name in (*functions_of_entry(entry, (element.name,)), *functions_of_tensors((entry,))):
            self._function(name)
        place = next(
            (operator, index)
            for operator, alternatives in self._mapping.operators.items()
            for index, other in enumerate(alternatives)
            if other is entry
        )
        for diff in drift_of_entry(self._mapping, place, element, self._header):
            raise drift_fault(diff.why, self._mapping_file, *diff.keys)
        self._checked.add(key)


def load_library(config: FfiConfig) -> Library:
    """Load the library that a case names, else the mapping's default."""
    if config.objects:
        return open_library(config.objects)
    return open_library(config.mapping.library, root=config.root)


def header_of_config(config: FfiConfig) -> Header:
    """Return the parsed headers that a case names, else the mapping's default."""
    return _cached_header(tuple(config.headers or [str(find_header(path)) for path in config.mapping.headers]))


@lru_cache(maxsize=8)
def _cached_header(headers: tuple[str, ...]) -> Header:
    """Return the parsed headers, cached; raise Unavailable if they cannot be read."""
    try:
        return header_of(headers)
    except UsageError as error:
        raise Unavailable("the library's headers", str(error)) from None


def header_of(headers: Sequence[str]) -> Header:
    """Read the headers; raise Unavailable without pycparser, which is imported only here."""
    try:
        from optest.clib.ffi.headers import read_headers
    except ImportError:
        raise Unavailable("pycparser", "C headers cannot be read without it; pip install pycparser") from None
    return read_headers([Path(path) for path in headers])

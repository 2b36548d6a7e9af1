"""A loaded library that follows a mapping: its handle, its operators' functions, and the descriptors of one case."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.clib.ffi.calls import Function, bind
from optest.clib.ffi.handles import Handle, HandleError, Ledger
from optest.clib.ffi.libraries import Library, open_library
from optest.clib.ffi.signatures import Header
from optest.clib.ffi.statuses import StatusCodes, StatusError
from optest.clib.library.c_objects import ObjectEntry
from optest.clib.library.config import FfiConfig
from optest.clib.library.descriptors import BoundCall, BoundOperator, Descriptor, Recipe, TensorFunctions
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_lines import drifted
from optest.clib.library.roles import Role, drift, literal
from optest.errors import Unavailable, UsageError, nearest
from optest.spec import Fault, Reason, TensorSpec, contiguous_strides

__all__ = ["Session", "header_of", "opened"]

Values = Mapping[str, Any]

_NO_SUCH_DEVICE = 9_999


class Session:
    """One library on one device, for as long as its worker lives.

    ``fault`` is what the library did wrong when its device was selected. It is no case's: the case that has ``session``
    in its configuration reports it, the others note it.
    """

    def __init__(self, config: FfiConfig) -> None:
        """Load, read the headers, select the device, take a handle.

        Raises:
            Unavailable: for a library, header, symbol or device that is not there.
            Fault: BAD_CASE where the mapping is not what the headers say.
        """
        self.mapping: LibraryMapping = config.mapping
        self._mapping_file = config.mapping_file
        self._library = opened(config)
        self._header = header_of(config.headers)
        self._codes = StatusCodes.of(self._statuses())
        self._ledger = Ledger()
        self._operators: dict[str, BoundOperator] = {}
        self._synchronize: BoundCall | None = None
        self._select(config)
        self.fault = self._fault_of_selection(config)
        self._create_tensor = self._call(
            "tensor", self.mapping.tensor.create.function, self.mapping.tensor.create.arguments
        )
        self._destroy_tensor = self._function(self.mapping.tensor.ended_by)
        self._handle = self._take_handle()

    def operator(self, name: str) -> BoundOperator:
        """The functions of one of optest's operators; bound once.

        Raises:
            Unavailable: if the library lacks one of them.
            Fault: BAD_CASE where the mapping is not what the headers say.
        """
        if name not in self._operators:
            self._operators[name] = self._bound(name)
        return self._operators[name]

    def recipe(self, operator: BoundOperator, specs: Mapping[str, TensorSpec | None], further: Values) -> Recipe:
        """What makes the operator's descriptors for tensors by role, None for one that is left out."""
        values = {"handle": self._handle, **further}
        tensors = TensorFunctions(
            create=self._create_tensor, destroy=self._destroy_tensor, values=self._values_of_tensor
        )
        return Recipe(f"{operator.name} descriptor", operator.create, operator.destroy, tensors, specs, values)

    def workspace_of(self, operator: BoundOperator) -> Callable[[Descriptor], int]:
        """What asks a descriptor of the operator for its workspace, in bytes; the first call is checked."""
        function = operator.workspace
        if function is None:
            return lambda _: 0
        size = ctypes.c_size_t()
        slot = ctypes.byref(size)
        is_checked = False

        def ask(descriptor: Descriptor) -> int:
            nonlocal is_checked
            size.value = 0
            if is_checked:
                function.again((descriptor.address, slot))
            else:
                function.succeed(descriptor, slot)
                is_checked = True
            return size.value

        return ask

    def synchronize(self) -> None:
        """Wait for the device, with the function that the mapping names; without one nothing is waited for.

        Raises:
            StatusError: if the device reports an error.
        """
        call = self.mapping.synchronize
        if call is not None and self._synchronize is None:
            self._synchronize = self._call("synchronize", call.function, call.arguments)
        if self._synchronize is not None:
            self._synchronize({"stream": None, "null": None})

    def _values_of_tensor(self, spec: TensorSpec) -> dict[str, Any]:
        rank = spec.rank
        strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
        return {
            "ndim": rank,
            "shape": (ctypes.c_size_t * rank)(*spec.shape),
            "strides": (ctypes.c_ssize_t * rank)(*strides),
            "dtype": self._dtype(spec),
        }

    def _dtype(self, spec: TensorSpec) -> int:
        return self.constant(self.mapping.dtypes[spec.dtype.name])

    def constant(self, name: str) -> int:
        """The value of a name in the headers.

        Raises:
            Fault: BAD_CASE if no header has it.
        """
        if name not in self._header.constants:
            near = nearest(name, self._header.constants)
            hint = f"; did you mean {near}?" if near else ""
            said = f"mapping {self.mapping.name}: {name} is declared in no header{hint}"
            key = next((key for key, constant in self.mapping.dtypes.items() if constant == name), "")
            raise drifted(said, self._mapping_file, *(("dtypes", key) if key else ("operators",)))
        return self._header.constants[name]

    def _statuses(self) -> Mapping[str, int]:
        try:
            return self._header.enum(self.mapping.status)
        except UsageError as error:
            said = f"mapping {self.mapping.name}, status: {error}"
            raise drifted(said, self._mapping_file, "status") from None

    def _select(self, config: FfiConfig) -> None:
        call = self._call("set_device", self.mapping.set_device.function, self.mapping.set_device.arguments)
        try:
            call({"device": self.mapping.devices[config.device], "device_id": config.device_number})
        except StatusError as error:
            raise Unavailable(f"device {config.device}:{config.device_number}", str(error)) from None

    def _fault_of_selection(self, config: FfiConfig) -> Fault | None:
        """STATE if a device that is not there stays selected after it was refused; the right one is selected again."""
        if self.mapping.get_device is None:
            return None
        select = self._call("set_device", self.mapping.set_device.function, self.mapping.set_device.arguments)
        selected = self._call("get_device", self.mapping.get_device.function, self.mapping.get_device.arguments)
        before = self._selected(selected)
        fault = None
        for device in dict.fromkeys((self.mapping.devices[config.device], *self.mapping.devices.values())):
            try:
                select({"device": device, "device_id": _NO_SUCH_DEVICE})
            except StatusError as error:  # noqa: PERF203 - each device is refused by itself
                after = self._selected(selected)
                if after != before:
                    detail = f"device {before[0]}:{before[1]} was selected, and then {after[0]}:{after[1]}"
                    message = f"a device that was refused stays selected: {detail}; {error}"
                    fault = Fault(Reason.STATE, message, details={"selected_device": detail})
                    break
        self._select(config)
        return fault

    def _selected(self, get_device: BoundCall) -> tuple[int, int]:
        device, number = ctypes.c_int(-1), ctypes.c_int(-1)
        get_device({"device_slot": ctypes.byref(device), "device_id_slot": ctypes.byref(number)})
        return device.value, number.value

    def _take_handle(self) -> Handle:
        where = f"mapping {self.mapping.name}, handle"
        return take_handle(
            self._ledger, self.mapping.handle, where, self._function, self.constant, file=self._mapping_file
        )

    def _bound(self, name: str) -> BoundOperator:
        entry = self.mapping.operators[name]
        functions = {
            part: getattr(self.mapping.protocol, part).replace("{name}", entry.name)
            for part in ("create", "workspace", "run", "destroy")
        }
        return BoundOperator(
            name=entry.name,
            create=self._call(f"operators.{name}.create", functions["create"], entry.create),
            run=self._call(f"operators.{name}.run", functions["run"], entry.run),
            destroy=self._function(functions["destroy"]),
            workspace=self._function(functions["workspace"]) if entry.workspace else None,
        )

    def _call(self, where: str, name: str, arguments: Sequence[str]) -> BoundCall:
        function = self._function(name)
        roles = tuple(map(Role.parse, arguments))
        why = drift(f"mapping {self.mapping.name}, {where}", roles, function.prototype)
        if why is not None:
            raise drifted(why, self._mapping_file, *where.split("."))
        return BoundCall(function=function, roles=roles, keys=tuple(role.key for role in roles))

    def _function(self, name: str) -> Function:
        try:
            prototype = self._header.prototype(name)
        except UsageError as error:
            raise Unavailable(f"function {name}", str(error)) from None
        return bind(self._library, prototype, codes=self._codes)


def opened(config: FfiConfig) -> Library:
    """The library that a case names, else the mapping's own."""
    if config.objects:
        return open_library(config.objects)
    return open_library(config.mapping.library, root=config.root)


def header_of(headers: Sequence[str]) -> Header:
    """The headers, read; pycparser is asked for here and nowhere before."""
    try:
        from optest.clib.ffi.headers import read_headers
    except ImportError:
        raise Unavailable("pycparser", "C headers cannot be read without it; pip install 'optest[ffi]'") from None
    try:
        return read_headers([Path(each) for each in headers])
    except UsageError as error:
        raise Unavailable("what the library declares", str(error)) from None


def take_handle(
    ledger: Ledger,
    made: ObjectEntry,
    where: str,
    function: Callable[[str], Function],
    constant: Callable[[str], int],
    *,
    file: Path,
) -> Handle:
    """A handle that lives in ``ledger``. ``function`` binds by name, ``constant`` gives the value of a header's name;
    ``file`` is the mapping's.

    Raises:
        StatusError: if the library refuses.
        Fault: BAD_CASE where the mapping is not what the headers say; RAISED for success without a handle.
    """
    create, destroy = function(made.create.function), function(made.ended_by)
    roles = tuple(map(Role.parse, made.create.arguments))
    why = drift(where, roles, create.prototype)
    if why is not None:
        raise drifted(why, file, "handle", "create", "arguments")
    values = {role.key: _value(role, constant) for role in roles if role.kind != "slot"}
    try:
        if any(role.kind == "slot" for role in roles):
            return ledger.make("handle", lambda slot: _called(create, roles, {**values, "slot": slot}), destroy)
        return _returned(ledger, _called(create, roles, values), destroy)
    except HandleError as error:
        raise Fault(Reason.RAISED, f"{create.name}: {error}") from None


def _value(role: Role, constant: Callable[[str], int]) -> Any:
    if role.kind == "null":
        return None
    number = literal(role.name, role.type)
    return constant(role.name) if number is None else number


def _called(create: Function, roles: Sequence[Role], values: dict[str, Any]) -> Any:
    result = create(*[values[role.key] for role in roles])
    if create.codes is not None:
        create.codes.require(create.name, result)
    return result


def _returned(ledger: Ledger, pointer: int | None, destroy: Function) -> Handle:
    if not pointer:
        raise HandleError("the handle that it returned is NULL")
    return ledger.adopt("handle", pointer, destroy)

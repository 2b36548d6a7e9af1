"""A loaded library that follows a mapping: its handle, its operators' functions, and the descriptors of one case."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.backends.ffi_config import FfiConfig
from optest.backends.ffi_mapping import LibraryMapping, Role, drift
from optest.errors import Unavailable, UsageError
from optest.ffi.calls import Function, bind
from optest.ffi.handles import Handle, HandleError, Ledger
from optest.ffi.libraries import Library, open_library
from optest.ffi.signatures import Header
from optest.ffi.statuses import StatusCodes, StatusError
from optest.spec import Fault, Reason, TensorSpec, contiguous_strides

__all__ = ["BoundOperator", "Session"]

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCall:
    """A C function and the roles of its arguments, checked against its prototype."""

    function: Function
    roles: tuple[Role, ...]

    def __call__(self, values: Values) -> None:
        """Call with the values of the roles and require success.

        Raises:
            StatusError: for any other status.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        self.function.succeed(*[values[role.key] for role in self.roles])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOperator:
    """The functions of one operator; ``workspace`` is None where it has none."""

    name: str
    create: BoundCall
    run: BoundCall
    destroy: Function
    workspace: Function | None


class Session:
    """One library on one device, for as long as its worker lives."""

    def __init__(self, config: FfiConfig) -> None:
        """Load, read the headers, select the device, take a handle.

        Raises:
            Unavailable: for a library, header, symbol or device that is not there.
            Fault: BAD_CASE where the mapping is not what the headers say.
        """
        self.mapping: LibraryMapping = config.mapping
        self._library = _opened(config)
        self._header = _header(config.headers)
        self._codes = StatusCodes.of(_enum(self._header, self.mapping))
        self._ledger = Ledger()
        self._operators: dict[str, BoundOperator] = {}
        self._select(config)
        self._create_tensor = self._call(
            "tensor", self.mapping.tensor.create.function, self.mapping.tensor.create.arguments
        )
        self._destroy_tensor = self._function(self.mapping.tensor.destroy)
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

    @contextmanager
    def described(
        self, operator: BoundOperator, specs: Mapping[str, TensorSpec | None], further: Values
    ) -> Iterator[Handle]:
        """An operator descriptor for tensors by role; their own descriptors are gone when the caller gets it.

        Raises:
            StatusError: if the library refuses.
            Fault: NOT_REFUSED for success without a descriptor.
        """
        with Ledger() as tensors:
            made = {role: None if spec is None else self._tensor(tensors, role, spec) for role, spec in specs.items()}
            values = {**made, **further, "handle": self._handle, "null": None}
            try:
                descriptor = self._ledger.make(
                    f"{operator.name} descriptor",
                    lambda slot: operator.create({**values, "slot": slot}),
                    operator.destroy.succeed,
                )
            except HandleError as error:
                function = operator.create.function.name
                raise Fault(Reason.NOT_REFUSED, f"{function} returned success, but no descriptor: {error}") from None
        with descriptor:
            yield descriptor

    def workspace_bytes(self, operator: BoundOperator, descriptor: Handle) -> int:
        if operator.workspace is None:
            return 0
        size = ctypes.c_size_t()
        operator.workspace.succeed(descriptor, ctypes.byref(size))
        return size.value

    def _tensor(self, ledger: Ledger, role: str, spec: TensorSpec) -> Handle:
        rank = spec.rank
        strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
        values = {
            "ndim": rank,
            "shape": (ctypes.c_size_t * rank)(*spec.shape),
            "strides": (ctypes.c_ssize_t * rank)(*strides),
            "dtype": self._dtype(spec),
        }
        return ledger.make(
            f"descriptor of {role}",
            lambda slot: self._create_tensor({**values, "slot": slot}),
            self._destroy_tensor.succeed,
        )

    def _dtype(self, spec: TensorSpec) -> int:
        name = self.mapping.dtypes[spec.dtype.name]
        if name not in self._header.constants:
            raise Fault(Reason.BAD_CASE, f"mapping {self.mapping.name}: {name} is declared in no header")
        return self._header.constants[name]

    def _select(self, config: FfiConfig) -> None:
        call = self._call("set_device", self.mapping.set_device.function, self.mapping.set_device.arguments)
        try:
            call({"device": self.mapping.devices[config.device], "device_id": config.device_number})
        except StatusError as error:
            raise Unavailable(f"device {config.device}:{config.device_number}", str(error)) from None

    def _take_handle(self) -> Handle:
        create = self.mapping.handle.create
        call = self._call("handle", create.function, create.arguments)
        destroy = self._function(self.mapping.handle.destroy)
        return self._ledger.make("handle", lambda slot: call({"slot": slot}), destroy.succeed)

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
            raise Fault(Reason.BAD_CASE, why)
        return BoundCall(function=function, roles=roles)

    def _function(self, name: str) -> Function:
        try:
            prototype = self._header.prototype(name)
        except UsageError as error:
            raise Unavailable(f"function {name}", str(error)) from None
        return bind(self._library, prototype, codes=self._codes)


def _opened(config: FfiConfig) -> Library:
    if config.objects:
        return open_library(config.objects)
    return open_library(config.mapping.library, root=config.root)


def _header(headers: Sequence[str]) -> Header:
    """The headers, read; pycparser is asked for here and nowhere before."""
    try:
        from optest.ffi.headers import read_headers
    except ImportError:
        raise Unavailable("pycparser", "C headers cannot be read without it; pip install 'optest[ffi]'") from None
    try:
        return read_headers([Path(each) for each in headers])
    except UsageError as error:
        raise Unavailable("what the library declares", str(error)) from None


def _enum(header: Header, mapping: LibraryMapping) -> Mapping[str, int]:
    try:
        return header.enum(mapping.status)
    except UsageError as error:
        raise Fault(Reason.BAD_CASE, f"mapping {mapping.name}, status: {error}") from None

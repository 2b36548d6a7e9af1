"""A loaded library whose operators are plain functions: bound once, held against the header, called with values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optest.backends.c_library.config import FfiConfig
from optest.backends.c_library.direct import Argument, DirectCall
from optest.backends.c_library.direct_binding import BoundCase
from optest.backends.c_library.direct_drift import drift_of_direct
from optest.backends.c_library.mapping_lines import drifted
from optest.backends.c_library.opaque import take_handle
from optest.backends.c_library.roles import ELEMENTS
from optest.backends.c_library.session import header_of, opened
from optest.errors import Unavailable, UsageError, nearest
from optest.ffi.calls import Function, bind
from optest.ffi.handles import Handle, Ledger
from optest.ffi.preprocessor import find_header
from optest.ffi.signatures import CType, Header, Parameter, Prototype
from optest.ffi.statuses import StatusCodes
from optest.numerics import numpy_dtype
from optest.spec import DType, dtype

__all__ = ["DirectSession"]


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An address inside a buffer, for a function that wants another one than that of element [0, 0, …]."""

    address: int
    element: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectFunction:
    """A function with everything but its tensors, which come by role; ``behind`` is in bytes.

    Where the function returns an output, what it returned is written into that output's memory.
    """

    function: Function
    values: Sequence[Any]
    tensors: Mapping[int, str]
    behind: Mapping[str, int]
    returns: str

    def __call__(self, pointers: Mapping[str, Any]) -> None:
        """Call, and require success if the result is a status.

        Raises:
            StatusError: for any other status.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        result = self.function(*self._arguments(pointers))
        if self.returns:
            pointers[self.returns].array[...] = result
        elif self.function.codes is not None:
            self.function.codes.require(self.function.name, result)

    def ready(self, pointers: Mapping[str, Any]) -> Callable[[], Any]:
        """The call with these tensors, checked once, for timings."""
        return self.function.ready(*self._arguments(pointers))

    def _arguments(self, pointers: Mapping[str, Any]) -> list[Any]:
        made = list(self.values)
        for index, key in self.tensors.items():
            made[index] = _pointer(pointers.get(key), self.behind.get(key, 0))
        return made


class DirectSession:
    """One library, for as long as its worker lives."""

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
        self._functions: dict[tuple[Any, ...], Function] = {}
        self._ledger = Ledger()
        self._handle: Handle | None = None

    def call(self, bound: BoundCase, attributes: Mapping[str, Any]) -> DirectFunction:
        """The call with everything but its tensors, which come by role: ``input:a``, ``output:out``.

        Raises:
            Unavailable: if the library lacks the function.
            Fault: BAD_CASE where the mapping is not what the headers say.
        """
        element = next(dtype(name) for name, each in bound.entry.functions.items() if each == bound.function)
        function = self._function(bound.entry, bound.function, element)
        values: list[Any] = []
        tensors: dict[int, str] = {}
        for index, argument in enumerate(bound.entry.arguments()):
            parameter = function.prototype.parameters[index]
            if argument.kind in ("input", "output"):
                tensors[index] = argument.key
                values.append(None)
            else:
                values.append(self._value(argument, bound, attributes, parameter, element))
        return DirectFunction(
            function=function,
            values=values,
            tensors=tensors,
            behind={key: steps * element.itemsize_bytes for key, steps in bound.behind.items() if steps},
            returns=f"output:{bound.entry.returns}" if bound.entry.returns else "",
        )

    def synchronize(self) -> None:
        """Plain functions return when they are done."""

    def _value(
        self, argument: Argument, bound: BoundCase, attributes: Mapping[str, Any], parameter: Parameter, element: DType
    ) -> Any:
        if argument.kind == "null":
            return None
        if argument.kind == "handle":
            return self._taken_handle()
        if argument.kind == "constant" and not argument.type:
            return self._constant(argument.name)
        if argument.kind in ("constant", "attribute"):
            stated = argument.name if argument.kind == "constant" else attributes[argument.name]
            if argument.kind == "attribute" and isinstance(stated, str):
                return self._constant(stated)
            return _number(stated, argument.type, parameter.type, element)
        value = bound.values[argument]
        if isinstance(value, tuple):
            return (ELEMENTS[argument.type.removesuffix("[]")] * len(value))(*value)
        return self._constant(value) if isinstance(value, str) else value

    def _constant(self, name: str) -> int:
        """Of a number, or of a name of the headers.

        Raises:
            Fault: BAD_CASE if no header has it.
        """
        if _is_integer(name):
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
        if not self._mapping.status:
            return None
        try:
            return StatusCodes.of(self._header.enum(self._mapping.status))
        except UsageError as error:
            said = f"mapping {self._mapping.name}, status: {error}"
            raise drifted(said, self._mapping_file, "status") from None

    def _function(self, entry: DirectCall, name: str, element: DType) -> Function:
        """Bound once for each entry that calls it, since the arguments are held against that."""
        key = (name, entry.call, entry.returns)
        if key not in self._functions:
            prototype = self._prototype(name)
            has_status = prototype.result.is_integer and not entry.returns
            function = bind(self._library, prototype, codes=self._codes if has_status else None)
            self._require_no_drift(entry, function, element)
            self._functions[key] = function
        return self._functions[key]

    def _require_no_drift(self, entry: DirectCall, function: Function, element: DType) -> None:
        where = f"mapping {self._mapping.name}, {function.name}"
        why = drift_of_direct(
            where, entry, function.prototype, element, self._header, has_status=self._codes is not None
        )
        if why is not None:
            raise drifted(why, self._mapping_file, "operators", *self._place_of(entry), "call")

    def _place_of(self, entry: DirectCall) -> tuple[str | int, ...]:
        """The operator that an entry is of, and which of its alternatives it is."""
        places = (
            (name, index)
            for name, alternatives in self._mapping.direct.items()
            for index, each in enumerate(alternatives)
            if each is entry
        )
        return next(places, ())


def _pointer(buffer: Any, behind: int) -> Any:
    return _Pointer(buffer.address + behind, buffer.element) if behind else buffer


def _number(stated: Any, form: str, type_: CType, element: DType) -> Any:
    """A number as C takes it; where it wants a pointer, as complex functions do, an array of one."""
    if form in ("int", "bool"):
        value = int(stated)
        return bool(value) if form == "bool" else value
    if type_.is_pointer:
        return np.array([float(stated)], numpy_dtype(element))
    return float(stated)


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isdecimal()

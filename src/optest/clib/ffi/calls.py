"""C functions whose arguments are checked against the header before the call, and the meaning of their status codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from optest.clib.ffi.arguments import Misfit, converter
from optest.clib.ffi.libraries import Library
from optest.clib.ffi.signatures import Prototype
from optest.errors import OptestError, UsageError


class StatusError(OptestError):
    """A C function returned a status code that is no success.

    ``name`` is the code's enumerator, empty if the header has none; ``said`` is the library's own error text;
    ``is_named`` is false for a library whose codes have no names.
    """

    def __init__(self, function: str, code: int, name: str, *, said: str = "", is_named: bool = True) -> None:
        self.function = function
        self.code = code
        self.name = name
        self.said = said
        named = f" ({name or 'not in the header'})" if is_named else ""
        super().__init__(f"{function} returned {code}{named}" + (f": {said}" if said else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCodes:
    """Names and success codes of a status enum; ``said`` returns the library's error text for a code."""

    names: Mapping[int, str]  # empty for plain integers
    success: frozenset[int] = frozenset({0})
    said: Callable[[int], str] | None = None

    @classmethod
    def of(cls, enumerators: Mapping[str, int], **fields: Any) -> StatusCodes:
        """Build the codes from a header's enum; if a code has two names, the first is used."""
        # Reversed: a later entry of the dict replaces an earlier one.
        return cls(names={code: name for name, code in reversed([*enumerators.items()])}, **fields)

    def name(self, code: int) -> str:
        """Return the enumerator of a code, empty for an unknown code."""
        return self.names.get(code, "")

    def require(self, function: str, code: int) -> None:
        """Raise :class:`StatusError` unless `code` is a success."""
        if code not in self.success:
            text = self.said(code) if self.said is not None else ""
            raise StatusError(function, int(code), self.name(code), said=text, is_named=bool(self.names))


class BadCall(UsageError):
    """Arguments that do not fit a prototype; the C function was not called."""


class Function:
    """A C function with its prototype; a call checks the arguments and returns C's result."""

    __slots__ = ("_converters", "_symbol", "codes", "prototype")

    def __init__(self, prototype: Prototype, symbol: Any, codes: StatusCodes | None = None) -> None:
        self.prototype = prototype
        self.codes = codes
        self._symbol = symbol
        symbol.argtypes = prototype.argtypes  # ctypes then passes the right sizes
        symbol.restype = prototype.restype
        self._converters = tuple(map(converter, prototype.parameters))

    @property
    def name(self) -> str:
        return self.prototype.name

    def __call__(self, *arguments: Any) -> Any:
        """Check and convert the arguments, call C and return its result; raise BadCall if one does not fit."""
        return self._symbol(*self.convert_arguments(arguments))

    def call_converted(self, arguments: Sequence[Any]) -> Any:
        """Call C with :meth:`converted` arguments; return its result, raise StatusError for a failure status."""
        code = self._symbol(*arguments)
        codes = self.codes
        if codes is not None and code not in codes.success:  # Without codes the result is no status.
            codes.require(self.prototype.name, code)
        return code

    def bind_arguments(self, *arguments: Any) -> Callable[[], Any]:
        """Return the call with its arguments checked and converted; the caller keeps their memory alive."""
        return partial(self._symbol, *self.convert_arguments(arguments))

    def convert_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arguments as ctypes passes them; raise BadCall if one does not fit."""
        # The caller keeps the memory behind the addresses alive.
        converters = self._converters
        if len(arguments) != len(converters):
            names = [x.name or f"argument {index + 1}" for index, x in enumerate(self.prototype.parameters)]
            missing = f"; missing: {', '.join(names[len(arguments) :])}" if len(arguments) < len(names) else ""
            counts = f"{len(arguments)} arguments, expected {len(names)}"
            raise BadCall(f"{self.name} got {counts}{missing}{self.prototype.location_line}")
        converted: list[Any] = []
        append = converted.append
        try:
            # No comprehension: the length of the list gives the index of the argument that does not fit.
            for convert, argument in zip(converters, arguments):  # noqa: B905 - equal lengths were checked
                append(convert(argument))
        except Misfit as misfit:
            label = self.prototype.label(len(converted))
            raise BadCall(f"{self.name}: {label} {misfit}{self.prototype.location_line}") from None
        return converted

    def __repr__(self) -> str:
        return f"<{self.prototype}>"


def bind(library: Library, prototype: Prototype, *, codes: StatusCodes | None = None) -> Function:
    """Return the library's function with this prototype; raise Unavailable if the library does not export it."""
    return Function(prototype, library.symbol(prototype.name), codes)

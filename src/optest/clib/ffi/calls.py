"""Calls that are checked against the header before they are made, and what the status means that they return."""

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
    """A library's function returned a status that is no success.

    ``function``, ``code`` and ``name`` are what it says; an unknown code has an empty name. ``said`` is the library's
    own text; ``is_named`` is whether its codes have names at all.
    """

    def __init__(self, function: str, code: int, name: str, *, said: str = "", is_named: bool = True) -> None:
        self.function = function
        self.code = code
        self.name = name
        self.said = said
        named = f" ({name or 'a status that the header does not name'})" if is_named else ""
        super().__init__(f"{function} returned {code}{named}" + (f": {said}" if said else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCodes:
    """The enumerators of a status enum, none for plain integers; ``success`` are the codes that are no error.

    ``said`` asks the library what it says of a code.
    """

    names: Mapping[int, str]
    success: frozenset[int] = frozenset({0})
    said: Callable[[int], str] | None = None

    @classmethod
    def of(cls, enumerators: Mapping[str, int], **more: Any) -> StatusCodes:
        """From an enum of a header; of two names for one code the first stands."""
        return cls(names={code: name for name, code in reversed([*enumerators.items()])}, **more)

    def name(self, code: int) -> str:
        """Empty for a code that the header does not name."""
        return self.names.get(code, "")

    def require(self, function: str, code: int) -> None:
        """Raise :class:`StatusError` unless ``code`` is a success."""
        if code not in self.success:
            said = self.said(code) if self.said is not None else ""
            raise StatusError(function, int(code), self.name(code), said=said, is_named=bool(self.names))


class BadCall(UsageError):
    """Arguments that do not fit a prototype; the C function was not called."""


class Function:
    """A C function with its prototype. Calling it checks the arguments and returns what C returned."""

    __slots__ = ("_converters", "_symbol", "codes", "prototype")

    def __init__(self, prototype: Prototype, symbol: Any, codes: StatusCodes | None = None) -> None:
        self.prototype = prototype
        self.codes = codes
        self._symbol = symbol
        symbol.argtypes = prototype.argtypes
        symbol.restype = prototype.restype
        self._converters = tuple(map(converter, prototype.parameters))

    @property
    def name(self) -> str:
        return self.prototype.name

    def __call__(self, *arguments: Any) -> Any:
        """Check, call, return C's result.

        Raises:
            BadCall: naming the argument that does not fit; C was not called.
        """
        return self._symbol(*self.converted(arguments))

    def again(self, arguments: Sequence[Any]) -> Any:
        """Call with arguments as ctypes takes them (:meth:`converted`), and return what C returned.

        Raises:
            StatusError: for any status but success, where the result is one.
        """
        code = self._symbol(*arguments)
        codes = self.codes
        if codes is not None and code not in codes.success:
            codes.require(self.prototype.name, code)
        return code

    def ready(self, *arguments: Any) -> Callable[[], Any]:
        """The call with its arguments checked and converted now, to be made often: it returns what C returns.

        Whoever calls it keeps the memory of the arguments alive.

        Raises:
            BadCall: as a plain call does.
        """
        return partial(self._symbol, *self.converted(arguments))

    def converted(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments as ctypes takes them. Whoever uses them keeps their memory alive.

        Raises:
            BadCall: as a plain call does.
        """
        converters = self._converters
        if len(arguments) != len(converters):
            raise BadCall(self._wrong_count(len(arguments)))
        converted: list[Any] = []
        append = converted.append
        try:
            # A loop and no comprehension: how many were converted tells which argument does not fit.
            for convert, argument in zip(converters, arguments):  # noqa: B905 - they are equally many
                append(convert(argument))
        except Misfit as misfit:
            raise BadCall(f"{self.name}: {self.prototype.label(len(converted))} {misfit}{self._where}") from None
        return converted

    def _wrong_count(self, count: int) -> str:
        parameters = self.prototype.parameters
        names = [parameter.name or f"argument {index + 1}" for index, parameter in enumerate(parameters)]
        missing = f"; missing: {', '.join(names[count:])}" if count < len(names) else ""
        return f"{self.name} was given {count} arguments, expected given {len(names)}{missing}{self._where}"

    @property
    def _where(self) -> str:
        return f"\n  at {self.prototype.where}: {self.prototype}" if self.prototype.where else ""

    def __repr__(self) -> str:
        return f"<{self.prototype}>"


def bind(library: Library, prototype: Prototype, *, codes: StatusCodes | None = None) -> Function:
    """The library's function with this prototype.

    Raises:
        Unavailable: if the library does not export it.
    """
    return Function(prototype, library.symbol(prototype.name), codes)

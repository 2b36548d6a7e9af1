"""Calls that are checked against the header before they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from optest.clib.ffi.arguments import Misfit, converter
from optest.clib.ffi.libraries import Library
from optest.clib.ffi.signatures import CKind, Prototype
from optest.clib.ffi.statuses import StatusCodes
from optest.errors import UsageError

__all__ = ["BadCall", "Function", "bind"]


class BadCall(UsageError):
    """Arguments that do not fit a prototype; the C function was not called."""


class Function:
    """A C function with its prototype. Calling it checks the arguments and returns what C returned.

    :meth:`succeed` also requires a status of success; :meth:`raw` checks nothing, for calls that are meant to be
    wrong.
    """

    __slots__ = ("_converters", "_symbol", "codes", "prototype")

    def __init__(
        self,
        prototype: Prototype,
        symbol: Any,
        *,
        required: Collection[str] = (),
        codes: StatusCodes | None = None,
        enums: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """``required`` names pointers that may not be NULL; ``enums`` are those whose values are checked, by tag."""
        unknown = [name for name in required if prototype.index(name) < 0]
        if unknown:
            raise UsageError(f"{prototype.name} has no parameter {unknown[0]!r}\n  at {prototype.where}: {prototype}")
        self.prototype = prototype
        self.codes = codes
        self._symbol = symbol
        symbol.argtypes = prototype.argtypes
        symbol.restype = prototype.restype
        known = enums or {}
        self._converters = tuple(
            converter(
                parameter,
                required=parameter.name in required,
                members=tuple(known.get(parameter.type.tag, {}).values()) if parameter.type.kind is CKind.ENUM else (),
            )
            for parameter in prototype.parameters
        )

    @property
    def name(self) -> str:
        return self.prototype.name

    def __call__(self, *arguments: Any) -> Any:
        """Check, call, return C's result.

        Raises:
            BadCall: naming the argument that does not fit; C was not called.
        """
        return self._symbol(*self._converted(arguments))

    def succeed(self, *arguments: Any) -> None:
        """Check, call, and require success.

        Raises:
            BadCall: as a plain call does, and for a function that returns no status.
            StatusError: for any other status.
        """
        if self.codes is None:
            raise BadCall(f"{self.name} returns {self.prototype.result}, but should return a status to be checked")
        code = self._symbol(*self._converted(arguments))
        if code not in self.codes.success:
            self.codes.require(self.prototype.name, code)

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

    def converted(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments as ctypes takes them. Whoever uses them keeps their memory alive.

        Raises:
            BadCall: as a plain call does.
        """
        return self._converted(tuple(arguments))

    def ready(self, *arguments: Any) -> Callable[[], Any]:
        """The call with its arguments checked and converted now, to be made often: it returns what C returns.

        Whoever calls it keeps the memory of the arguments alive.

        Raises:
            BadCall: as a plain call does.
        """
        return partial(self._symbol, *self._converted(arguments))

    def raw(self, *arguments: Any) -> Any:
        """Call without a check; ctypes converts, and may raise ``ctypes.ArgumentError`` for what it cannot pass."""
        return self._symbol(*[getattr(argument, "address", argument) for argument in arguments])

    def _converted(self, arguments: tuple[Any, ...]) -> list[Any]:
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
            prototype = self.prototype
            where = f"\n  at {prototype.where}: {prototype}" if prototype.where else ""
            raise BadCall(f"{prototype.name}: {prototype.label(len(converted))} {misfit}{where}") from None
        return converted

    def _wrong_count(self, count: int) -> str:
        prototype = self.prototype
        names = [parameter.name or f"argument {index + 1}" for index, parameter in enumerate(prototype.parameters)]
        missing = f"; missing: {', '.join(names[count:])}" if count < len(names) else ""
        where = f"\n  at {prototype.where}: {prototype}" if prototype.where else ""
        return f"{prototype.name} was given {count} arguments, but should be given {len(names)}{missing}{where}"

    def __repr__(self) -> str:
        return f"<{self.prototype}>"


def bind(
    library: Library,
    prototype: Prototype,
    *,
    required: Collection[str] = (),
    codes: StatusCodes | None = None,
    enums: Mapping[str, Mapping[str, int]] | None = None,
) -> Function:
    """The library's function with this prototype.

    Raises:
        Unavailable: if the library does not export it.
        UsageError: for a required parameter that it does not have.
    """
    symbol = library.symbol(prototype.name)
    return Function(prototype, symbol, required=required, codes=codes, enums=enums)

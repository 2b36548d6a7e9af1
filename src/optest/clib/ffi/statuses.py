"""Status codes: what a library's numbers are called, and the error that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.errors import OptestError

__all__ = ["StatusCodes", "StatusError"]


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

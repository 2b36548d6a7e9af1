"""Status codes: what a library's numbers are called, and the error that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optest.errors import OptestError

__all__ = ["StatusCodes", "StatusError"]


class StatusError(OptestError):
    """A library's function returned a status that is no success.

    ``function``, ``code`` and ``name`` are what it says; an unknown code has an empty name.
    """

    def __init__(self, function: str, code: int, name: str) -> None:
        self.function = function
        self.code = code
        self.name = name
        super().__init__(f"{function} returned {code} ({name or 'a status that the header does not name'})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCodes:
    """The enumerators of a status enum; ``success`` are the codes that are no error."""

    names: Mapping[int, str]
    success: frozenset[int] = frozenset({0})

    @classmethod
    def of(cls, enumerators: Mapping[str, int], *, success: frozenset[int] = frozenset({0})) -> StatusCodes:
        """From an enum of a header; of two names for one code the first stands."""
        names: dict[int, str] = {}
        for name, code in enumerators.items():
            names.setdefault(code, name)
        return cls(names=names, success=success)

    def name(self, code: int) -> str:
        """Empty for a code that the header does not name."""
        return self.names.get(code, "")

    def is_success(self, code: int) -> bool:
        return code in self.success

    def require(self, function: str, code: int) -> None:
        """Raise :class:`StatusError` unless ``code`` is a success."""
        if code not in self.success:
            raise StatusError(function, code, self.name(code))

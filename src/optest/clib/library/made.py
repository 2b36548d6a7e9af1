"""What C wants a pointer to and somebody has to make beforehand: by functions of the library, or as a struct."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["NOTHING_MADE", "NO_CALL", "Call", "Made"]


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function and the roles of its arguments; ``functions`` instead of ``function`` where it is another one for
    each dtype."""

    function: str = ""
    arguments: tuple[str, ...] = ()
    functions: Mapping[str, str] = {}

    def named(self, dtype: str) -> str:
        """The function for a dtype."""
        return self.functions.get(dtype, self.function)


NO_CALL = Call()


class Made(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something opaque: how it is made, what is told it then (``set``), and the function that ends it, to which it is
    passed alone unless that is a call with arguments of its own. Or a ``struct`` of the headers, whose ``fields`` are
    filled in; those that are not named are 0, or what ``set`` made of them."""

    create: Call = NO_CALL
    set: tuple[Call, ...] = ()
    destroy: str | Call = ""
    struct: str = ""
    fields: Mapping[str, str] = {}

    @property
    def ended_by(self) -> str:
        """The name of the function that ends it."""
        return self.destroy if isinstance(self.destroy, str) else self.destroy.function


NOTHING_MADE = Made()

"""A C function with what a mapping calls its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.clib.ffi.calls import Function
from optest.clib.library.roles import Role

__all__ = ["BoundCall", "BoundOperator"]

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCall:
    """A C function and the roles of its arguments, checked against its prototype; ``keys`` are those of the roles."""

    function: Function
    roles: tuple[Role, ...]
    keys: tuple[str, ...]

    def __call__(self, values: Values) -> None:
        """Call with the values of the roles and require success.

        Raises:
            StatusError: for any other status.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        self.function.succeed(*[values[key] for key in self.keys])

    def again(self, values: Values) -> None:
        """Call once more, with values of the kinds that were checked before; only addresses may be others.

        Raises:
            StatusError: for any status but success.
        """
        self.function.again(self.told(values))

    def told(self, values: Values) -> list[Any]:
        """The arguments as ctypes takes them, unchecked: addresses in place of what has one."""
        return [getattr(value, "address", value) for value in [values[key] for key in self.keys]]

    def ready(self, values: Values) -> Callable[[], Any]:
        """The call with these values, checked once, for timings; it returns C's status."""
        return self.function.ready(*[values[key] for key in self.keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOperator:
    """The functions of one operator; ``workspace`` is None where it has none."""

    name: str
    create: BoundCall
    run: BoundCall
    destroy: Function
    workspace: Function | None

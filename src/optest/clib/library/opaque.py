"""The handle that a library wants in every call: made as the mapping says, into a slot or as a function's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from optest.clib.ffi.calls import Function
from optest.clib.ffi.handles import Handle, HandleError, Ledger
from optest.clib.library.made import Made
from optest.clib.library.mapping_lines import drifted
from optest.clib.library.roles import Role, drift, literal
from optest.spec import Fault, Reason

__all__ = ["take_handle"]


def take_handle(
    ledger: Ledger,
    made: Made,
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

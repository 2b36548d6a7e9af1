"""What is wrong with a mapping that a schema cannot say: unknown roles and words, keys that nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optest.backends import wrong_numerics
from optest.clib.library.c_objects import NO_CALL, NO_OBJECT, Call, problems_of_tensor
from optest.clib.library.direct import DirectCall, problems_of
from optest.clib.library.mapping import (
    NO_PROTOCOL,
    REFUSALS,
    SIZE,
    LibraryMapping,
    OperatorMapping,
    Protocol,
)
from optest.clib.library.roles import CALL_KINDS, wrong_role
from optest.errors import nearest

__all__ = ["problems_of_mapping"]

_PLAIN = {
    "set_device": ("device", "device_id"),
    "handle": ("slot", "null"),
    "tensor": ("slot", "ndim", "shape", "strides", "dtype"),
    "create": ("handle", "slot", "null"),
    "run": ("descriptor", "workspace", "workspace_size", "stream", "null"),
    "get_device": ("device_slot", "device_id_slot"),
    "synchronize": ("stream", "null"),
    "setup": ("null",),
    "message": ("status", "handle", "null"),
}
_OF_DESCRIPTORS = ("status", "set_device", "handle", "tensor", "protocol")
_MOST_ALIGNED = 4096
"""Bytes of a page."""


def problems_of_mapping(mapping: LibraryMapping) -> Iterable[str]:
    """What a schema cannot say: unknown roles, patterns without a name."""
    yield from _problems_of_numerics(mapping)
    yield from _problems_of_alignment(mapping.alignment)
    yield from _problems_of_status(mapping)
    yield from _problems_of_handle(mapping)
    yield from _problems_of_setup(mapping)
    yield from _wrong_words("refuses", mapping.refuses)
    if mapping.tensor != NO_OBJECT and not mapping.operators:
        yield from problems_of_tensor("tensor", mapping.tensor)
    for name, alternatives in mapping.direct.items():
        for index, direct in enumerate(alternatives):
            where = f"operators.{name}" + (f"[{index}]" if len(alternatives) > 1 else "")
            yield from problems_of(where, direct)
            yield from _problems_beside(where, direct, mapping)
    if mapping.operators or not mapping.direct:
        yield from _problems_of_descriptors(mapping)


def _problems_of_handle(mapping: LibraryMapping) -> Iterable[str]:
    handle = mapping.handle
    yield from _wrong_roles("handle.create.arguments", handle.create.arguments, _PLAIN["handle"], named=("constant",))
    if handle != NO_OBJECT and not handle.create.function:
        yield "handle.create.function is missing; it should be the function that makes the handle"
    if handle.set or handle.struct or handle.fields or handle.create.functions or isinstance(handle.destroy, Call):
        yield "handle should have create, with a function and arguments, and destroy, the name of a function"
    if mapping.handle == NO_OBJECT:
        for name, alternatives in mapping.direct.items():
            if any(each.kind == "handle" for entry in alternatives for each in entry.told()):
                yield f"operators.{name}.call has handle, so the file should say how it is made, under handle"
                return


def _problems_of_setup(mapping: LibraryMapping) -> Iterable[str]:
    for index, call in enumerate(mapping.setup):
        if not call.function:
            yield f"setup[{index}].function is missing; it should be a function that is called once, before all others"
        yield from _wrong_roles(f"setup[{index}].arguments", call.arguments, _PLAIN["setup"], named=("constant",))
    if mapping.setup and mapping.operators:
        yield "setup is for operators of one function; the others have set_device and handle"


def _problems_beside(where: str, entry: DirectCall, mapping: LibraryMapping) -> Iterable[str]:
    """What an operator that is one function needs of the rest of the file."""
    if entry.tensor not in (NO_OBJECT, mapping.tensor):
        yield from problems_of_tensor(f"{where}.tensor", entry.tensor)
    if any(each.kind == "dtype" for each in entry.told()):
        missing = [each for each in entry.functions if each not in mapping.dtypes]
        if missing:
            yield f"{where} tells C dtypes, so the file should say what {missing[0]} is called there, under dtypes"
    refused = entry.refuses or ()
    yield from _wrong_words(f"{where}.refuses", refused)
    if refused and not mapping.status:
        yield f"{where}.refuses needs a status: the file should say what functions return, under status"


def _problems_of_status(mapping: LibraryMapping) -> Iterable[str]:
    message = mapping.statuses.message
    if message is None:
        return
    if not message.function:
        yield "status.message.function is missing; it should be the function that returns a text"
    for index, text in enumerate(message.arguments):
        if text not in _PLAIN["message"]:
            near = nearest(text, _PLAIN["message"])
            hint = f"did you mean {near}? " if near else ""
            known = ", ".join(_PLAIN["message"])
            yield f"status.message.arguments[{index}] is {text!r}, which is no role here; {hint}known: {known}"


def _problems_of_alignment(alignment: int) -> Iterable[str]:
    if not 1 <= alignment <= _MOST_ALIGNED or alignment & (alignment - 1):
        yield f"alignment is {alignment}, but should be a power of two from 1 to {_MOST_ALIGNED}"


def _problems_of_numerics(mapping: LibraryMapping) -> Iterable[str]:
    for device, stated in mapping.numerics.items():
        if device not in mapping.devices:
            yield f"numerics.{device} is no device of this file; it has {', '.join(mapping.devices)}"
        wrong = wrong_numerics(stated)
        if wrong is not None:
            yield f"numerics.{device} has {wrong}"


def _problems_of_descriptors(mapping: LibraryMapping) -> Iterable[str]:
    missing = [name for name in _OF_DESCRIPTORS if getattr(mapping, name) in ("", NO_CALL, NO_OBJECT, NO_PROTOCOL)]
    if missing:
        yield f"{', '.join(missing)} missing; operators that descriptors are made for need them"
        return
    for field, call in (
        ("set_device", mapping.set_device),
        ("tensor", mapping.tensor.create),
    ):
        yield from _wrong_roles(f"{field}.arguments", call.arguments, _PLAIN[field], named=())
    for field in ("synchronize", "get_device"):
        call = getattr(mapping, field)
        if call is not None:
            yield from _wrong_roles(f"{field}.arguments", call.arguments, _PLAIN[field], named=())
    for field in Protocol.__struct_fields__:
        if "{name}" not in getattr(mapping.protocol, field):
            yield f"protocol.{field} is {getattr(mapping.protocol, field)!r}, but should contain {{name}}"
    for name, operator in mapping.operators.items():
        wrong = [*_wrong_calls(f"operators.{name}", operator)]
        yield from wrong
        yield from _wrong_dtypes(f"operators.{name}", operator, mapping.dtypes)
        yield from _wrong_words(f"operators.{name}.refuses", operator.refuses or ())
        if not wrong:
            yield from _wrong_data(f"operators.{name}", operator, mapping.dtypes)


def _wrong_calls(where: str, operator: OperatorMapping) -> Iterable[str]:
    for field in ("create", "run"):
        yield from _wrong_roles(f"{where}.{field}", getattr(operator, field), _PLAIN[field], named=CALL_KINDS)


def _wrong_words(where: str, words: Sequence[str]) -> Iterable[str]:
    for each in words:
        if each not in REFUSALS:
            near = nearest(each, REFUSALS)
            hint = f"did you mean {near}? " if near else ""
            yield f"{where} has {each!r}; {hint}known: {', '.join(REFUSALS)}"


def _wrong_data(where: str, operator: OperatorMapping, dtypes: Iterable[str]) -> Iterable[str]:
    """What of the further keys nobody reads, or nobody could."""
    roles = operator.roles()
    passed = [role.name for role in roles if role.kind in ("attribute", "tensor")]
    arrays = [role.name for role in roles if role.is_array]
    for role in roles:
        if role.kind == "count" and role.name not in arrays:
            yield f"{where} counts {role.name!r}, which no role passes as an array; arrays: {_listed(arrays)}"
    for key in ("choices", "left_out"):
        for name in getattr(operator, key):
            if name not in passed:
                yield f"{where}.{key} names {name!r}, which no role passes; attributes that are: {_listed(passed)}"
    for name, rule in operator.implied.items():
        for size in rule if isinstance(rule, (list, tuple)) else (rule,):
            if isinstance(size, str) and ("[" in size or "." in size) and not SIZE.fullmatch(size):
                yield f"{where}.implied.{name} has {size!r}, but should look like 'input[-1]' or 'out.dtype'"
    for name, counting in operator.arange.items():
        if counting.dtype not in dtypes:
            near = nearest(counting.dtype, list(dtypes))
            hint = f"did you mean {near}?" if near else "see the file's dtypes"
            yield f"{where}.arange.{name}.dtype is {counting.dtype!r}; {hint}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _wrong_dtypes(where: str, operator: OperatorMapping, known: Iterable[str]) -> Iterable[str]:
    stated = {"dtypes": operator.dtypes, **{f"dtypes_of.{name}": each for name, each in operator.dtypes_of.items()}}
    for key, names in stated.items():
        allowed = [*known, *(["same"] if key != "dtypes" else [])]
        for name in names:
            if name not in allowed:
                near = nearest(name, allowed)
                yield f"{where}.{key} has {name!r}; " + (f"did you mean {near}?" if near else "see the file's dtypes")


def _wrong_roles(where: str, roles: Sequence[str], plain: Sequence[str], *, named: Sequence[str]) -> Iterable[str]:
    for index, text in enumerate(roles):
        why = wrong_role(text, plain, named)
        if why:
            yield f"{where}[{index}] is {text!r}, {why}"

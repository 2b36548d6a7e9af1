"""A struct of the headers as memory: its fields where the compiler puts them, filled in by name."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from optest.clib.ffi.signatures import CKind, Field, Header
from optest.errors import UsageError, nearest

__all__ = ["field_of", "structure_of"]


def structure_of(header: Header, name: str) -> type[ctypes.Structure]:
    """The ctypes class of a struct by its tag or its typedef's name, in the natural alignment of its fields.

    Raises:
        UsageError: for a struct that no header defines, or one whose fields cannot be placed.
    """
    fields = _fields(header, name)
    return _made(name, tuple((each.name, _ctype(header, each)) for each in fields))


@lru_cache(maxsize=64)
def _made(name: str, fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def field_of(header: Header, struct: str, path: str) -> Field:
    """The field of a struct, or with dots one of a struct inside it.

    Raises:
        UsageError: naming the nearest, if there is none.
    """
    first, _, rest = path.partition(".")
    fields = _fields(header, struct)
    found = next((each for each in fields if each.name == first), None)
    if found is None:
        names = [each.name for each in fields]
        near = nearest(first, names)
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f"struct {struct} has no field {first!r}; {hint}it has {', '.join(names)}")
    return field_of(header, found.type.tag, rest) if rest else found


def _fields(header: Header, name: str) -> tuple[Field, ...]:
    alias = header.typedefs.get(name)
    tag = alias.tag if alias is not None and alias.kind is CKind.STRUCT else name.removeprefix("struct ")
    if tag not in header.structs:
        near = nearest(tag, list(header.structs))
        hint = f"; did you mean {near}?" if near else ""
        why = "is declared, but not defined" if tag in header.opaque else "is defined in no header"
        raise UsageError(f"struct {name} {why}{hint}")
    fields = header.structs[tag]
    unknown = next((each.unknown for each in fields if each.unknown), "")
    if unknown:
        raise UsageError(f"struct {name} cannot be filled in: {unknown}")
    return fields


def _ctype(header: Header, field: Field) -> Any:
    if field.type.kind is CKind.STRUCT:
        one: Any = structure_of(header, field.type.tag)
    else:
        one = ctypes.c_void_p if field.type.is_pointer else field.type.ctype()
    return one if field.length is None else one * field.length

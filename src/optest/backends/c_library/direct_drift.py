"""Whether a header's prototype is what a mapping says of a plain function, told of the argument."""

from __future__ import annotations

from collections.abc import Sequence

from optest.backends.c_library.direct import Argument, DirectCall
from optest.backends.c_library.roles import ELEMENTS
from optest.ffi.matching import ctype_matches, element_matches
from optest.ffi.signatures import CKind, CType, Header, Parameter, Prototype
from optest.spec import DType

__all__ = ["drift_of_direct"]

_SIZES = ("size", "increment", "rows", "columns", "leading", "ndim")
_C_NUMBERS = {"float": (CKind.FLOAT, 4, "a float"), "double": (CKind.FLOAT, 8, "a double")}


def drift_of_direct(
    where: str, entry: DirectCall, prototype: Prototype, element: DType, header: Header, *, has_status: bool
) -> str | None:
    """Why the prototype is not what the mapping says for this dtype; None if they agree."""
    shown = f"\n  at {prototype.where}: {prototype}"
    arguments = entry.arguments()
    if len(arguments) != len(prototype.parameters):
        said = f"{where} has {len(arguments)} arguments, but should have {len(prototype.parameters)}"
        return f"{said}{_where_it_begins(arguments, prototype, element, header)}{shown}"
    for index, (argument, parameter) in enumerate(zip(arguments, prototype.parameters, strict=True)):
        why = _misfit(argument, parameter, element, header)
        if why:
            return f"{where}: {prototype.label(index)} is {parameter}, but {argument.key} {why}{shown}"
    why = _misfit_of_result(prototype.result, entry.returns, has_status=has_status)
    return f"{where} {why}{shown}" if why else None


def _where_it_begins(arguments: Sequence[Argument], prototype: Prototype, element: DType, header: Header) -> str:
    """The first of two lists of unequal length that does not fit, else the first that has no counterpart."""
    for index, (argument, parameter) in enumerate(zip(arguments, prototype.parameters, strict=False)):
        why = _misfit(argument, parameter, element, header)
        if why:
            return f"; {prototype.label(index)} is {parameter}, but {argument.key} {why}"
    if len(arguments) < len(prototype.parameters):
        return f"; nothing is passed for {prototype.label(len(arguments))}, {prototype.parameters[len(arguments)]}"
    return f"; nothing takes {arguments[len(prototype.parameters)].key}"


def _misfit(argument: Argument, parameter: Parameter, element: DType, header: Header) -> str:
    type_, kind = parameter.type, argument.kind
    if kind in _SIZES:
        return "" if type_.is_integer and type_.kind is not CKind.ENUM else "should be an integer"
    if kind in ("layout", "order") or (kind == "constant" and not argument.type):
        names = argument.pair if kind != "constant" else (argument.name,)
        return next(filter(None, (_misfit_of_constant(name, type_, header) for name in names)), "")
    if kind in ("constant", "attribute"):
        return _misfit_of_number(argument.type, type_, element)
    if kind in ("shape", "strides"):
        return _misfit_of_array(argument.type.removesuffix("[]"), type_)
    if not type_.is_pointer:
        return "should be a pointer"
    if kind == "output" and parameter.is_const:
        return "should point at what may be written"
    if kind in ("input", "output") and type_.pointee is not None and not element_matches(element, type_.pointee):
        return f"holds {element}"
    return ""


def _misfit_of_array(element: str, type_: CType) -> str:
    pointee = type_.pointee
    if pointee is None or not ctype_matches(ELEMENTS[element], pointee):
        return f"should be an array of {element if pointee is None else pointee.spelling}"
    return ""


def _misfit_of_constant(name: str, type_: CType, header: Header) -> str:
    if not type_.is_integer:
        return "should be an integer"
    if name.lstrip("+-").isdecimal():
        return ""
    if name not in header.constants:
        return f"is {name}, which is declared in no header"
    members = header.enums.get(type_.tag, {}) if type_.kind is CKind.ENUM else {}
    return f"is {name}, which is none of {', '.join(members)}" if members and name not in members else ""


def _misfit_of_number(form: str, type_: CType, element: DType) -> str:
    if form == "scalar" and element.is_complex:
        return "" if type_.is_pointer else "should be a pointer to one number"
    if form == "scalar":
        form = "float" if element.bits == 32 else "double"
    if form in _C_NUMBERS:
        kind, size, what = _C_NUMBERS[form]
        return "" if type_.kind is kind and type_.size == size else f"should be {what}"
    if form == "bool":
        return "" if type_.kind is CKind.BOOL else "should be a bool"
    return "" if type_.is_integer else "should be an integer"


def _misfit_of_result(result: CType, returns: str, *, has_status: bool) -> str:
    if returns:
        is_number = result.is_integer or result.kind is CKind.FLOAT
        return "" if is_number else f"returns {result}, but should return a number: {returns}"
    if result.kind is CKind.VOID or (has_status and result.is_integer):
        return ""
    return f"returns {result}, but the mapping says nothing of it; is it `returns: OUTPUT`, or the file's status?"

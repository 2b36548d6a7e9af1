"""Whether a header's prototype is what a mapping says of a plain function, told of the argument."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from optest.clib.ffi.matching import ctype_matches, element_matches
from optest.clib.ffi.signatures import CKind, CType, Field, Header, Parameter, Prototype
from optest.clib.ffi.structs import field_of, structure_of
from optest.clib.library.c_objects import CObject, Step
from optest.clib.library.direct import DirectCall
from optest.clib.library.direct_arguments import Argument
from optest.clib.library.limits import SAME
from optest.clib.library.roles import ELEMENTS
from optest.errors import UsageError, nearest
from optest.spec import DType, dtype

__all__ = ["Difference", "Elements", "declared", "drift_of_direct", "drift_of_operator"]

_SIZES = ("size", "elements", "increment", "rows", "columns", "leading", "ndim", "count", "workspace_size")
_BY_REFERENCE = (*_SIZES, "layout", "order", "constant", "dtype")
_OPAQUE = ("object", "descriptor", "handle", "self", "slot", "null", "workspace")
_C_NUMBERS = {"float": (CKind.FLOAT, 4, "a float"), "double": (CKind.FLOAT, 8, "a double")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """The dtype by which a function is chosen, and those of tensors that have others."""

    of_call: DType
    of_others: Mapping[str, tuple[str, ...]]

    def of(self, tensor: str) -> tuple[DType, ...]:
        """The dtypes that a tensor may have."""
        return tuple(self.of_call if name == SAME else dtype(name) for name in self.of_others.get(tensor, (SAME,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where in the operator's entry something is not what the headers say, why, and of which function."""

    keys: tuple[str | int, ...]
    why: str
    function: str = ""


def drift_of_operator(
    where: str, entry: DirectCall, element: DType, header: Header, *, has_status: bool
) -> Iterator[Difference]:
    """Yield every difference for one dtype: of what is made before the call, and of the call itself."""
    elements = Elements(of_call=element, of_others=entry.dtypes_of)
    sized = entry.asked_for_workspace()
    for c_object in entry.c_objects():
        for step in c_object.steps():
            yield from _drift_of_step(where, step, elements, header)
        for field, why in drift_of_fields(c_object, elements, header):
            keys = ("objects", c_object.name, "fields", field) if field else ("objects", c_object.name)
            yield Difference(keys=keys, why=f"{where}, {why}")
    if sized is not None:
        yield from _drift_of_step(where, sized, elements, header)
    function = entry.functions.get(element.name) or next(iter(entry.functions.values()))
    why = declared(function, header)
    if why:
        yield Difference(keys=("functions", element.name), why=f"{where}: {why}", function=function)
        return
    prototype = header.prototypes[function]
    found = drift_of_direct(f"{where}, {function}", entry, prototype, element, header, has_status=has_status)
    if found:
        yield Difference(keys=("call",), why=found, function=function)


def _drift_of_step(where: str, step: Step, elements: Elements, header: Header) -> Iterator[Difference]:
    name = step.call.named(elements.of_call.name)
    why = declared(name, header)
    if why:
        yield Difference(keys=_keys(step.key), why=f"{where}, {step.key}: {why}", function=name)
        return
    why = drift_of_arguments(f"{where}, {name}", step.arguments, header.prototypes[name], elements, header)
    if why:
        yield Difference(keys=_keys(step.key), why=why, function=name)


def _keys(place: str) -> tuple[str | int, ...]:
    """``objects.plan.set[0]`` as the keys that lead there."""
    return tuple(int(each) if each.isdecimal() else each for each in re.findall(r"[^.\[\]]+", place))


def declared(function: str, header: Header) -> str:
    """Why a function cannot be called, by what the headers say; empty if it can."""
    if function in header.prototypes:
        return ""
    if function in header.refused:
        return f"{function} cannot be called: {str(header.refused[function]).partition(chr(10))[0]}"
    near = nearest(function, header.prototypes)
    return f"{function} is declared in no header" + (f"; did you mean {near}?" if near else "")


def drift_of_direct(
    where: str, entry: DirectCall, prototype: Prototype, element: DType, header: Header, *, has_status: bool
) -> str | None:
    """Why the prototype of an operator's function is not what the mapping says for this dtype; None if they agree."""
    elements = Elements(of_call=element, of_others=entry.dtypes_of)
    why = drift_of_arguments(where, entry.arguments(), prototype, elements, header)
    if why:
        return why
    why = _misfit_of_result(prototype.result, entry.returns, has_status=has_status)
    return f"{where} {why}\n  at {prototype.where}: {prototype}" if why else None


def drift_of_arguments(
    where: str, arguments: Sequence[Argument], prototype: Prototype, elements: Elements, header: Header
) -> str:
    """Why a prototype does not take these arguments, naming the first that does not fit; empty if it does."""
    shown = f"\n  at {prototype.where}: {prototype}"
    if len(arguments) != len(prototype.parameters):
        said = f"{where} has {len(arguments)} arguments, but should have {len(prototype.parameters)}"
        return f"{said}{_where_it_begins(arguments, prototype, elements, header)}{shown}"
    for index, (argument, parameter) in enumerate(zip(arguments, prototype.parameters, strict=True)):
        why = _misfit(argument, parameter, elements, header)
        if why:
            return f"{where}: {prototype.label(index)} is {parameter}, but {argument.key} {why}{shown}"
    return ""


def drift_of_fields(c_object: CObject, elements: Elements, header: Header) -> Iterator[tuple[str, str]]:
    """Yield the fields of a struct that are not what the headers say, and why."""
    if not c_object.struct:
        return
    try:
        structure_of(header, c_object.struct)
    except UsageError as error:
        yield "", str(error)
        return
    for path, argument in c_object.fields:
        try:
            field = field_of(header, c_object.struct, path)
        except UsageError as error:
            yield path, str(error)
            continue
        holds = field.type if field.length is None else _array_of(field)
        why = _misfit(argument, Parameter(name=path, type=holds), elements, header)
        if not why and field.length is not None and argument.array is not None:
            why = _misfit_of_length(argument, field)
        if why:
            length = "" if field.length is None else f"[{field.length}]"
            yield path, f"struct {c_object.struct}: field {path} is {field.type}{length}, but {argument.text!r} {why}"


def _array_of(field: Field) -> CType:
    return CType(kind=CKind.POINTER, spelling=f"{field.type}[{field.length}]", size=8, pointee=field.type)


def _misfit_of_length(argument: Argument, field: Field) -> str:
    array = argument.array
    if array is None or field.length is None or array.length is None or array.length <= field.length:
        return ""
    return f"should have {field.length} numbers at most"


def _where_it_begins(arguments: Sequence[Argument], prototype: Prototype, elements: Elements, header: Header) -> str:
    """The first of two lists of unequal length that does not fit, else the first that has no counterpart."""
    for index, (argument, parameter) in enumerate(zip(arguments, prototype.parameters, strict=False)):
        why = _misfit(argument, parameter, elements, header)
        if why:
            return f"; {prototype.label(index)} is {parameter}, but {argument.key} {why}"
    if len(arguments) < len(prototype.parameters):
        return f"; nothing is passed for {prototype.label(len(arguments))}, {prototype.parameters[len(arguments)]}"
    return f"; nothing takes {arguments[len(prototype.parameters)].key}"


def _misfit(argument: Argument, parameter: Parameter, elements: Elements, header: Header) -> str:
    type_, kind = parameter.type, argument.kind
    if kind == "text":
        return "" if _is_text(type_) else "should be a text (char *)"
    is_integer = kind in _BY_REFERENCE and argument.array is None and (kind != "constant" or not argument.type)
    if is_integer and type_.is_pointer and type_.pointee is not None:
        type_ = type_.pointee  # as Fortran takes it
    if kind in _SIZES:
        return "" if type_.is_integer and type_.kind is not CKind.ENUM else "should be an integer"
    if kind in ("layout", "order") or (kind == "constant" and not argument.type):
        names = argument.pair if kind != "constant" else (argument.name,)
        if type_ is not parameter.type and type_.size == 1 and all(len(each) == 1 for each in names):
            return ""  # letters
        return next(filter(None, (_misfit_of_constant(name, type_, header) for name in names)), "")
    if kind == "dtype":
        return "" if type_.is_integer else "should be an integer"
    array = argument.array
    if array is not None:
        return _misfit_of_array(array.element, type_)
    if kind in ("constant", "attribute"):
        return _misfit_of_number(argument.type, type_, elements.of_call)
    if not type_.is_pointer:
        return "should be a pointer"
    if kind in _OPAQUE or argument.as_tensor:
        return ""
    if kind == "output" and parameter.is_const:
        return "should point at what may be written"
    if type_.pointee is not None:
        held = elements.of(argument.name)
        if not any(element_matches(each, type_.pointee) for each in held):
            return f"holds {' or '.join(map(str, held))}"
    return ""


def _is_text(type_: CType) -> bool:
    return type_.is_pointer and type_.pointee is not None and type_.pointee.is_integer and type_.pointee.size == 1


def _misfit_of_array(element: str, type_: CType) -> str:
    pointee = type_.pointee
    if pointee is not None and pointee.kind is CKind.VOID:
        return ""
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
    if form == "scalar" and type_.is_pointer and type_.pointee is not None:
        return "" if element_matches(element, type_.pointee) else f"is a number of {element}"
    if form == "scalar" and element.is_complex:
        return "should be a pointer to one number"
    if form == "scalar":
        form = "float" if element.bits == 32 else "double"
    if type_.is_pointer and type_.pointee is not None:
        return _misfit_behind_pointer(form, type_.pointee)
    if form in _C_NUMBERS:
        kind, size, what = _C_NUMBERS[form]
        return "" if type_.kind is kind and type_.size == size else f"should be {what}"
    if form == "bool":
        return "" if type_.kind is CKind.BOOL else "should be a bool"
    return "" if type_.is_integer else "should be an integer"


def _misfit_behind_pointer(form: str, pointee: CType) -> str:
    """A number behind a pointer, as where a function takes the address of alpha."""
    if pointee.kind is CKind.VOID:
        return (
            ""
            if form in _C_NUMBERS
            else "should be float, double or scalar: behind void * nobody knows the width of an integer"
        )
    return _misfit_of_number(form, pointee, dtype("float32"))


def _misfit_of_result(result: CType, returns: str, *, has_status: bool) -> str:
    if returns:
        is_number = result.is_integer or result.kind is CKind.FLOAT
        return "" if is_number else f"returns {result}, but should return a number: {returns}"
    if result.kind is CKind.VOID or (has_status and (result.is_integer or result.kind is CKind.BOOL)):
        return ""
    hint = "is it `returns: OUTPUT`, or the file's `status` (an enum of the headers, int or bool)?"
    return f"returns {result}, but the mapping says nothing of it; {hint}"

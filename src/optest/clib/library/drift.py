"""Drift: differences between a mapping and the headers, in prototypes, structs and names; of each call the first
one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from optest.clib.ffi.arguments import ctype_matches, element_matches
from optest.clib.ffi.signatures import CKind, CType, Header, Parameter, Prototype
from optest.clib.library.arguments import ELEMENTS, Argument, parse_arguments
from optest.clib.library.mapping import PLAIN_STATUSES, LibraryMapping, written_key
from optest.clib.library.mapping_file import keys_of
from optest.clib.library.mapping_problems import unknown_names
from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import Call, ObjectEntry, OperatorMapping, is_of_a_tensor
from optest.clib.library.values import field_of, structure_of
from optest.errors import UnknownName, UsageError, did_you_mean
from optest.operators import operators
from optest.spec import DType, dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between a mapping and the headers, or optest's operators."""

    why: str
    keys: tuple[str | int, ...]  # that locate it in the mapping
    function: str = ""  # in C, if any

    def concerns(self, operator: str, mapping: LibraryMapping) -> bool:
        """Return whether the difference makes an operator of the mapping uncallable."""
        key = self.keys[0]
        reads = [entry.read for entry in mapping.operators[operator]]
        needs = {
            "operators": key == "operators" and self.keys[1] == operator,
            "handle": any(read.passes("handle") for read in reads),
            "tensor": any(is_of_a_tensor(obj.name) for read in reads for obj in read.c_objects),
        }
        return needs.get(str(key), key in _OF_EVERY_OPERATOR)


_OF_EVERY_OPERATOR = ("set_device", "get_device", "status", "setup")


def functions_of_operators(mapping: LibraryMapping) -> dict[str, tuple[str, ...]]:
    """Return the C functions of each operator of the mapping, in call order: create, run, destroy."""
    return {
        name: tuple(dict.fromkeys(name for entry in alternatives for name in functions_of_entry(entry)))
        for name, alternatives in mapping.operators.items()
    }


def functions_of_entry(entry: OperatorMapping, elements: Sequence[str] = ()) -> Iterator[str]:
    """Yield the C functions of an entry for some dtypes, by default for all of its dtypes."""
    for element in elements or entry.dtypes or ("",):
        object_calls = [obj.calls for obj in entry.read.c_objects if not is_of_a_tensor(obj.name)]
        yield from (call.named(element) for calls in object_calls for key, call in calls.items() if key != "destroy")
        if entry.workspace is not None:
            yield entry.workspace.function
        yield entry.function_of(element)
        yield from (calls["destroy"].named(element) for calls in object_calls if "destroy" in calls)


def functions_of_tensors(alternatives: Sequence[OperatorMapping]) -> Iterator[str]:
    """Yield the functions that create and destroy the tensor objects of an operator's entries."""
    of_tensors = (obj for entry in alternatives for obj in entry.read.c_objects if is_of_a_tensor(obj.name))
    yield from dict.fromkeys(call.function for obj in of_tensors for call in obj.calls.values())


def drift_of_mapping(mapping: LibraryMapping, header: Header) -> tuple[Difference, ...]:
    """Return all differences between a mapping and the headers or optest's operators; skip absent operators."""
    absent = {
        name
        for name, functions in functions_of_operators(mapping).items()
        if not any(name in header.prototypes or name in header.refused for name in functions)
    }
    differences = [*_drift_of_names(mapping, header), *_drift_of_calls(mapping, header)]
    for name, alternatives in mapping.operators.items():
        try:
            descriptor = operators.get(name)
            wrong = [(index, why) for index, x in enumerate(alternatives) for why in unknown_names(x, descriptor)]
        except UnknownName as error:
            wrong = [(0, _summary_line(error))]
        for index, why in wrong:
            why = f"mapping {mapping.name}, operators.{name}: {why}"
            differences.append(Difference(why=why, keys=("operators", name, index), function=name))
        # The library does not have an absent operator: that is no drift.
        for index, entry in enumerate(() if name in absent else alternatives):
            for element in entry.dtypes or mapping.dtypes or ("float32",):
                differences += drift_of_entry(mapping, (name, index), dtype(element), header)
    return tuple(dict.fromkeys(differences))


def _drift_of_names(mapping: LibraryMapping, header: Header) -> Iterator[Difference]:
    """Yield the status enum, dtype constants and success values that the headers do not declare."""
    if mapping.status and mapping.status not in PLAIN_STATUSES:
        try:
            header.enum(mapping.status)
        except UsageError as error:
            yield Difference(why=f"mapping {mapping.name}, status: {_summary_line(error)}", keys=("status",))
    names: list[tuple[tuple[str, ...], str | int]] = [(("dtypes", x), name) for x, name in mapping.dtypes.items()]
    names += [(("status", "success"), x) for x in mapping.statuses.success]
    for keys, name in names:
        if isinstance(name, str) and name not in header.constants:
            hint = did_you_mean(name, header.constants, text="; did you mean {}?")
            why = f"mapping {mapping.name}, {'.'.join(keys)}: {name} is declared in no header{hint}"
            yield Difference(why=why, keys=keys)


def _drift_of_calls(mapping: LibraryMapping, header: Header) -> Iterator[Difference]:
    """Yield the drift of calls of no operator; handle.destroy and status.message only have to be declared."""
    calls = mapping.global_calls()
    if mapping.handle.destructor:
        calls["handle.destroy"] = Call(function=mapping.handle.destructor)
    for where, call in calls.items():
        place = f"mapping {mapping.name}, {where}"
        why = _why_uncallable(call.function, header)
        if why:
            why = f"{place}: {why}"
        elif where not in ("handle.destroy", "status.message"):
            why = drift_of_arguments(
                place, parse_arguments(call.arguments), header.prototypes[call.function], None, header
            )
        if why:
            yield Difference(why=why, keys=keys_of(where), function=call.function)


def drift_of_entry(
    mapping: LibraryMapping, place: tuple[str, int], element: DType, header: Header
) -> Iterator[Difference]:
    """Yield the differences of one alternative (``place``: operator and index) for one dtype, objects included."""
    name, index = place
    entry = mapping.operators[name][index]
    elements = Elements(of_call=element, of_others=entry.dtypes_of)

    def difference(key: str, why: str, *inside: str, function: str = "") -> Difference:
        if key.startswith("tensor") and entry.tensor == mapping.tensor:
            where, keys = key, keys_of(key)
        else:
            in_file = written_key(entry, key)
            where, keys = f"operators.{name}.{in_file}", ("operators", name, index, *keys_of(in_file))
        return Difference(why=f"mapping {mapping.name}, {where}{why}", keys=(*keys, *inside), function=function)

    def of_call(key: str, call: Call) -> Iterator[Difference]:
        function = call.named(element.name)
        if why := _why_uncallable(function, header):
            yield difference(key, f": {why}", function=function)
        elif why := drift_of_arguments("", call.parsed, header.prototypes[function], elements, header):
            yield difference(key, why, function=function)

    for obj in entry.read.c_objects:
        for key, call in obj.calls.items():
            yield from of_call(f"{obj.place}.{key}", call)
        for field, why in drift_of_fields(obj.made, elements, header):
            yield difference(obj.place, f", {why}", *(("fields", field) if field else ()))
    if entry.workspace is not None:
        yield from of_call("workspace", entry.workspace)
    function = entry.function_of(element.name)
    if found := list(of_call("call", Call(function=function, arguments=entry.call))):
        yield from found
        return
    prototype = header.prototypes[function]
    why = misfit_of_result(prototype.result, entry.returns, has_status=bool(mapping.status))
    if why:
        yield difference("call", f": {function} {why}\n  at {prototype.where}: {prototype}", function=function)


def _why_uncallable(function: str, header: Header) -> str:
    """Return why the headers rule out a call of the function; empty if it can be called."""
    if function in header.prototypes:
        return ""
    if function in header.refused:
        return f"{function} cannot be called: {_summary_line(header.refused[function])}"
    hint = did_you_mean(function, header.prototypes, text="; did you mean {}?")
    return f"{function} is declared in no header{hint}"


def _summary_line(error: object) -> str:
    return str(error).partition("\n")[0]


_SIZES = ("size", "elements", "increment", "stride", "rows", "columns", "leading", "ndim", "count", "workspace_size")
_BY_REFERENCE = (*_SIZES, "layout", "order", "constant", "dtype")
_WRITTEN = ("output", "slot", "workspace", "device_slot", "device_id_slot")
_C_NUMBERS = {"float": (CKind.FLOAT, 4, "a float"), "double": (CKind.FLOAT, 8, "a double")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Dtypes of a call's tensors."""

    of_call: DType  # selects the function
    of_others: Mapping[str, tuple[str, ...]]  # of tensors that have another dtype

    def of(self, tensor: str) -> tuple[DType, ...]:
        """Return the dtypes that a tensor may have."""
        return tuple(self.of_call if name == SAME else dtype(name) for name in self.of_others.get(tensor, (SAME,)))


def drift_of_arguments(
    where: str, arguments: Sequence[Argument], prototype: Prototype, elements: Elements | None, header: Header
) -> str:
    """Return why a prototype does not take the arguments, empty if it does; ``elements`` are for tensors."""
    shown = f"\n  at {prototype.where}: {prototype}"
    parameters = prototype.parameters
    reasons = (_misfit_of_argument(*pair, elements, header) for pair in zip(arguments, parameters, strict=False))
    first = next(((index, why) for index, why in enumerate(reasons) if why), None)
    misfit = ""
    if first is not None:
        index, why = first
        misfit = f"{parameters[index]}, but {arguments[index]} {why}"
    if len(arguments) == len(parameters):
        return f"{where}: {prototype.label(first[0])} of {prototype.name} is {misfit}{shown}" if first else ""
    if first is not None:
        detail = f"{prototype.label(first[0])} is {misfit}"
    elif len(arguments) < len(parameters):
        detail = f"no argument is passed for {prototype.label(len(arguments))}, {parameters[len(arguments)]}"
    else:
        detail = f"there is no parameter for {arguments[len(parameters)]}"
    count = f"{where} has {len(arguments)} arguments, but {prototype.name} should have {len(parameters)}"
    return f"{count}; {detail}{shown}"


def drift_of_fields(template: ObjectEntry, elements: Elements, header: Header) -> Iterator[tuple[str, str]]:
    """Yield the path of each struct field that differs from the headers, and why."""
    if not template.struct:
        return
    try:
        structure_of(header, template.struct)
    except UsageError as error:
        yield "", str(error)
        return
    for path, argument in template.parsed_fields():
        try:
            field = field_of(header, template.struct, path)
        except UsageError as error:
            yield path, str(error)
            continue
        declared = field.type if field.length is None else f"{field.type}[{field.length}]"
        # _misfit_of_argument compares an array field like a pointer parameter.
        array = CType(kind=CKind.POINTER, spelling=str(declared), size=8, pointee=field.type)
        parameter = Parameter(name=path, type=field.type if field.length is None else array)
        why = _misfit_of_argument(argument, parameter, elements, header)
        length = argument.array.length if argument.array is not None else None
        if not why and field.length is not None and length is not None and length > field.length:
            why = f"should have {field.length} numbers at most"
        if why:
            yield path, f"struct {template.struct}: field {path} is {declared}, but {argument.text!r} {why}"


def _misfit_of_argument(argument: Argument, parameter: Parameter, elements: Elements | None, header: Header) -> str:
    """Return why a parameter or struct field does not take the argument; empty if it does."""
    type_, kind = parameter.type, argument.kind
    if kind == "text":
        pointee = type_.pointee
        return "" if pointee is not None and pointee.is_integer and pointee.size == 1 else "should be a text (char *)"
    is_integer = kind in _BY_REFERENCE and argument.array is None and (kind != "constant" or not argument.type)
    if is_integer and type_.is_pointer and type_.pointee is not None:
        type_ = type_.pointee  # Fortran passes integers by reference
    if kind in _SIZES:
        return "" if type_.is_integer and type_.kind is not CKind.ENUM else "should be an integer"
    if kind in ("layout", "order") or (kind == "constant" and not argument.type):
        names = argument.pair if kind != "constant" else (argument.name,)
        if type_ is not parameter.type and type_.size == 1 and all(len(name) == 1 for name in names):
            return ""  # letters
        return next(filter(None, (_misfit_of_constant(name, type_, header) for name in names)), "")
    if kind in ("dtype", "device", "device_id"):
        return "" if type_.is_integer else "should be an integer"
    if argument.array is not None:
        element, pointee = argument.array.element, type_.pointee
        # Headers often hide the type of the elements behind void *.
        fits = pointee is not None and (pointee.kind is CKind.VOID or ctype_matches(ELEMENTS[element], pointee))
        return "" if fits else f"should be an array of {pointee.spelling if pointee is not None else element}"
    if kind in ("constant", "attribute", "scalar"):
        return _misfit_of_number(argument.type, type_, elements.of_call if elements else dtype("float32"))
    if not type_.is_pointer:
        return "should be a pointer"
    is_made = argument.as_tensor or argument.as_descriptor
    if kind in _WRITTEN and not is_made and parameter.is_const:
        return "should be a pointer to non-const data"
    if kind not in ("input", "output", "tensor") or is_made or elements is None or type_.pointee is None:
        return ""
    held = elements.of(argument.name)
    is_held = any(element_matches(x, type_.pointee) for x in held)
    return "" if is_held else f"holds {' or '.join(map(str, held))}"


def _misfit_of_constant(name: str, type_: CType, header: Header) -> str:
    """Return why C's type does not take a constant of the headers, or a number; empty if it does."""
    if not type_.is_integer:
        return "should be an integer"
    if name.lstrip("+-").isdecimal():
        return ""
    if name not in header.constants:
        return f"is {name}, which is declared in no header"
    members = header.enums.get(type_.tag, {}) if type_.kind is CKind.ENUM else {}
    return f"is {name}, expected one of {', '.join(members)}" if members and name not in members else ""


def _misfit_of_number(form: str, type_: CType, element: DType) -> str:
    """Return why C's type does not take a number passed as ``form``; empty if it does."""
    pointee = type_.pointee if type_.is_pointer else None
    if form == "scalar" and pointee is not None:
        return "" if element_matches(element, pointee) else f"is a number of {element}"
    if form == "scalar" and element.is_complex:
        return "should be a pointer to one number"
    if form == "scalar":
        form = "float" if element.bits == 32 else "double"
    if pointee is not None and pointee.kind is CKind.VOID:
        hint = "should be float, double or scalar: an integer's width is unknown for void *"
        return "" if form in _C_NUMBERS else hint
    number = pointee or type_  # BLAS-like functions take the address of alpha
    if form in _C_NUMBERS:
        kind, size, expected = _C_NUMBERS[form]
        return "" if number.kind is kind and number.size == size else f"should be {expected}"
    if form == "bool":
        return "" if number.kind is CKind.BOOL else "should be a bool"
    return "" if number.is_integer else "should be an integer"


def misfit_of_result(result: CType, returns: str, *, has_status: bool) -> str:
    """Return why a function's result does not fit the mapping; empty if it does."""
    if returns:
        is_number = result.is_integer or result.kind is CKind.FLOAT
        return "" if is_number else f"returns {result}, but should return a number: {returns}"
    if result.kind is CKind.VOID or (has_status and (result.is_integer or result.kind is CKind.BOOL)):
        return ""
    hint = "is it `returns: OUTPUT`, or the file's `status` (an enum of the headers, int or bool)?"
    return f"returns {result}, but the mapping does not use the result; {hint}"

"""Where headers are not what a mapping says: of an operator for one dtype, and of the whole file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from optest.clib.ffi.signatures import Header
from optest.clib.library.arguments import parsed
from optest.clib.library.c_objects import Call, is_of_a_tensor
from optest.clib.library.mapping import PLAIN_STATUSES, LibraryMapping, written
from optest.clib.library.mapping_file import keys_of
from optest.clib.library.misfits import Elements, drift_of_arguments, drift_of_fields, misfit_of_result
from optest.clib.library.operator_mapping import OperatorMapping
from optest.errors import UsageError, did_you_mean
from optest.spec import DType, dtype

__all__ = [
    "Difference",
    "drift_of_entry",
    "drift_of_mapping",
    "functions_of_entry",
    "functions_of_operators",
    "functions_of_tensors",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Between a mapping and the headers; ``keys`` lead to it in the mapping's file, ``function`` is C's, if any."""

    why: str
    keys: tuple[str | int, ...]
    function: str = ""

    def concerns(self, operator: str, mapping: LibraryMapping) -> bool:
        """Whether it stands between one of optest's operators and its call."""
        key = self.keys[0]
        reads = [entry.read for entry in mapping.operators[operator]]
        needs = {
            "operators": key == "operators" and self.keys[1] == operator,
            "handle": any(read.passes("handle") for read in reads),
            "tensor": any(is_of_a_tensor(each.name) for read in reads for each in read.c_objects),
        }
        return needs.get(str(key), key in _OF_EVERY_OPERATOR)


_OF_EVERY_OPERATOR = ("set_device", "get_device", "status", "setup")


def functions_of_operators(mapping: LibraryMapping) -> dict[str, tuple[str, ...]]:
    """The C functions of each of optest's operators that the mapping has: those that make what it needs, then its own,
    then those that end what was made."""
    return {
        name: tuple(dict.fromkeys(each for entry in alternatives for each in functions_of_entry(entry)))
        for name, alternatives in mapping.operators.items()
    }


def functions_of_entry(entry: OperatorMapping, elements: Sequence[str] = ()) -> Iterator[str]:
    """Those of one entry, for some dtypes, or for all that it has."""
    for element in elements or entry.dtypes or ("",):
        own = [each.calls for each in entry.read.c_objects if not is_of_a_tensor(each.name)]
        yield from (call.named(element) for calls in own for key, call in calls.items() if key != "destroy")
        if entry.workspace is not None:
            yield entry.workspace.function
        yield entry.function_of(element)
        yield from (calls["destroy"].named(element) for calls in own if "destroy" in calls)


def functions_of_tensors(alternatives: Sequence[OperatorMapping]) -> Iterator[str]:
    """Those that make and end what an operator's entries make of tensors."""
    of_tensors = (each for entry in alternatives for each in entry.read.c_objects if is_of_a_tensor(each.name))
    yield from dict.fromkeys(call.function for each in of_tensors for call in each.calls.values())


def drift_of_mapping(mapping: LibraryMapping, header: Header) -> tuple[Difference, ...]:
    """Every difference between the mapping and the headers.

    An operator of which the headers declare nothing is no difference: the library does not have it.
    """
    absent = {
        name
        for name, functions in functions_of_operators(mapping).items()
        if not any(each in header.prototypes or each in header.refused for each in functions)
    }
    found = [*_drift_of_names(mapping, header), *_drift_of_calls(mapping, header)]
    for name, alternatives in mapping.operators.items():
        for index, entry in enumerate(() if name in absent else alternatives):
            for element in entry.dtypes or mapping.dtypes or ("float32",):
                found += drift_of_entry(mapping, (name, index), dtype(element), header)
    return tuple(dict.fromkeys(found))


def _drift_of_names(mapping: LibraryMapping, header: Header) -> Iterator[Difference]:
    if mapping.status and mapping.status not in PLAIN_STATUSES:
        try:
            header.enum(mapping.status)
        except UsageError as error:
            yield Difference(why=f"mapping {mapping.name}, status: {_first_line(error)}", keys=("status",))
    names: list[tuple[tuple[str, ...], str | int]] = [(("dtypes", each), name) for each, name in mapping.dtypes.items()]
    names += [(("status", "success"), each) for each in mapping.statuses.success]
    for keys, name in names:
        if isinstance(name, str) and name not in header.constants:
            hint = did_you_mean(name, header.constants, text="; did you mean {}?")
            why = f"mapping {mapping.name}, {'.'.join(keys)}: {name} is declared in no header{hint}"
            yield Difference(why=why, keys=keys)


def _drift_of_calls(mapping: LibraryMapping, header: Header) -> Iterator[Difference]:
    """Of the calls that belong to no operator; of what ends the handle or tells of a status, whether it is declared."""
    calls = mapping.whole_calls()
    if mapping.handle.ended_by:
        calls["handle.destroy"] = Call(function=mapping.handle.ended_by)
    for where, call in calls.items():
        place = f"mapping {mapping.name}, {where}"
        why = _undeclared(call.function, header)
        if why:
            why = f"{place}: {why}"
        elif where not in ("handle.destroy", "status.message"):
            why = drift_of_arguments(place, parsed(call.arguments), header.prototypes[call.function], None, header)
        if why:
            yield Difference(why=why, keys=keys_of(where), function=call.function)


def drift_of_entry(
    mapping: LibraryMapping, place: tuple[str, int], element: DType, header: Header
) -> Iterator[Difference]:
    """Yield every difference of an operator's entry for one dtype: of what is made before the call, and of the call.

    ``place`` is the operator's name and which of its alternatives the entry is.
    """
    name, index = place
    entry = mapping.operators[name][index]
    elements = Elements(of_call=element, of_others=entry.dtypes_of)

    def difference(key: str, why: str, *inside: str, function: str = "") -> Difference:
        if key.startswith("tensor") and entry.tensor == mapping.tensor:
            where, keys = key, keys_of(key)
        else:
            own = written(entry, key)
            where, keys = f"operators.{name}.{own}", ("operators", name, index, *keys_of(own))
        return Difference(why=f"mapping {mapping.name}, {where}{why}", keys=(*keys, *inside), function=function)

    def of_call(key: str, call: Call) -> Iterator[Difference]:
        function = call.named(element.name)
        if why := _undeclared(function, header):
            yield difference(key, f": {why}", function=function)
        elif why := drift_of_arguments("", call.parsed, header.prototypes[function], elements, header):
            yield difference(key, why, function=function)

    for c_object in entry.read.c_objects:
        for key, call in c_object.calls.items():
            yield from of_call(f"{c_object.place}.{key}", call)
        for field, why in drift_of_fields(c_object.made, elements, header):
            yield difference(c_object.place, f", {why}", *(("fields", field) if field else ()))
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


def _undeclared(function: str, header: Header) -> str:
    """Why a function cannot be called, by what the headers say; empty if it can."""
    if function in header.prototypes:
        return ""
    if function in header.refused:
        return f"{function} cannot be called: {_first_line(header.refused[function])}"
    hint = did_you_mean(function, header.prototypes, text="; did you mean {}?")
    return f"{function} is declared in no header{hint}"


def _first_line(what: object) -> str:
    return str(what).partition("\n")[0]

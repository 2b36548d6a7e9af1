"""Where headers are not what a mapping says: of an operator for one dtype, and of the whole file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from optest.clib.ffi.signatures import Header
from optest.clib.library.arguments import parsed
from optest.clib.library.c_objects import Call, CObject, Step, is_of_a_tensor
from optest.clib.library.mapping import PLAIN_STATUSES, LibraryMapping
from optest.clib.library.misfits import Elements, drift_of_arguments, drift_of_fields, misfit_of_result
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.shorthand import written
from optest.errors import UsageError, nearest
from optest.spec import DType, dtype

__all__ = [
    "Difference",
    "drift_of_entry",
    "drift_of_mapping",
    "functions_of_entry",
    "functions_of_operators",
    "functions_of_tensors",
    "functions_of_whole",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between a mapping and the headers.

    ``keys`` lead to it in the mapping's file, or in the operator's entry; ``function`` is the C function, where it is
    one.
    """

    why: str
    keys: tuple[str | int, ...]
    function: str = ""

    def concerns(self, operator: str, mapping: LibraryMapping) -> bool:
        """Whether it stands between one of optest's operators and its call."""
        key = self.keys[0]
        reads = [entry.read for entry in mapping.operators[operator]]
        needs = {
            "operators": key == "operators" and self.keys[1] == operator,
            "handle": any(each.kind == "handle" for read in reads for each in read.told),
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
        own = [each for each in entry.read.c_objects if not is_of_a_tensor(each.name)]
        yield from (step.call.named(element) for each in own for step in (each.create, *each.set) if step is not None)
        if entry.workspace is not None:
            yield entry.workspace.function
        yield entry.function_of(element)
        yield from (each.destroy.call.named(element) for each in own if each.destroy is not None)


def functions_of_tensors(alternatives: Sequence[OperatorMapping]) -> Iterator[str]:
    """Those that make and end what an operator's entries make of tensors."""
    of_tensors = (each for entry in alternatives for each in entry.read.c_objects if is_of_a_tensor(each.name))
    yield from dict.fromkeys(step.call.function for each in of_tensors for step in each.steps())


def functions_of_whole(mapping: LibraryMapping) -> tuple[str, ...]:
    """The C functions that belong to no operator: device, handle, tensor descriptors."""
    optional = (mapping.get_device, mapping.synchronize, mapping.statuses.message)
    calls = (*mapping.setup, mapping.set_device, *(each for each in optional if each), mapping.handle.create)
    tensor = (mapping.tensor.create, *mapping.tensor.set)
    ended = (mapping.handle.ended_by, mapping.tensor.ended_by)
    return tuple(filter(None, (*(each.function for each in (*calls, *tensor)), *mapping.threads.functions, *ended)))


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
            for element in entry.dtypes or tuple(mapping.dtypes) or ("float32",):
                found += drift_of_entry(mapping, (name, index), dtype(element), header)
    return tuple(dict.fromkeys(found))


def _drift_of_names(mapping: LibraryMapping, header: Header) -> Iterator[Difference]:
    if mapping.status and mapping.status not in PLAIN_STATUSES:
        try:
            header.enum(mapping.status)
        except UsageError as error:
            said = f"mapping {mapping.name}, status: {_first_line(error)}"
            yield Difference(why=said, keys=("status",))
    for each in mapping.statuses.success:
        if isinstance(each, str) and each not in header.constants:
            said = f"mapping {mapping.name}, status.success: {each} is declared in no header"
            yield Difference(why=said, keys=("status", "success"))
    for name, constant in mapping.dtypes.items():
        if constant not in header.constants:
            near = nearest(constant, header.constants)
            hint = f"; did you mean {near}?" if near else ""
            said = f"mapping {mapping.name}, dtypes.{name}: {constant} is declared in no header{hint}"
            yield Difference(why=said, keys=("dtypes", name))


def _drift_of_calls(mapping: LibraryMapping, header: Header) -> Iterator[Difference]:
    """Of the calls that belong to no operator; of functions without arguments, only whether they are declared."""
    calls: dict[str, Call | None] = {f"setup.{index}": call for index, call in enumerate(mapping.setup)}
    calls |= {"set_device": mapping.set_device, "get_device": mapping.get_device, "synchronize": mapping.synchronize}
    for where, call in {**calls, "handle.create": mapping.handle.create}.items():
        if call is not None and call.function:
            said, keys = f"mapping {mapping.name}, {where}", tuple(where.split("."))
            why = _undeclared(call.function, header)
            why = (
                f"{said}: {why}"
                if why
                else drift_of_arguments(said, parsed(call.arguments), header.prototypes[call.function], None, header)
            )
            if why:
                yield Difference(why=why, keys=keys, function=call.function)
    message = mapping.statuses.message
    plain = {"handle.destroy": mapping.handle.ended_by, "status.message": message.function if message else ""}
    for where, function in plain.items():
        why = _undeclared(function, header) if function else ""
        if why:
            said = f"mapping {mapping.name}, {where}: {why}"
            yield Difference(why=said, keys=tuple(where.split(".")), function=function)


def drift_of_entry(
    mapping: LibraryMapping, place: tuple[str, int], element: DType, header: Header
) -> Iterator[Difference]:
    """Yield every difference of an operator's entry for one dtype: of what is made before the call, and of the call."""
    held = _Entry(mapping, place, element, header)
    for c_object in held.entry.read.c_objects:
        for step in c_object.steps():
            yield from held.drift_of_step(step)
        yield from held.drift_of_struct(c_object)
    if held.entry.read.sized is not None:
        yield from held.drift_of_step(held.entry.read.sized)
    yield from held.drift_of_call()


class _Entry:
    """An operator's entry, held against headers for one dtype."""

    def __init__(self, mapping: LibraryMapping, place: tuple[str, int], element: DType, header: Header) -> None:
        name, index = place
        self.entry = mapping.operators[name][index]
        self._mapping = mapping
        self._place = place
        self._elements = Elements(of_call=element, of_others=self.entry.dtypes_of)
        self._header = header

    def drift_of_step(self, step: Step) -> Iterator[Difference]:
        function, place = step.call.named(self._elements.of_call.name), self._words(step.key)
        why = _undeclared(function, self._header)
        if why:
            yield Difference(keys=self._keys(step.key), why=f"{place}: {why}", function=function)
            return
        prototype = self._header.prototypes[function]
        why = drift_of_arguments(place, step.arguments, prototype, self._elements, self._header)
        if why:
            yield Difference(keys=self._keys(step.key), why=why, function=function)

    def drift_of_struct(self, c_object: CObject) -> Iterator[Difference]:
        key = "tensor" if is_of_a_tensor(c_object.name) else f"objects.{c_object.name}"
        for field, why in drift_of_fields(c_object, self._elements, self._header):
            keys = (*self._keys(key), *(("fields", field) if field else ()))
            yield Difference(keys=keys, why=f"{self._words(key)}, {why}")

    def drift_of_call(self) -> Iterator[Difference]:
        entry, name = self.entry, self.entry.function_of(self._elements.of_call.name)
        call = Call(function=name, arguments=entry.call)
        found = list(self.drift_of_step(Step(key="call", call=call, arguments=entry.read.arguments)))
        yield from found
        if found:
            return
        prototype = self._header.prototypes[name]
        why = misfit_of_result(prototype.result, entry.returns, has_status=bool(self._mapping.status))
        if why:
            said = f"{self._words('call')}: {name} {why}\n  at {prototype.where}: {prototype}"
            yield Difference(keys=self._keys("call"), why=said, function=name)

    def _is_of_the_file(self, key: str) -> bool:
        return key.startswith("tensor") and self.entry.tensor == self._mapping.tensor

    def _words(self, key: str) -> str:
        where = key if self._is_of_the_file(key) else f"operators.{self._place[0]}.{written(self.entry, key)}"
        return f"mapping {self._mapping.name}, {where}"

    def _keys(self, key: str) -> tuple[str | int, ...]:
        return (
            _keys(key) if self._is_of_the_file(key) else ("operators", *self._place, *_keys(written(self.entry, key)))
        )


def _keys(place: str) -> tuple[str | int, ...]:
    """``objects.plan.set[0]`` as the keys that lead there."""
    return tuple(int(each) if each.isdecimal() else each for each in re.findall(r"[^.\[\]]+", place))


def _undeclared(function: str, header: Header) -> str:
    """Why a function cannot be called, by what the headers say; empty if it can."""
    if function in header.prototypes:
        return ""
    if function in header.refused:
        return f"{function} cannot be called: {_first_line(header.refused[function])}"
    near = nearest(function, header.prototypes)
    return f"{function} is declared in no header" + (f"; did you mean {near}?" if near else "")


def _first_line(what: object) -> str:
    return str(what).partition("\n")[0]

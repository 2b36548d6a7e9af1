"""What a mapping needs of a library: which functions for which operators, and where the headers say otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from optest.clib.ffi.signatures import Header
from optest.clib.library.direct import DirectCall
from optest.clib.library.direct_drift import declared, drift_of_operator
from optest.clib.library.mapping import PLAIN_STATUSES, LibraryMapping
from optest.clib.library.roles import Role, drift
from optest.errors import UsageError, nearest
from optest.spec import dtype

__all__ = ["Drift", "drift_of_mapping", "functions_of_operators", "functions_of_whole"]

PARTS = ("create", "workspace", "run", "destroy")
_OF_EVERY_DESCRIPTOR = ("set_device", "get_device", "handle", "tensor", "status")
"""What every operator with a descriptor needs; what was drifted may be stated below one of these keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference between a mapping and the headers.

    ``keys`` lead to it in the mapping's file; ``function`` is the C function, where it is one.
    """

    words: str
    keys: tuple[str | int, ...]
    function: str = ""

    def concerns(self, operator: str, mapping: LibraryMapping) -> bool:
        """Whether it stands between one of optest's operators and its call."""
        if self.keys[0] == "operators":
            return self.keys[1] == operator
        return operator in mapping.operators and self.keys[0] in _OF_EVERY_DESCRIPTOR


def functions_of_operators(mapping: LibraryMapping) -> dict[str, tuple[str, ...]]:
    """The C functions of each of optest's operators that the mapping has, in the order in which they are called."""
    found = {
        name: tuple(
            getattr(mapping.protocol, part).replace("{name}", entry.name)
            for part in PARTS
            if part != "workspace" or entry.workspace
        )
        for name, entry in mapping.operators.items()
    }
    for name, alternatives in mapping.direct.items():
        found[name] = tuple(dict.fromkeys(each for entry in alternatives for each in _functions_of(entry)))
    return found


def _functions_of(entry: DirectCall) -> Iterator[str]:
    """Those of an operator that is one function, and those that make what it needs."""
    sized = entry.asked_for_workspace()
    steps = [step for c_object in entry.c_objects() for step in c_object.steps()]
    for element, function in entry.functions.items():
        yield from (step.call.named(element) for step in steps)
        if sized is not None:
            yield sized.call.function
        yield function


def functions_of_whole(mapping: LibraryMapping) -> tuple[str, ...]:
    """The C functions that belong to no operator: device, handle, tensor descriptors."""
    named = (
        *(call.function for call in mapping.setup),
        mapping.set_device.function,
        mapping.get_device.function if mapping.get_device else "",
        mapping.synchronize.function if mapping.synchronize else "",
        mapping.statuses.message.function if mapping.statuses.message else "",
        *mapping.threads.functions,
        mapping.handle.create.function,
        mapping.handle.ended_by,
        mapping.tensor.create.function,
        mapping.tensor.ended_by,
    )
    return tuple(filter(None, named))


def drift_of_mapping(mapping: LibraryMapping, header: Header) -> tuple[Drift, ...]:
    """Every difference between the mapping and the headers.

    An operator of which the headers declare nothing is no difference: the library does not have it.
    """
    absent = {
        name
        for name, functions in functions_of_operators(mapping).items()
        if not any(each in header.prototypes or each in header.refused for each in functions)
    }
    found = (
        *_drift_of_names(mapping, header),
        *_drift_of_calls(mapping, header, absent),
        *_drift_of_direct(mapping, header, absent),
    )
    return tuple(dict.fromkeys(found))


def _drift_of_names(mapping: LibraryMapping, header: Header) -> Iterator[Drift]:
    if mapping.status and mapping.status not in PLAIN_STATUSES:
        try:
            header.enum(mapping.status)
        except UsageError as error:
            yield Drift(words=f"mapping {mapping.name}, status: {_first_line(error)}", keys=("status",))
    message = mapping.statuses.message
    if message is not None and declared(message.function, header):
        said = f"mapping {mapping.name}, status.message: {declared(message.function, header)}"
        yield Drift(words=said, keys=("status", "message"), function=message.function)
    for each in mapping.statuses.success:
        if isinstance(each, str) and each not in header.constants:
            said = f"mapping {mapping.name}, status.success: {each} is declared in no header"
            yield Drift(words=said, keys=("status", "success"))
    for name, constant in mapping.dtypes.items():
        if constant not in header.constants:
            near = nearest(constant, header.constants)
            hint = f"; did you mean {near}?" if near else ""
            said = f"mapping {mapping.name}, dtypes.{name}: {constant} is declared in no header{hint}"
            yield Drift(words=said, keys=("dtypes", name))


def _drift_of_calls(mapping: LibraryMapping, header: Header, absent: Collection[str]) -> Iterator[Drift]:
    """Of the calls with roles; of the functions without any, only whether they are declared."""
    calls: dict[str, tuple[str, tuple[str, ...]]] = {
        f"setup.{index}": (call.function, call.arguments) for index, call in enumerate(mapping.setup)
    }
    for where, call in (
        ("set_device", mapping.set_device),
        ("get_device", mapping.get_device),
        ("synchronize", mapping.synchronize),
        ("handle", mapping.handle.create),
        ("tensor", mapping.tensor.create if mapping.operators else None),
    ):
        if call is not None and call.function:
            calls[where] = (call.function, call.arguments)
    plain = {"handle.destroy": mapping.handle.ended_by, "tensor.destroy": mapping.tensor.ended_by}
    for name, entry in mapping.operators.items():
        if name in absent:
            continue
        functions = {part: getattr(mapping.protocol, part).replace("{name}", entry.name) for part in PARTS}
        calls[f"operators.{name}.create"] = (functions["create"], entry.create)
        calls[f"operators.{name}.run"] = (functions["run"], entry.run)
        plain[f"operators.{name}.destroy"] = functions["destroy"]
        if entry.workspace:
            plain[f"operators.{name}.workspace"] = functions["workspace"]
    for where, (function, arguments) in calls.items():
        why = _drift_of_call(f"mapping {mapping.name}, {where}", function, arguments, header)
        if why is not None:
            yield Drift(words=why, keys=tuple(where.split(".")), function=function)
    for where, function in plain.items():
        if function and function not in header.prototypes:
            said = f"mapping {mapping.name}, {where}: {_why_undeclared(function, header)}"
            yield Drift(words=said, keys=tuple(where.split(".")), function=function)


def _drift_of_call(where: str, function: str, arguments: tuple[str, ...], header: Header) -> str | None:
    if function not in header.prototypes:
        return f"{where}: {_why_undeclared(function, header)}"
    return drift(where, tuple(map(Role.parse, arguments)), header.prototypes[function])


def _drift_of_direct(mapping: LibraryMapping, header: Header, absent: Collection[str]) -> Iterator[Drift]:
    for name, alternatives in mapping.direct.items():
        for index, entry in enumerate(() if name in absent else alternatives):
            for element in entry.functions:
                where = f"mapping {mapping.name}, operators.{name}"
                has_status = bool(mapping.status)
                for each in drift_of_operator(where, entry, dtype(element), header, has_status=has_status):
                    yield Drift(words=each.why, keys=("operators", name, index, *each.keys), function=each.function)


def _why_undeclared(function: str, header: Header) -> str:
    if function in header.refused:
        return f"{function} cannot be called: {_first_line(header.refused[function])}"
    near = nearest(function, header.prototypes)
    return f"{function} is declared in no header" + (f"; did you mean {near}?" if near else "")


def _first_line(what: object) -> str:
    return str(what).partition("\n")[0]

"""The mapping of a library whose operators are descriptors, guessed from its headers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.clib.ffi.protocols import OperatorFunctions
from optest.clib.ffi.signatures import CKind, CType, Header, Parameter, Prototype
from optest.clib.library.sketch_names import (
    SMALLEST_STEP,
    Catalogue,
    assigned,
    attribute_called,
    dtype_called,
    fold,
    named_throughout,
    plain,
)
from optest.spec import OperatorDescriptor

__all__ = ["Described", "Frame", "described", "frame_of", "frame_of_functions"]

_PARTS = ("create", "workspace", "run", "destroy")
_UNSUPPORTED = re.compile(r"NOT_?IMPLEMENTED|NOT_?SUPPORTED|UNSUPPORTED|UNIMPLEMENTED")
_COUNTS = ("n", "ndim", "rank", "num", "count", "len", "dims", "nd")
_C_INTEGERS = {(CKind.UINT, 8): "size_t", (CKind.INT, 8): "ptrdiff_t", (CKind.INT, 4): "int32_t"}
_WITH_STATISTICS = "statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One operator: ``data`` is its entry, ``guesses`` what a reader should look at."""

    operator: str
    data: Mapping[str, Any]
    guesses: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Frame:
    """What all operators share. ``lacking`` are the parts for which no function was found."""

    data: dict[str, Any] = field(default_factory=dict)
    guesses: dict[str, str] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    handle: str = ""
    tensor: str = ""


def frame_of(header: Header, callable_: Mapping[str, Prototype], found: Collection[OperatorFunctions]) -> Frame:
    """Statuses, dtypes, devices, handle, tensor descriptors and names of functions, as far as names and types tell."""
    frame = Frame()
    _take_status(frame, header, [callable_[each.create] for each in found])
    _take_device(frame, header, callable_)
    _take_handle(frame, callable_)
    _take_tensor(frame, header, callable_)
    _take_protocol(frame, found)
    frame.lacking = [
        part for part in ("status", "set_device", "handle", "tensor", "protocol") if part not in frame.data
    ]
    return frame


def frame_of_functions(header: Header, callable_: Mapping[str, Prototype], found: Sequence[Prototype]) -> Frame:
    """The same for plain functions: their statuses, and the context that the first argument of all may be."""
    frame = Frame()
    _take_status(frame, header, found)
    for name, kind in () if "status" in frame.data else (("int", CKind.INT), ("bool", CKind.BOOL)):
        if 2 * sum(each.result.kind is kind for each in found) > len(found):
            frame.data["status"] = name
            frame.guesses["status"] = f"functions return a status, and {'true' if name == 'bool' else '0'} is success"
    firsts = [each.parameters[0].type for each in found if each.parameters]
    contexts = Counter(each.spelling for each in firsts if each.pointee and _is_opaque(each.pointee, each.spelling))
    if contexts:
        _take_context(frame, callable_, contexts.most_common(1)[0][0])
    return frame


def _is_opaque(pointee: CType, spelling: str) -> bool:
    return pointee.kind is CKind.STRUCT or (pointee.kind is CKind.VOID and not spelling.endswith("*"))


_ENDS = re.compile(r"destroy|free|delete|release|close|fini|shutdown|deinit", re.IGNORECASE)
_BEGINS = re.compile(r"create|init|open|new|make|alloc", re.IGNORECASE)


def _take_context(frame: Frame, callable_: Mapping[str, Prototype], context: str) -> None:
    """The functions that make and end a context: into a slot, or as what they return."""
    ends = [
        each for name, each in callable_.items()
        if _ENDS.search(name) and [one.type.spelling for one in each.parameters] == [context]
    ]  # fmt: skip
    named = [each for name, each in callable_.items() if _BEGINS.search(name) and not _ENDS.search(name)]
    into = [each for each in named if len(each.parameters) == 1 and _made_by(each.parameters[0]) == context]
    returned = [each for each in named if not each.parameters and each.result.spelling == context]
    if not ends or not (into or returned):
        return
    create = (into or returned)[0]
    frame.handle = context
    arguments = ["slot"] if into else []
    frame.data["handle"] = {"create": {"function": create.name, "arguments": arguments}, "destroy": ends[0].name}


def _take_status(frame: Frame, header: Header, functions: Collection[Prototype]) -> None:
    """The enum that most of them return."""
    named = (
        next((each for each in (one.result.spelling, one.result.tag) if _has_enum(header, each)), "")
        for one in functions
    )
    counted = Counter(filter(None, named))
    if not counted:
        return
    name = counted.most_common(1)[0][0]
    frame.data["status"] = name
    unsupported = [each for each in header.enum(name) if _UNSUPPORTED.search(each)]
    if unsupported:
        frame.data["unsupported"] = unsupported


def _has_enum(header: Header, name: str) -> bool:
    alias = header.typedefs.get(name)
    return name in header.enums or (alias is not None and alias.tag in header.enums)


def _take_device(frame: Frame, header: Header, callable_: Mapping[str, Prototype]) -> None:
    select = _function(callable_, r"set_?device", 2)
    if select is not None and all(each.type.is_integer for each in select.parameters):
        frame.data["set_device"] = {"function": select.name, "arguments": ["device", "device_id"]}
        kind = select.parameters[0].type
        if kind.kind is CKind.ENUM and kind.tag in header.enums:
            frame.data["devices"] = _devices(header.enums[kind.tag])
    asked = _function(callable_, r"get_?(?:current_?)?device", 2)
    if asked is not None and all(each.is_pointer for each in asked.parameters):
        frame.data["get_device"] = {"function": asked.name, "arguments": ["device_slot", "device_id_slot"]}
    waits = _function(callable_, r"(?:device|context)_?synchroni[sz]e", 0)
    if waits is not None:
        frame.data["synchronize"] = {"function": waits.name, "arguments": []}


def _devices(enumerators: Mapping[str, int]) -> dict[str, int]:
    head = _shared_head(enumerators)
    found = {name[len(head) :].lower(): number for name, number in enumerators.items()}
    return {name: number for name, number in found.items() if not re.search("count|total|max|invalid|unknown", name)}


def _shared_head(names: Collection[str]) -> str:
    """Up to the last underscore that all share."""
    first, last = min(names), max(names)
    count = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first[:count].rfind("_") + 1]


def _function(callable_: Mapping[str, Prototype], pattern: str, count: int) -> Prototype | None:
    """The function whose name ends so, the shortest of several."""
    wanted = re.compile(rf"(?:.*[a-z0-9_])?(?:{pattern})", re.IGNORECASE)
    named = [each for name, each in callable_.items() if wanted.fullmatch(name) and len(each.parameters) == count]
    return min(named, key=lambda each: len(each.name), default=None)


def _take_handle(frame: Frame, callable_: Mapping[str, Prototype]) -> None:
    create = _function(callable_, r"(?:create|init)_?(?:handle|context)|(?:handle|context)_?(?:create|init)", 1)
    destroy = _function(callable_, r"(?:destroy|free)_?(?:handle|context)|(?:handle|context)_?(?:destroy|free)", 1)
    if create is None or destroy is None or not _is_slot(create.parameters[0]):
        return
    frame.handle = _made_by(create.parameters[0])
    frame.data["handle"] = {"create": {"function": create.name, "arguments": ["slot"]}, "destroy": destroy.name}


def _is_slot(parameter: Parameter) -> bool:
    return parameter.pointee is not None and parameter.pointee.is_pointer


def _made_by(parameter: Parameter) -> str:
    """The type of what is written into a slot, as the header writes it."""
    return "" if parameter.pointee is None else parameter.pointee.spelling


def _take_tensor(frame: Frame, header: Header, callable_: Mapping[str, Prototype]) -> None:
    create = _function(callable_, r"create_?tensor_?(?:desc|descriptor)?|tensor_?(?:desc|descriptor)?_?create", 5)
    destroy = _function(callable_, r"(?:destroy|free)_?tensor_?(?:desc|descriptor)?|tensor_?(?:desc\w*?)?_?destroy", 1)
    if create is None or destroy is None:
        return
    roles = list(map(_role_of_tensor, create.parameters))
    if sorted(roles) != ["dtype", "ndim", "shape", "slot", "strides"]:
        return
    frame.tensor = _made_by(create.parameters[roles.index("slot")])
    frame.data["tensor"] = {"create": {"function": create.name, "arguments": roles}, "destroy": destroy.name}
    kind = create.parameters[roles.index("dtype")].type
    enumerators = header.enums.get(kind.tag, {}) if kind.kind is CKind.ENUM else {}
    head = _shared_head(enumerators) if enumerators else ""
    dtypes: dict[str, str] = {}
    for constant in enumerators:
        word = constant[len(head) :]
        name = dtype_called(word)
        if name and (name not in dtypes or any(each.isdigit() for each in word)):
            dtypes[name] = constant
    frame.data["dtypes"] = dtypes
    if not dtypes:
        frame.guesses["dtypes"] = f"which constants of {kind} stand for which dtypes? {{float32: NAME, ...}}"


def _role_of_tensor(parameter: Parameter) -> str:
    name = plain(parameter.name)
    if _is_slot(parameter):
        return "slot"
    if parameter.is_pointer:
        return "strides" if "stride" in name or "step" in name else "shape"
    if parameter.type.kind is CKind.ENUM or "type" in name:
        return "dtype"
    return "ndim"


def _take_protocol(frame: Frame, found: Collection[OperatorFunctions]) -> None:
    """The names that most operators have; without a workspace at all it is named after the run."""
    patterns: dict[str, str] = {}
    for part in _PARTS:
        named = [(each.name, getattr(each, part)) for each in found if getattr(each, part)]
        counted = Counter(function.replace(name, "{name}", 1) for name, function in named)
        patterns[part] = counted.most_common(1)[0][0] if counted else patterns["create"] + "Workspace"
    frame.data["protocol"] = {part: patterns[part] for part in _PARTS}


def described(
    functions: OperatorFunctions, frame: Frame, callable_: Mapping[str, Prototype], header: Header, catalogue: Catalogue
) -> list[Described] | str:
    """The entries of one operator of C: several for one with 1, 2 and 3 dimensions. A text says why there is none."""
    protocol = frame.data["protocol"]
    for part in _PARTS:
        function = getattr(functions, part)
        if function and function != protocol[part].replace("{name}", functions.name):
            return f"{function} is not named as the others are, {protocol[part]}"
    descriptors = catalogue.called(functions.name)
    if not descriptors:
        return "no operator of optest has this name"
    create, run = (named_throughout(callable_[each]) for each in (functions.create, functions.run))
    found = [_Entry(functions, descriptor, create, run, frame, header).read() for descriptor in descriptors]
    entries = [each for each in found if isinstance(each, Described)]
    return entries or str(found[0])


class _Unplaced(Exception):
    """Why an operator's calls cannot be guessed."""


class _Entry:
    """The entry of one operator, put together."""

    def __init__(
        self,
        functions: OperatorFunctions,
        descriptor: OperatorDescriptor,
        create: Prototype,
        run: Prototype,
        frame: Frame,
        header: Header,
    ) -> None:
        self._functions = functions
        self._descriptor = descriptor
        self._create = create
        self._run = run
        self._frame = frame
        self._header = header
        self._roles: dict[str, str] = {}
        self._guesses: list[str] = []
        self._passed: list[str] = []
        self._data: dict[str, Any] = {}

    def read(self) -> Described | str:
        try:
            data = self._read()
        except _Unplaced as why:
            return str(why)
        return Described(operator=self._descriptor.name, data=data, guesses=tuple(self._guesses))

    def _read(self) -> dict[str, Any]:
        self._name_tensors()
        create = [self._role_in_create(each) for each in self._create.parameters]
        run = self._roles_in_run()
        self._explain_attributes([*create, *run])
        data = {"name": self._functions.name, **self._data}
        if not self._functions.workspace:
            data["workspace"] = False
        return {**data, "create": create, "run": run}

    def _name_tensors(self) -> None:
        """What each pointer to data is: ``const`` tells inputs from outputs."""
        data = [each for each in self._run.parameters[1:] if each.is_pointer and not self._is_of_protocol(each)]
        if not data:
            raise _Unplaced(f"{self._run.name} takes no data")
        outputs = [each.name for each in data if not each.is_const]
        inputs = [each.name for each in data if each.is_const]
        if not outputs:
            raise _Unplaced(f"{self._run.name} writes nothing: every pointer to data is const")
        if not inputs and len(outputs) > 1:
            outputs, inputs = outputs[:1], outputs[1:]
            self._guesses.append(f"{outputs[0]} is the output, since no pointer is const")
        attributes = {name: attribute_called(self._descriptor, name) for name in inputs}
        of_inputs = [name for name in inputs if not attributes[name]]
        self._roles |= {name: f"tensor:{attributes[name]}" for name in inputs if attributes[name]}
        self._take("output", outputs, self._descriptor.tensors.outputs)
        self._take("input", of_inputs, [each.name for each in self._descriptor.tensors.inputs])
        self._look_at_missing(of_inputs, outputs)

    def _take(self, kind: str, in_c: Sequence[str], wanted: Sequence[str]) -> None:
        found = assigned(in_c, wanted)
        if found is None:
            raise _Unplaced(f"{self._run.name} has {len(in_c)} {kind}s, {self._descriptor.name} has {len(wanted)}")
        for name, role in zip(in_c, found.names, strict=True):
            self._roles[name] = f"{kind}:{role}"
        if found.by_order and not (kind == "output" and len(in_c) == 1):
            told = ", ".join(f"{name} is {kind}:{role}" for name, role in zip(in_c, found.names, strict=True))
            self._guesses.append(f"{told}; by their order")

    def _look_at_missing(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        taken = {role.partition(":")[2] for name, role in self._roles.items() if name in inputs}
        for each in self._descriptor.tensors.inputs:
            if each.name in taken:
                continue
            called_alike = [name for name in outputs if plain(name) == fold(each.name)]
            if called_alike:
                names = [attribute.name for attribute in self._descriptor.attributes]
                start: dict[str, Any] = {"output": self._roles[called_alike[0]].partition(":")[2], "input": each.name}
                self._data["starts_as"] = {**start, **({"without": {"beta": 0.0}} if "beta" in names else {})}
                self._guesses.append(f"C reads {called_alike[0]} before it writes it, as the input {each.name}")
            elif not each.optional:
                raise _Unplaced(f"{self._run.name} has no argument for the input {each.name}")
        if len(outputs) > 1 and _WITH_STATISTICS in [each.name for each in self._descriptor.attributes]:
            self._data["always"] = {_WITH_STATISTICS: True}
        for each in self._descriptor.tensors.inputs:
            if each.optional and each.name in taken:
                self._guesses.append(f'C always wants {each.name}; "input:{each.name}?" where it may be NULL')
        two = [each for each in self._descriptor.tensors.inputs if not each.optional]
        if len(two) == 2 and self._descriptor.category in ("elementwise", "comparison", "logic", "bitwise"):
            self._data["broadcasts"] = True
            self._guesses.append("C gets inputs in the output's shape, by strides of 0")

    def _is_of_protocol(self, parameter: Parameter) -> bool:
        name = fold(parameter.name)
        return "workspace" in name or "stream" in name or parameter is self._run.parameters[0]

    def _roles_in_run(self) -> list[str]:
        roles = []
        for index, parameter in enumerate(self._run.parameters):
            name = fold(parameter.name)
            if index == 0:
                roles.append("descriptor")
            elif "workspace" in name:
                roles.append("workspace" if parameter.is_pointer else "workspace_size")
            elif "stream" in name:
                roles.append("stream")
            elif parameter.name in self._roles:
                roles.append(self._roles[parameter.name])
            else:
                roles.append(self._number(parameter, self._run))
        return roles

    def _role_in_create(self, parameter: Parameter) -> str:
        if parameter.is_pointer and parameter.type.spelling == self._frame.handle:
            return "handle"
        if _is_slot(parameter):
            return "slot"
        if parameter.is_pointer and parameter.type.spelling == self._frame.tensor:
            return self._tensor_called(parameter)
        if parameter.is_pointer:
            return self._array(parameter)
        return self._number(parameter, self._create)

    def _tensor_called(self, parameter: Parameter) -> str:
        """Descriptor and data have one name, or stand at the same place."""
        wanted = plain(parameter.name)
        for name, role in self._roles.items():
            if plain(name) == wanted:
                return role
        tensors = [each for each in self._create.parameters if each.type.spelling == self._frame.tensor]
        place = tensors.index(parameter)
        data = [each.name for each in self._run.parameters if each.name in self._roles]
        if len(data) != len(tensors):
            raise _Unplaced(f"{self._create.name} has {len(tensors)} tensors, {self._run.name} {len(data)}")
        self._guesses.append(f"{parameter.name} is {self._roles[data[place]]}, by its place")
        return self._roles[data[place]]

    def _array(self, parameter: Parameter) -> str:
        attribute = attribute_called(self._descriptor, parameter.name)
        if not attribute:
            self._guesses.append(f"NULL is passed for {parameter}, which nothing is known of")
            return "null"
        pointee = parameter.pointee
        stated = "" if pointee is None else _C_INTEGERS.get((pointee.kind, pointee.size), "")
        type_ = stated or "size_t"
        if not stated:
            self._guesses.append(f"{parameter.name} is an array of {type_}, which the header does not say")
        rank = self._descriptor.name[-2:-1]
        length = rank if self._descriptor.name.endswith("d") and rank.isdigit() else ""
        self._passed.append(attribute)
        return f"attribute:{attribute} as {type_}[{length}]"

    def _number(self, parameter: Parameter, prototype: Prototype) -> str:
        type_ = parameter.type
        attribute = attribute_called(self._descriptor, parameter.name)
        form = _form(parameter)
        if not form:
            raise _Unplaced(f"{prototype.name} takes {parameter}, which no role passes")
        arrays = [name for name in self._passed if prototype is self._create]
        if not attribute and type_.is_integer and arrays and plain(parameter.name) in _COUNTS:
            return f"count:{arrays[0]}"
        kinds = self._kind_of(attribute)
        if attribute and type_.kind is not CKind.ENUM and not kinds & {"str", "dtype", "ints"}:
            self._passed.append(attribute)
            return f"attribute:{attribute} as {form}"
        if type_.kind is CKind.ENUM:
            names = list(self._header.enums.get(type_.tag, {}))
            if names:
                also = f", of {', '.join(names)}" if len(names) > 1 else ""
                self._guesses.append(f"{names[0]} is passed for {parameter.name}{also}; `choices` maps an attribute")
                return f"constant:{names[0]} as int"
        self._guesses.append(f"0 is passed for {parameter}, which nothing is known of")
        return f"constant:0 as {form}"

    def _kind_of(self, attribute: str) -> set[str]:
        types = [each.type for each in self._descriptor.attributes if each.name == attribute]
        return set(types[0].split("|")) if types else set()

    def _explain_attributes(self, roles: Sequence[str]) -> None:
        """Attributes that nobody passes and whose value the tensors say already, and those that are none."""
        passed = {
            role.partition(":")[2].partition(" ")[0] for role in roles if role.startswith(("attribute", "tensor"))
        }
        implied: dict[str, Any] = {}
        left_out: dict[str, Any] = {}
        for attribute in self._descriptor.attributes:
            if attribute.name == "normalized_shape" and attribute.name not in passed:
                implied[attribute.name] = ["input[-1]"]
            elif attribute.name == "dtype" and attribute.name not in passed:
                implied[attribute.name] = f"{self._descriptor.tensors.outputs[0]}.dtype"
            elif attribute.is_required and attribute.name not in passed:
                self._guesses.append(f"nothing passes the attribute {attribute.name}, so every case is a gap")
            elif attribute.default is None and f"tensor:{attribute.name}" in roles:
                left_out[attribute.name] = {"min": "lowest", "max": "highest"}.get(attribute.name, 0.0)
            elif attribute.default is None and attribute.name == "eps" and attribute.name in passed:
                left_out["eps"] = SMALLEST_STEP
        if implied:
            self._data["implied"] = implied
        if left_out:
            self._data["left_out"] = left_out
            self._guesses.append(f"what is passed for {', '.join(left_out)} where a case states none")


def _form(parameter: Parameter) -> str:
    type_ = parameter.type
    if type_.kind is CKind.FLOAT:
        return {4: "float", 8: "double"}.get(type_.size, "")
    if type_.kind is CKind.BOOL:
        return "bool"
    return "int" if type_.is_integer else ""

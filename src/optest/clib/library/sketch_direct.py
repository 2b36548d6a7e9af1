"""The mapping of operators that are plain functions, guessed from their prototypes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.clib.ffi.signatures import CKind, Header, Parameter, Prototype
from optest.clib.library.sketch_names import (
    OUTPUTS,
    SMALLEST_STEP,
    Catalogue,
    assigned,
    attribute_called,
    dtype_of_function,
    element_of,
    fold,
    named_throughout,
    plain,
    words,
)
from optest.spec import OperatorDescriptor, dtype

__all__ = ["Direct", "direct", "merged"]

_ONE_BY_ONE = ("elementwise", "activation", "comparison", "logic", "bitwise", "conversion")
_ALONG_LAST = ("softmax", "log_softmax", "rms_norm", "layer_norm")
_TO_ONE_NUMBER = ("sum", "mean", "prod", "norm", "amax", "amin", "argmax", "argmin", "dot", "logsumexp", "all", "any")
_OF_MATRICES = {
    "gemm": {"a": ["m", "k"], "b": ["k", "n"], "out": ["m", "n"]},
    "matmul": {"input": ["m", "k"], "other": ["k", "n"], "out": ["m", "n"]},
    "linear": {"input": ["m", "k"], "weight": ["n", "k"], "out": ["m", "n"]},
}
_COPIES = ("clone", "reshape")
_SIZES = re.compile(r"(?:n|m|k|d|size|len|length|count|num\w*|nelem\w*|numel|total|elements|width|height|hidden|batch)")
_ROWS = re.compile(r"(?:n?rows?|m|batch|outer|b)")
_COLUMNS = re.compile(r"(?:n?cols?|columns?|n|k|d|dim|hidden|width|inner|size)")
_LEADING = re.compile(r"(?:ld|lead|pitch|rowstride)(?P<of>\w*)")
_INCREMENT = re.compile(r"(?:inc|stride|step)(?P<of>\w*)|(?P<also>\w+?)(?:inc|stride|step)")


_NUMBERS_BEHIND_POINTERS = ("alpha", "beta")
_FORMS_OF = {"float32": "float", "float64": "double"}
_NAMED_OTHERWISE = {
    ("float32", "complex64"),
    ("float64", "complex128"),
    ("uint16", "float16"),
    ("uint16", "bfloat16"),
    ("uint8", "float8_e4m3fn"),
    ("uint8", "bool"),
}
"""What C writes for elements, and what they are by a function's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """One entry of an operator: ``data`` is what the mapping states, ``guesses`` what a reader should look at."""

    operator: str
    data: Mapping[str, Any]
    guesses: tuple[str, ...] = ()


class _Unplaced(Exception):
    """Why a function's arguments cannot be guessed."""


def direct(prototype: Prototype, header: Header, catalogue: Catalogue, *, handle: str = "") -> Direct | str | None:
    """The entry of a function that has the name of an operator and takes pointers to numbers, else None.

    A text says why its arguments tell too little.

    ``handle`` is the type of the library's context, where it has one.
    """
    descriptor = catalogue.of_function(prototype.name)
    if descriptor is None or not any(map(_points_at_numbers, prototype.parameters)):
        return None
    try:
        return _Function(named_throughout(prototype), descriptor, header, handle).read()
    except _Unplaced as why:
        return str(why)


def _points_at_numbers(parameter: Parameter) -> bool:
    """A pointer to nothing in particular that has a name of its own is opaque."""
    pointee = parameter.pointee
    if pointee is None:
        return False
    return bool(element_of(pointee)) or (pointee.kind is CKind.VOID and parameter.type.spelling.endswith("*"))


def merged(found: Sequence[Direct]) -> list[Direct]:
    """Functions that differ in the dtype alone are one entry, also where the numbers that they take have it too."""
    kept: list[Direct] = []
    for in_the_dtype in (False, True):
        before, kept = (kept, []) if in_the_dtype else (list(found), [])
        for entry in before:
            each = _with_scalars(entry) if in_the_dtype else entry
            for index, other in enumerate(kept):
                if _alike(each, _with_scalars(other) if in_the_dtype else other):
                    kept[index] = _both(_with_scalars(other) if in_the_dtype else other, each)
                    break
            else:
                kept.append(entry)
    return kept


def _both(one: Direct, other: Direct) -> Direct:
    functions = _by_size({**one.data["functions"], **other.data["functions"]})
    guesses = tuple(dict.fromkeys((*one.guesses, *other.guesses)))
    return Direct(operator=one.operator, data={**one.data, "functions": functions}, guesses=guesses)


def _with_scalars(entry: Direct) -> Direct:
    """Numbers in the dtype of the call, where all of them are: ``as scalar``."""
    forms = {_FORMS_OF.get(each, "") for each in entry.data["functions"]}
    form = forms.pop() if len(forms) == 1 else ""
    call = [each.replace(f" as {form}", " as scalar") if form else each for each in entry.data["call"]]
    return Direct(operator=entry.operator, data={**entry.data, "call": call}, guesses=entry.guesses)


def _by_size(functions: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(functions.items(), key=lambda each: (dtype(each[0]).is_complex, dtype(each[0]).bits)))


def _alike(one: Direct, other: Direct) -> bool:
    keys = one.data.keys() | other.data.keys()
    return one.operator == other.operator and all(
        one.data.get(key) == other.data.get(key) for key in keys if key != "functions"
    )


@dataclass(slots=True)
class _Function:
    """One function, read argument by argument."""

    prototype: Prototype
    descriptor: OperatorDescriptor
    header: Header
    handle: str
    tensors: dict[str, str] = field(default_factory=dict)
    """Roles such as ``input:a`` by the names of C, in C's order."""
    guesses: list[str] = field(default_factory=list)
    element: str = ""
    sizes: list[str] = field(default_factory=list)
    """Names of the arguments that are sizes, in order."""

    def read(self) -> Direct:
        data, names = self._data(), self.descriptor
        returns = self._take_tensors(data)
        self.sizes = self._all_sizes()
        dims = self._dims(returns)
        sizes = self._sizes(dims)
        call = [self._argument(each, sizes) for each in self.prototype.parameters]
        entry: dict[str, Any] = {"functions": {self.element: self.prototype.name}, "dims": dims}
        if returns:
            entry["returns"] = returns
        entry |= self._further(call, dims)
        return Direct(operator=names.name, data={**entry, "call": call}, guesses=tuple(self.guesses))

    def _data(self) -> list[Parameter]:
        """The pointers to elements, all of one dtype; that of ``void`` and of 16 bits is told by the name."""
        data = [each for each in self.prototype.parameters if _points_at_numbers(each) and not self._is_number(each)]
        elements = {"" if each.pointee is None else element_of(each.pointee) for each in data}
        if len(elements) > 1:
            kinds = ", ".join(sorted(each or "void" for each in elements))
            raise _Unplaced(f"its tensors have several dtypes: {kinds}")
        if not elements:
            raise _Unplaced("it takes no pointer to numbers")
        (element,) = elements
        last = words(self.prototype.name)[-1]
        named = dtype_of_function(self.prototype.name, is_blas=fold(self.descriptor.name) == last[1:])
        if not element and not named:
            raise _Unplaced("its tensors are void, and its name says no dtype")
        has_another = (element, named) in _NAMED_OTHERWISE or not element
        self.element = named if has_another else element
        return data

    def _is_number(self, parameter: Parameter) -> bool:
        """Whether it points at one number, as alpha does where numbers are complex."""
        return parameter.is_const and plain(parameter.name) in _NUMBERS_BEHIND_POINTERS

    def _take_tensors(self, data: Sequence[Parameter]) -> str:
        """Which tensor each pointer is; the output that the function returns, if it does."""
        outputs = [each.name for each in data if not each.is_const]
        inputs = [each.name for each in data if each.is_const]
        names = list(self.descriptor.tensors.outputs)
        result = self.prototype.result
        is_number = result.kind is CKind.FLOAT or (result.is_integer and result.kind is not CKind.ENUM)
        returns = ""
        if is_number and not (outputs and inputs) and self.descriptor.name in _TO_ONE_NUMBER:
            returns, inputs, outputs = names[0], [each.name for each in data], []
        elif not inputs and len(outputs) > 1:
            named = [each for each in outputs if plain(each) in OUTPUTS]
            outputs, inputs = (
                ([named[-1]], [each for each in outputs if each != named[-1]])
                if named
                else (
                    outputs[-1:],
                    outputs[:-1],
                )
            )
            self.guesses.append(f"{outputs[0]} is the output, since no pointer is const")
        if len(outputs) != (0 if returns else 1):
            raise _Unplaced(f"it writes through {len(outputs)} pointers: {', '.join(outputs) or 'none'}")
        found = assigned(inputs, [each.name for each in self.descriptor.tensors.inputs])
        if found is None:
            raise _Unplaced(f"it reads {len(inputs)} tensors, and {self.descriptor.name} has fewer")
        roles = {name: f"input:{role}" for name, role in zip(inputs, found.names, strict=True)}
        roles |= dict.fromkeys(outputs, f"output:{names[0]}")
        self.tensors = {each.name: roles[each.name] for each in data}
        if found.by_order:
            told = ", ".join(f"{name} is {roles[name]}" for name in inputs)
            self.guesses.append(f"{told}; by their order")
        return returns

    def _all_sizes(self) -> list[str]:
        """Integers with the name of a size; a single integer with another name is one too."""
        numbers = [each for each in self.prototype.parameters if self._may_be_size(each)]
        found = [each.name for each in numbers if self._is_size(each)]
        if not found and len(numbers) == 1:
            self.guesses.append(f"{numbers[0]} is the size")
            return [numbers[0].name]
        return found

    def _may_be_size(self, parameter: Parameter) -> bool:
        is_integer = parameter.type.is_integer and parameter.type.kind is not CKind.ENUM
        return is_integer and not self._step(parameter) and not attribute_called(self.descriptor, parameter.name)

    def _is_size(self, parameter: Parameter) -> bool:
        name = plain(parameter.name)
        return bool(_SIZES.fullmatch(name) or _ROWS.fullmatch(name) or _COLUMNS.fullmatch(name))

    def _step(self, parameter: Parameter) -> tuple[str, str] | None:
        """``leading`` or ``increment`` and the tensor of C that it is of, by its name or as the one before it."""
        if not parameter.type.is_integer or parameter.type.kind is CKind.ENUM:
            return None
        name = plain(parameter.name)
        for kind, pattern in (("leading", _LEADING), ("increment", _INCREMENT)):
            found = pattern.fullmatch(name)
            if found is None:
                continue
            of = next((each for each in found.groups() if each), "")
            known = {plain(each): each for each in self.tensors}
            return kind, known.get(of) or self._tensor_before(parameter)
        return None

    def _tensor_before(self, parameter: Parameter) -> str:
        before = self.prototype.parameters[: self.prototype.parameters.index(parameter)]
        return next((each.name for each in reversed(before) if each.name in self.tensors), "")

    def _dims(self, returns: str) -> dict[str, list[str]]:
        """The names of each tensor's dimensions, from the operator and from how many sizes are passed."""
        name, count = self.descriptor.name, len(self.sizes)
        tensors = [role.partition(":")[2] for role in self.tensors.values()]
        if count == 0:
            raise _Unplaced("none of its arguments is a size")
        if name in _OF_MATRICES and count == 3:
            return {each: dims for each in _OF_MATRICES_ORDER if (dims := _OF_MATRICES[name].get(each))}
        if name in _OF_MATRICES:
            raise _Unplaced(f"it takes {count} sizes, but a product of matrices has three")
        if name in _TO_ONE_NUMBER and count == 1:
            one = ["n"] if name == "dot" else ["n..."]
            read = {each: one for each in tensors if each not in self.descriptor.tensors.outputs}
            return read if returns else {**read, self.descriptor.tensors.outputs[0]: []}
        if name in _ALONG_LAST and count == 2:
            return {each: ["n"] if each in ("weight", "bias") else ["m...", "n"] for each in tensors}
        if name in _ALONG_LAST and count == 1:
            return {each: ["n"] for each in tensors}
        if self.descriptor.category not in _ONE_BY_ONE and name not in _COPIES:
            raise _Unplaced(f"the shapes of {name} do not follow from {count} sizes")
        if count > 2:
            raise _Unplaced(f"it takes {count} sizes, but {name} goes element by element")
        return {each: ["n..."] if count == 1 else ["m", "n"] for each in tensors}

    def _sizes(self, dims: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """The name in ``dims`` of each argument that is a size."""
        wanted = sorted({each.removesuffix("...") for names in dims.values() for each in names}, key="mnk".index)
        by_name = {plain(name): name for name in self.sizes}
        if len(wanted) == 1:
            return {self.sizes[0]: wanted[0]}
        if set(wanted) <= by_name.keys():
            return {by_name[each]: each for each in wanted}
        if len(wanted) == 2 and _ROWS.fullmatch(plain(self.sizes[0])) and _COLUMNS.fullmatch(plain(self.sizes[1])):
            return dict(zip(self.sizes, wanted, strict=True))
        told = ", ".join(f"{name} is {size}" for name, size in zip(self.sizes, wanted, strict=True))
        self.guesses.append(f"of the sizes {told}; by their order")
        return dict(zip(self.sizes, wanted, strict=True))

    def _argument(self, parameter: Parameter, sizes: Mapping[str, str]) -> str:
        if parameter.name in self.tensors:
            return self.tensors[parameter.name]
        if parameter.name in sizes:
            return f"size:{sizes[parameter.name]}"
        if self.handle and parameter.is_pointer and parameter.type.spelling == self.handle:
            return "handle"
        step = self._step(parameter)
        if step is not None:
            kind, of = step
            if not of:
                raise _Unplaced(f"of which tensor is {parameter}?")
            reduces = self.descriptor.name in _TO_ONE_NUMBER and self.descriptor.name != "dot"
            how = " as positive" if kind == "increment" and reduces else ""
            return f"{kind}:{self.tensors[of].partition(':')[2]}{how}"
        if parameter.type.kind is CKind.ENUM:
            return self._constants(parameter)
        attribute = attribute_called(self.descriptor, parameter.name)
        if attribute and (form := self._form(parameter)):
            return f"attribute:{attribute} as {form}"
        raise _Unplaced(f"nothing is known of {parameter}")

    def _form(self, parameter: Parameter) -> str:
        type_ = parameter.type
        if type_.is_pointer:
            return "scalar" if self._is_number(parameter) and self.element.startswith("complex") else ""
        if type_.kind is CKind.FLOAT:
            return {4: "float", 8: "double"}.get(type_.size, "")
        if type_.kind is CKind.BOOL:
            return "bool"
        return "int" if type_.is_integer else ""

    def _constants(self, parameter: Parameter) -> str:
        """An order or a transposition by the words of the enumerators, else the first of them."""
        names = list(self.header.enums.get(parameter.type.tag, {}))
        rows = next((each for each in names if re.search(r"row_?major", each, re.IGNORECASE)), "")
        columns = next((each for each in names if re.search(r"col(?:umn)?_?major", each, re.IGNORECASE)), "")
        out = next((role.partition(":")[2] for role in self.tensors.values() if role.startswith("output:")), "")
        if rows and columns and out:
            return f"order:{out} as {rows}|{columns}"
        plain_ = next((each for each in names if re.search(r"no_?trans", each, re.IGNORECASE)), "")
        turned = next((each for each in names if re.search(r"(?<!no)(?<!no_)trans$", each, re.IGNORECASE)), "")
        if plain_ and turned:
            return f"layout:{self._transposed(parameter)} as {plain_}|{turned}"
        if not names:
            raise _Unplaced(f"nothing is known of {parameter}")
        self.guesses.append(f"{names[0]} is passed for {parameter.name}, of {', '.join(names)}")
        return f"constant:{names[0]}"

    def _transposed(self, parameter: Parameter) -> str:
        """The input that a transposition is of: by the last letter of its name, else by its place among them."""
        inputs = [role.partition(":")[2] for role in self.tensors.values() if role.startswith("input:")]
        known = {plain(name)[-1:]: role.partition(":")[2] for name, role in self.tensors.items()}
        named = known.get(plain(parameter.name)[-1:], "")
        if named in inputs:
            return named
        same = [each.name for each in self.prototype.parameters if each.type.tag == parameter.type.tag]
        place = same.index(parameter.name)
        if place >= len(inputs):
            raise _Unplaced(f"of which tensor is {parameter}?")
        return inputs[place]

    def _further(self, call: Sequence[str], dims: Mapping[str, Any]) -> dict[str, Any]:
        """What follows for attributes and inputs that the call does not name."""
        said: dict[str, Any] = {}
        passed = {each.partition(":")[2].partition(" ")[0] for each in call if each.startswith("attribute:")}
        attributes = [each.name for each in self.descriptor.attributes if each.name not in passed]
        inputs = [role.partition(":")[2] for role in self.tensors.values() if role.startswith("input:")]
        output = self.descriptor.tensors.outputs[0]
        for each in self.descriptor.tensors.inputs:
            if each.name in inputs:
                continue
            if each.optional and each.name == "c" and "beta" in passed:
                said["starts_as"] = {"output": output, "input": "c", "without": {"beta": 0.0}}
            elif not each.optional:
                if inputs or self.descriptor.tensors.inputs[0].name != each.name:
                    raise _Unplaced(f"nothing is passed for the input {each.name}")
                said["starts_as"] = {"output": output, "input": each.name}
                self.guesses.append("it works in place: its only pointer is input and output")
        if any(each.startswith("layout:") for each in call):
            turned = {"a": "trans_a", "b": "trans_b"}
            said["swapped"] = {tensor: name for tensor, name in turned.items() if name in attributes and tensor in dims}
        to_one = self.descriptor.name in _TO_ONE_NUMBER
        said_by_shapes = ("dim", "keepdim", "normalized_shape") if to_one else ("normalized_shape",)
        ignored = [each for each in attributes if each in said_by_shapes]
        if ignored:
            said["ignores"] = ignored
        if "dim" in attributes and not to_one:
            said["when"] = {"dim": "last"}
            self.guesses.append("it goes along the last dimension")
        none = [each.name for each in self.descriptor.attributes if each.name == "eps" and each.default is None]
        if none and "eps" in passed:
            said["left_out"] = {"eps": SMALLEST_STEP}
            self.guesses.append("what is passed for eps where a case states none")
        said |= self._same_layout(dims)
        if "p" in attributes and self.descriptor.name == "norm":
            said["when"] = {"p": 2.0}
            self.guesses.append("it is the Euclidean norm")
        missing = [
            each.name
            for each in self.descriptor.attributes
            if each.is_required and each.name in attributes and each.name not in ignored and each.name != "dim"
        ]
        if missing:
            raise _Unplaced(f"nothing is passed for the attribute {missing[0]}")
        return {key: value for key, value in said.items() if value}

    def _same_layout(self, dims: Mapping[str, Any]) -> dict[str, Any]:
        """A single step whose name is that of no tensor goes for all tensors of as many dimensions."""
        steps = [each for each in self.prototype.parameters if self._step(each)]
        if len(steps) != 1 or any(plain(steps[0].name).endswith(plain(name)) for name in self.tensors):
            return {}
        step = self._step(steps[0])
        stated = dims.get(self.tensors[step[1]].partition(":")[2]) if step and step[1] else None
        alike = [tensor for tensor, names in dims.items() if names == stated]
        if len(alike) < 2:
            return {}
        self.guesses.append(f"{steps[0].name} goes for {', '.join(alike)} alike")
        return {"same_layout": alike}


_OF_MATRICES_ORDER = ("a", "b", "input", "other", "weight", "out")

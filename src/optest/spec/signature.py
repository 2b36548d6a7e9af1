"""Signatures of operators: tensors by name and position, and attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optest.errors import UnknownName
from optest.spec.dtypes import DType, dtype
from optest.spec.tensors import TensorSpec


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        # Copies of a descriptor refer to the same object: it is compared by identity.
        return "REQUIRED"


# Default of an attribute that a case has to set.
REQUIRED: Any = _Required()


class UnfitArguments(ValueError):
    """Shapes, dtypes or attribute values that the operator does not accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One tensor input; an ``optional`` one may be missing, a ``variadic`` one is any number of tensors."""

    name: str
    optional: bool = False
    variadic: bool = False


_PARAMETER = re.compile(r"(?P<star>\*?)(?P<name>[A-Za-z_]\w*)(?P<optional>\??)")


def _parse_parameters(text: str, signature: str) -> tuple[Parameter, ...]:
    """Parse ``input, weight?, *rest``; raise ValueError, with the whole ``signature``, for other text."""
    matches = [_PARAMETER.fullmatch(part.strip()) for part in text.split(",")]
    if any(match is None for match in matches):
        raise ValueError(f"signature is {signature!r}, expected a text like 'input, weight? -> out'")
    return tuple(
        Parameter(name=match["name"], optional=bool(match["optional"]), variadic=bool(match["star"]))
        for match in matches
        if match is not None
    )


# A tensor with its dtype and sizes: `weight?: T[depth, width]`; see :mod:`optest.spec.declared_shapes`.
DECLARED = re.compile(r"(?:(\w+)(\??)\s*:\s*)?([\w|]*)(?:\((\w+)\))?\[([^\]]*)\]")
_POSITIONAL = re.compile(r"(input|output)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Tensors of an operator in order. Every tensor also has a positional name: ``input0``, ``output0`` and so on.

    The last ``optional_outputs`` outputs may be absent, depending on the attributes; with ``variadic_output`` the only
    output ``out`` represents any number of them: ``out0``, ``out1`` and so on. ``declaration`` is the complete text if
    it declares dtypes and sizes, else "".
    """

    inputs: tuple[Parameter, ...]
    outputs: tuple[str, ...] = ("out",)
    optional_outputs: int = 0
    variadic_output: bool = False
    declaration: str = ""

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Parse ``"input, weight?, *rest -> values, indices?"``: ``?`` is optional, ``*`` any number of tensors.

        With dtypes and sizes the form is ``"x: T[rows, depth], scale: float32[depth] -> T[rows]"``.

        Raises:
            ValueError: if the text has another form.
        """
        names = DECLARED.sub(lambda tensor: f"{tensor[1] or ''}{tensor[2] or ''}", text)
        left, arrow, right = names.partition("->")
        inputs = _parse_parameters(left, text) if left.strip() else ()
        is_named = arrow and (right.strip() or names == text)
        outputs = _parse_parameters(right, text) if is_named else (Parameter(name="out"),)
        optional = [output.optional for output in outputs]
        if sorted(optional) != optional or (any(output.variadic for output in outputs) and len(outputs) > 1):
            raise ValueError(f"signature is {text!r}, expected optional outputs last, and '*out' as the only output")
        return cls(
            inputs=inputs,
            outputs=tuple(output.name for output in outputs),
            optional_outputs=sum(optional),
            variadic_output=any(output.variadic for output in outputs),
            declaration=text if names != text else "",
        )

    def output_names(self, count: int) -> tuple[str, ...] | None:
        """Return the names of ``count`` outputs in order, or None if the operator cannot have so many or so few."""
        if self.variadic_output:
            return tuple(f"{self.outputs[0]}{index}" for index in range(count))
        if not len(self.outputs) - self.optional_outputs <= count <= len(self.outputs):
            return None
        return self.outputs[:count]

    @property
    def required_inputs(self) -> int:
        return sum(not parameter.optional and not parameter.variadic for parameter in self.inputs)

    @property
    def is_variadic(self) -> bool:
        return bool(self.inputs) and self.inputs[-1].variadic

    def input_name(self, index: int) -> str:
        """Return the name of the input at ``index``; the inputs of a variadic ``x`` are ``x0``, ``x1`` and so on."""
        if self.is_variadic and index >= len(self.inputs) - 1:
            return f"{self.inputs[-1].name}{index - len(self.inputs) + 1}"
        return self.inputs[index].name

    def locate(self, name: str) -> tuple[str, int]:
        """Return side and index of a tensor by its name or positional name: ``("input", 1)`` or ``("output", 0)``.

        Raises:
            UnknownName: if the operator has no such tensor.
        """
        for index, parameter in enumerate(self.inputs):
            if name == parameter.name and not parameter.variadic:
                return "input", index
        if name in self.outputs and not self.variadic_output:
            return "output", self.outputs.index(name)
        positional = _POSITIONAL.fullmatch(name)
        if positional is not None:
            side, index = positional[1], int(positional[2])
            endless = self.variadic_output if side == "output" else self.is_variadic
            if endless or index < len(self.outputs if side == "output" else self.inputs):
                return side, index
        if self.variadic_output:
            numbered = re.fullmatch(rf"{re.escape(self.outputs[0])}(\d+)", name)
            if numbered is not None:
                return "output", int(numbered[1])
        if self.is_variadic:
            numbered = re.fullmatch(rf"{re.escape(self.inputs[-1].name)}(\d+)", name)
            if numbered is not None:
                return "input", len(self.inputs) - 1 + int(numbered[1])
        raise UnknownName("tensor", name, self._known_names())

    def tensor_names(self) -> tuple[str, ...]:
        """Return the declared names of all tensors, then the positional ones."""
        declared = (*(parameter.name for parameter in self.inputs), *self.outputs)
        positional = (
            *(f"input{index}" for index in range(len(self.inputs))),
            *(f"output{index}" for index in range(len(self.outputs))),
        )
        return tuple(dict.fromkeys((*declared, *positional)))

    def _known_names(self) -> tuple[str, ...]:
        """Return the names that :meth:`locate` accepts; for a variadic tensor only ``x0`` and ``x1``."""
        endless = ({self.inputs[-1].name} if self.is_variadic else set()) | (
            set(self.outputs) if self.variadic_output else set()
        )
        names: list[str] = []
        for name in self.tensor_names():
            names += [f"{name}0", f"{name}1"] if name in endless else [name]
        return tuple(names)

    def __str__(self) -> str:
        if self.declaration:
            return self.declaration
        shown = (f"{'*' * p.variadic}{p.name}{'?' * p.optional}" for p in self.inputs)
        required = len(self.outputs) - self.optional_outputs
        outputs = (f"{'*' * self.variadic_output}{n}{'?' * (i >= required)}" for i, n in enumerate(self.outputs))
        return f"{', '.join(shown)} -> {', '.join(outputs)}"


_ATTRIBUTE_TYPES = ("int", "float", "bool", "str", "ints", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute: its name, type, default and legal values.

    ``type`` is ``int``, ``float``, ``bool``, ``str``, ``ints`` (a tuple of int) or ``dtype``, or alternatives such as
    ``ints|str``. With the default :data:`REQUIRED` a case has to set it; with the default None it may be None.
    ``implied`` computes the value from the spec of the first input, for libraries without a parameter for it and for
    None.
    """

    name: str
    type: str
    default: Any = REQUIRED
    choices: tuple[Any, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str = ""
    implied: Callable[[TensorSpec], Any] | None = None

    def __post_init__(self) -> None:
        if not set(self.type.split("|")) <= set(_ATTRIBUTE_TYPES):
            raise ValueError(f"attribute type is {self.type!r}, expected one of {', '.join(_ATTRIBUTE_TYPES)}")

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def names_dimensions(self) -> bool:
        """True if its values are indices of dimensions: integers, with dim, axis or axes in the name."""
        words = self.name.split("_")
        return self.type.startswith("int") and any(word.startswith(("dim", "axis", "axes")) for word in words)

    @property
    def is_size(self) -> bool:
        """True if it may be the size of its name in a declared signature: one integer that is no dimension index."""
        return self.type == "int" and not self.names_dimensions

    def is_default(self, value: Any, rank: int) -> bool:
        """Return whether ``value`` is the default, or the same dimension of a tensor of ``rank``: 1 is -1 of rank 2."""
        size, default = max(rank, 1), self.default
        if value == default or not self.names_dimensions or type(value) is not int or type(default) is not int:
            return bool(value == default)
        return all(-size <= index < size for index in (value, default)) and value % size == default % size

    def read(self, value: Any) -> Any:
        """Convert ``value`` to its canonical form: ``ints`` to a tuple, a dtype to its name, 1 to 1.0 for a float.

        Raises:
            UnfitArguments: if the value has another type or is not among the choices.
        """
        if value is None and self.default is None:
            return None
        kinds = self.type.split("|")
        candidates = (_canonical_value(kind, value) for kind in kinds)
        canonical = next((candidate for candidate in candidates if candidate is not _UNFIT), _UNFIT)
        if canonical is _UNFIT:
            words = " or ".join(_TYPE_WORDS[kind] for kind in kinds)
            raise UnfitArguments(f"attribute {self.name} is {value!r}, expected {words}")
        if self.choices and canonical not in self.choices:
            listed = ", ".join(map(repr, self.choices))
            raise UnfitArguments(f"attribute {self.name} is {value!r}, expected one of {listed}")
        return canonical


_UNFIT = object()
_TYPE_WORDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "ints": "a list of integers",
    "dtype": "the name of a dtype",
}


def value_text(value: Any) -> str:
    """Return the value of an attribute as text, a tuple in the form of a list."""
    return str(list(value) if isinstance(value, tuple) else value)


def is_integer(value: Any) -> bool:
    """Return whether ``value`` is a Python integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _canonical_value(kind: str, value: Any) -> Any:
    """Return ``value`` converted to the attribute type ``kind``, or ``_UNFIT`` if it has another type."""
    match kind:
        case "int" if is_integer(value):
            return value
        case "float" if is_integer(value) or isinstance(value, float):
            return float(value)
        case "bool" if isinstance(value, bool) or (is_integer(value) and value in (0, 1)):  # ONNX has 0 and 1
            return bool(value)
        case "str" if isinstance(value, str):
            return value
        case "ints" if is_integer(value):
            return (value,)
        case "ints" if isinstance(value, (list, tuple)) and all(map(is_integer, value)):
            return tuple(value)
        case "dtype" if isinstance(value, (str, DType)):
            return dtype(value).name
    return _UNFIT

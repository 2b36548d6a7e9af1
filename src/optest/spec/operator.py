"""What an operator is: its tensors, attributes, legal inputs, reference and the class of its rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from optest.errors import UnknownName
from optest.spec.dtypes import DType, dtype
from optest.spec.samples import Sample
from optest.spec.tensors import TensorSpec

__all__ = [
    "REQUIRED",
    "AsRight",
    "Attribute",
    "ErrorBudget",
    "Interval",
    "NamedOutput",
    "OperatorDescriptor",
    "Parameter",
    "ReferenceNote",
    "Rule",
    "RuleClass",
    "Signature",
    "Terms",
    "UnfitArguments",
    "Unrounded",
    "undeclared_output_dtype",
]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        return "REQUIRED"  # a copy of a descriptor holds this very object, by which it is known


REQUIRED: Any = _Required()
"""The default of an attribute that a case has to state."""

Infer = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], Sequence[TensorSpec]]
Hook = Callable[[Sequence[Any], Mapping[str, Any]], Any]
SumLength = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], int]
Operations = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], "int | None"]
Domain = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], Mapping[str, "Interval"]]
Alternatives = Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], Sequence[Any]]


class UnfitArguments(ValueError):
    """Shapes, dtypes or attribute values that the operator cannot take."""


class Terms(NamedTuple):
    """What each output element of a sum or contraction adds up, in float64, shaped like the output.

    ``absolute`` is Σ|t|, ``squared`` is Σt², ``count`` the number of terms (one number, or one for each element).
    ``divided`` says that the terms are quotients: right kernels divide the sum, multiply it by the inverse, or divide
    each element, so that whole numbers have no one right answer.
    """

    absolute: Any
    squared: Any
    count: Any
    divided: bool = False


class ErrorBudget(NamedTuple):
    """What a composed operator may lose before its final rounding, shaped like the output.

    ``worst`` is the largest error in multiples of the unit roundoff of the arithmetic; ``variance`` the
    expected squared error in multiples of its square, None where no statistic can be given. ``of_operands`` is what
    operands of float32 cost in worst and variance that are cut before they are multiplied in a contraction, in
    multiples of the unit roundoff to which they are cut; None where there is no contraction.
    """

    worst: Any
    variance: Any | None = None
    of_operands: tuple[Any, Any] | None = None


class Unrounded(NamedTuple):
    """An expected output before its rounding: float64 values, and the dtype that the output has.

    For references whose outputs are of other dtypes than the first inexact input.
    """

    values: Any
    dtype: DType


class AsRight(NamedTuple):
    """What an operator's ``alternatives`` may say of one output beside the bare mask.

    ``mask`` is True where an element that differs from the reference's is as right. ``doubt`` says why a pass that
    needs the mask proves little; such a pass is suspect.
    """

    mask: Any
    doubt: str = ""


class NamedOutput(NamedTuple):
    """An expected output that the signature does not name, because the case asks for it: a gradient.

    ``value`` is an array or :class:`Unrounded`, ``rule`` judges this output in place of the operator's, ``terms`` are
    its own. Named outputs stand behind all others.
    """

    name: str
    value: Any
    rule: Rule | None = None
    terms: Any = None


class ReferenceNote(NamedTuple):
    """What a reference has to say about what it expects, among its outputs; it stands in the record of the case.

    ``itself_on`` is the device on which the operator under test was its own reference: a backend that answers from
    there is compared with itself.
    """

    text: str
    itself_on: str = ""


class RuleClass(str, Enum):
    """How results of an operator are judged when the user states no tolerance."""

    MOVEMENT = "movement"
    """Elements move and never change: bits are compared, with NaN equal to NaN."""
    EXACT = "exact"
    """One right answer: comparison, logic, integers, conversion."""
    ULP = "ulp"
    """An elementwise function: a few units in the last place."""
    ACCUMULATE = "accumulate"
    """A sum or contraction: bounds that grow with Σ|terms|."""
    COMPOSED = "composed"
    """Built from the others: the operator states its own error budget."""
    CLOSE = "close"
    """A function of which nothing else is known: the tolerance that torch.testing has for the output's dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The built-in rule of an operator.

    ``ulp`` is the ceiling in units in the last place of the arithmetic (float32 for 16- and 8-bit results),
    where 0.5 means correctly rounded; ``cpu_ulp`` is a sharper one, for what runs on a CPU. ``source`` says where the
    ceiling comes from, ``formula`` what a composed budget adds up. ``stands`` keeps it where a plan or a case states a
    tolerance: one number for all lengths of a sum is too narrow for the long ones and too wide for the short.
    """

    kind: RuleClass
    ulp: float = 0.5
    cpu_ulp: float | None = None
    source: str = ""
    formula: str = ""
    stands: bool = False

    def ceiling(self, processor: str | None) -> float:
        """The ceiling for a :attr:`Numerics.processor`."""
        return self.cpu_ulp if self.cpu_ulp is not None and processor == "cpu" else self.ulp


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The closed range from which random inputs are drawn; ``avoid`` keeps |x| at least that far from 0."""

    low: float = float("-inf")
    high: float = float("inf")
    avoid: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One tensor input: ``optional`` may be left out, ``variadic`` stands for any number of tensors."""

    name: str
    optional: bool = False
    variadic: bool = False


_PARAMETER = re.compile(r"(?P<star>\*?)(?P<name>[A-Za-z_]\w*)(?P<optional>\??)")


def _parameters(text: str, signature: str) -> tuple[Parameter, ...]:
    matches = [_PARAMETER.fullmatch(part.strip()) for part in text.split(",")]
    if any(match is None for match in matches):
        raise ValueError(f"signature is {signature!r}, but should look like 'input, weight? -> out'")
    return tuple(
        Parameter(name=match["name"], optional=bool(match["optional"]), variadic=bool(match["star"]))
        for match in matches
        if match is not None
    )


_POSITIONAL = re.compile(r"(input|output)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The tensors of an operator in order. Every tensor also answers to ``input0``, ``output0`` and so on.

    The last ``optional_outputs`` outputs may be absent, as the attributes say; with ``variadic_output`` the one
    output ``out`` stands for any number of them: ``out0``, ``out1`` and so on.
    """

    inputs: tuple[Parameter, ...]
    outputs: tuple[str, ...] = ("out",)
    optional_outputs: int = 0
    variadic_output: bool = False

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read ``"input, weight?, *rest -> values, indices?"``; ``?`` is optional, ``*`` any number.

        Raises:
            ValueError: if the text has another form.
        """
        left, arrow, right = text.partition("->")
        inputs = _parameters(left, text) if left.strip() else ()
        outputs = _parameters(right, text) if arrow else (Parameter(name="out"),)
        optional = [each.optional for each in outputs]
        if sorted(optional) != optional or (any(each.variadic for each in outputs) and len(outputs) > 1):
            raise ValueError(f"signature is {text!r}, but optional outputs should come last, and '*out' stand alone")
        return cls(
            inputs=inputs,
            outputs=tuple(each.name for each in outputs),
            optional_outputs=sum(optional),
            variadic_output=any(each.variadic for each in outputs),
        )

    def output_names(self, count: int) -> tuple[str, ...] | None:
        """The names of ``count`` outputs in order, None where the operator cannot have so many."""
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
        """The name of the input at ``index``; a variadic parameter ``x`` gives ``x0``, ``x1`` and so on."""
        if self.is_variadic and index >= len(self.inputs) - 1:
            return f"{self.inputs[-1].name}{index - len(self.inputs) + 1}"
        return self.inputs[index].name

    def locate(self, name: str) -> tuple[str, int]:
        """Return ``("input", 1)`` or ``("output", 0)`` for a tensor's own or positional name.

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
            own = re.fullmatch(rf"{re.escape(self.outputs[0])}(\d+)", name)
            if own is not None:
                return "output", int(own[1])
        if self.is_variadic:
            own = re.fullmatch(rf"{re.escape(self.inputs[-1].name)}(\d+)", name)
            if own is not None:
                return "input", len(self.inputs) - 1 + int(own[1])
        raise UnknownName("tensor", name, self._names_to_write())

    def tensor_names(self) -> tuple[str, ...]:
        own = (*(parameter.name for parameter in self.inputs), *self.outputs)
        positional = (
            *(f"input{index}" for index in range(len(self.inputs))),
            *(f"output{index}" for index in range(len(self.outputs))),
        )
        return tuple(dict.fromkeys((*own, *positional)))

    def _names_to_write(self) -> tuple[str, ...]:
        """The names that :meth:`locate` knows; of any number of tensors, those of the first two."""
        endless = ({self.inputs[-1].name} if self.is_variadic else set()) | (
            set(self.outputs) if self.variadic_output else set()
        )
        names: list[str] = []
        for name in self.tensor_names():
            names += [f"{name}0", f"{name}1"] if name in endless else [name]
        return tuple(names)

    def __str__(self) -> str:
        shown = (f"{'*' * p.variadic}{p.name}{'?' * p.optional}" for p in self.inputs)
        required = len(self.outputs) - self.optional_outputs
        outputs = (f"{'*' * self.variadic_output}{n}{'?' * (i >= required)}" for i, n in enumerate(self.outputs))
        return f"{', '.join(shown)} -> {', '.join(outputs)}"


_ATTRIBUTE_TYPES = ("int", "float", "bool", "str", "ints", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute: its name, type, default and legal values.

    ``type`` is ``int``, ``float``, ``bool``, ``str``, ``ints`` (a tuple of int) or ``dtype``, or two of them as in
    ``ints|str``. A default of :data:`REQUIRED` has no default; a default of None admits None.
    """

    name: str
    type: str
    default: Any = REQUIRED
    choices: tuple[Any, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        if not set(self.type.split("|")) <= set(_ATTRIBUTE_TYPES):
            raise ValueError(f"attribute type is {self.type!r}, but should be one of {', '.join(_ATTRIBUTE_TYPES)}")

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    def read(self, value: Any) -> Any:
        """Return ``value`` in its canonical form.

        Raises:
            UnfitArguments: if the value has another type or is not among the choices.
        """
        if value is None and self.default is None:
            return None
        kinds = self.type.split("|")
        read = (_canonical_value(kind, value) for kind in kinds)
        canonical = next((each for each in read if each is not _UNFIT), _UNFIT)
        if canonical is _UNFIT:
            words = " or ".join(_TYPE_WORDS[kind] for kind in kinds)
            raise UnfitArguments(f"attribute {self.name} is {value!r}, but should be {words}")
        if self.choices and canonical not in self.choices:
            listed = ", ".join(map(repr, self.choices))
            raise UnfitArguments(f"attribute {self.name} is {value!r}, but should be one of {listed}")
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


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _canonical_value(kind: str, value: Any) -> Any:
    match kind:
        case "int" if _is_int(value):
            return value
        case "float" if _is_int(value) or isinstance(value, float):
            return float(value)
        case "bool" if isinstance(value, bool) or (_is_int(value) and value in (0, 1)):  # ONNX has 0 and 1
            return bool(value)
        case "str" if isinstance(value, str):
            return value
        case "ints" if _is_int(value):
            return (value,)
        case "ints" if isinstance(value, (list, tuple)) and all(map(_is_int, value)):
            return tuple(value)
        case "dtype" if isinstance(value, (str, DType)):
            return dtype(value).name
    return _UNFIT


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDescriptor:
    """Everything static about one operator.

    Attributes:
        name: canonical name; ``aliases`` are accepted wherever it is.
        signature: a :class:`Signature`, or its text: ``"input, other -> out"``.
        attributes: what a case may state beside its tensors; any other attribute is an error.
        open_attributes: accept attributes that are not declared, as they are written.
        dtype_variants: the input dtypes that are defined, a tuple for each combination; a tuple of one
            stands for all inputs alike; none at all admits every dtype.
        infer: dotted path or function ``(input specs, attributes) -> output specs``; raises
            :class:`UnfitArguments`. Without one, outputs are taken from the plan or the reference.
        reference: dotted path or function ``(inputs, attributes) -> outputs``, float64 and unrounded.
        refused: dotted path or function ``(inputs, attributes, expected error)``: raises a :class:`Fault` unless the
            reference refuses the call so, too. Without one the backend alone is asked to refuse.
        terms: dotted path or function ``(inputs, attributes) -> one Terms or ErrorBudget for each output``, or one Rule
            where neither the operator's rule nor its terms hold for a call.
        operations: dotted path or function ``(input specs, attributes) -> int | None``: the operations of one call as
            people count them (2·m·n·k for a product of matrices), for rates in benchmarks. Left out for operators
            whose work is moving memory.
        sum_length: dotted path or function ``(input specs, attributes) -> int``: how many terms the longest sum of an
            output element has, for fills that keep sums exact or finite.
        rule: the built-in rule; without one, ``exact`` for integers and bool, and for floats a tolerance
            has to be stated.
        domain: the range of each input by name, for random fills; or, where it depends on shapes or attributes
            (indices do), a dotted path or function ``(input specs, attributes) -> such a mapping``.
        alternatives: dotted path or function ``(inputs, attributes, actual outputs) -> one mask or None for each
            output``, True where an element that differs from the reference's is as right: the place of a tied
            maximum, the other side of a rounding step that lies within the bound; or :class:`AsRight`.
        may_refuse: dotted path or function ``(inputs, attributes) -> text``: why a backend that raises an exception for
            these values is as right as one that answers; "" where it has to answer.
        samples: dotted path or function ``() -> Samples``: the calls that ``optest check`` makes of the operator;
            ``case_sets`` names the sets that they come in.
        signed_zeros: the sign of a result that is zero is defined, and part of the result: by IEEE 754-2019 §6.3 for
            +, -, ×, /, sqrt and conversions, by §5.9 for rounding to whole numbers, by C Annex F.10 for functions. An
            operator whose correct libraries differ there (relu, maximum, sign, elu, sums of many terms) defines none.
        mutates: inputs that the operator changes on purpose.
        promotes: operands of several dtypes meet in a common one, as those of elementwise operators do.
        generator: default generator in any form that a plan takes: a fill's name, a dotted path, or a mapping
            such as ``{"fill": "uniform", "low": 84.0, "high": 92.0}``.
    """

    name: str
    category: str = "custom"
    signature: Signature | str = "input0 -> out"
    aliases: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    open_attributes: bool = False
    dtype_variants: tuple[tuple[str, ...], ...] = ()
    infer: str | Infer | None = None
    reference: str | Hook | None = None
    refused: str | Callable[..., None] | None = None
    terms: str | Hook | None = None
    sum_length: str | SumLength | None = None
    operations: str | Operations | None = None
    rule: Rule | None = None
    domain: Mapping[str, Interval] | str | Domain = field(default_factory=dict)
    alternatives: str | Alternatives | None = None
    may_refuse: str | Callable[[Sequence[Any], Mapping[str, Any]], str] | None = None
    samples: str | Callable[[], Iterable[Sample]] | None = None
    case_sets: tuple[str, ...] = ()
    signed_zeros: bool = False
    mutates: tuple[str, ...] = ()
    promotes: bool = False
    generator: str | Mapping[str, Any] | None = None
    tags: tuple[str, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.signature, str):
            object.__setattr__(self, "signature", Signature.parse(self.signature))
        variants = tuple(tuple(dtype(name).name for name in variant) for variant in self.dtype_variants)
        object.__setattr__(self, "dtype_variants", variants)

    @property
    def tensors(self) -> Signature:
        assert isinstance(self.signature, Signature)
        return self.signature

    @property
    def is_promoting(self) -> bool:
        """Whether operands of several dtypes meet in a common one, which is that of the tensors with dimensions."""
        return self.promotes or self.category in ("comparison", "elementwise")

    def attribute(self, name: str) -> Attribute:
        """Return the attribute called ``name`` or an alias of it.

        Raises:
            UnknownName: if the operator has no such attribute.
        """
        for attribute in self.attributes:
            if name == attribute.name or name in attribute.aliases:
                return attribute
        raise UnknownName(f"attribute of {self.name}", name, [attribute.name for attribute in self.attributes])

    def bind(self, stated: Mapping[str, Any]) -> dict[str, Any]:
        """Return all attributes with their values, defaults filled in, in declared order.

        Raises:
            UnfitArguments: for a wrong type, a value outside the choices, or one left out that is required.
            UnknownName: for an attribute that the operator does not have.
        """
        values: dict[str, Any] = {}
        for name, value in stated.items():
            if self.open_attributes and all(name != a.name and name not in a.aliases for a in self.attributes):
                values[name] = value
                continue
            attribute = self.attribute(name)
            if attribute.name in values:
                other = next(each for each in stated if each in (attribute.name, *attribute.aliases) and each != name)
                also = other if name == attribute.name else name
                raise UnfitArguments(f"attribute {attribute.name} is stated twice, also as {also}")
            values[attribute.name] = attribute.read(value)
        missing = [a.name for a in self.attributes if a.is_required and a.name not in values]
        if missing:
            raise UnfitArguments(f"{self.name} needs the attribute {', '.join(missing)}")
        declared = {a.name: values.pop(a.name, a.default) for a in self.attributes}
        return {**declared, **values}

    def admits(self, dtypes: Sequence[str]) -> bool:
        """Whether the operator is defined for inputs of these dtypes, in order."""
        if not self.dtype_variants:
            return True
        return any(
            tuple(dtypes) == variant or (len(variant) == 1 and all(name == variant[0] for name in dtypes))
            for variant in self.dtype_variants
        )


def undeclared_output_dtype(reference: DType, inputs: Sequence[DType]) -> DType:
    """The dtype of an output that neither plan nor inference declares.

    A reference that yields float64 stands for the dtype of the first inexact input; any other dtype stands for itself.
    """
    if reference.name in ("float64", "complex128"):
        return next((entry for entry in inputs if entry.is_inexact), reference)
    return reference

"""Operator descriptors: tensors, attributes, legal inputs, reference, rule and samples of an operator.

Samples are the calls that ``optest check`` makes without a plan. A spelling is an operator's name in another library,
with the attributes of that library and their translation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress, product
from typing import Any, TypeAlias

from optest.errors import UnknownName
from optest.spec.declared_shapes import OFFSETS, DeclaredTensor, match_declaration, read_declaration
from optest.spec.dtypes import dtype
from optest.spec.invariants import read_invariants
from optest.spec.references import Rule
from optest.spec.signature import Attribute, Signature, UnfitArguments
from optest.spec.tensors import TensorSpec

Infer = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], Sequence[TensorSpec]]
Hook = Callable[[Sequence[Any], Mapping[str, Any]], Any]
SumLength = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], int]
Operations = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], "int | None"]
Domain = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], Mapping[str, "Interval"]]
Alternatives = Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Closed range of random inputs, with |x| ≥ ``avoid``."""

    low: float = float("-inf")
    high: float = float("inf")
    avoid: float = 0.0


# Dtype variants of a declared signature without explicit ones.
_FLOATS = (("float32",), ("float16",), ("bfloat16",), ("float64",))


@dataclass(frozen=True, slots=True)
class _Declared:
    """Hooks derived from a signature with dtypes and sizes."""

    signature: Signature
    attributes: tuple[Attribute, ...]
    ranges: Mapping[str, Interval]

    def _fitted(
        self, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]
    ) -> tuple[Any, tuple[TensorSpec, ...]]:
        """Match specs with the declaration, with the sizes that are attributes as known sizes; see ``fitted``."""
        sizes = {attribute.name for attribute in self.attributes if attribute.is_size}
        known = {name: value for name, value in attributes.items() if name in sizes and value is not None}
        return match_declaration(specs, self.signature.declaration, **known)

    def infer(self, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> Sequence[TensorSpec]:
        """Return the output specs of a call."""
        return self._fitted(specs, attributes)[1]

    def domain(self, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> Mapping[str, Interval]:
        """Return the ranges of inputs for a call: those of indices and offsets from the sizes, else ``ranges``."""
        sizes = vars(self._fitted(specs, attributes)[0])
        limits = {
            tensor.name: (int(tensor.limit) if tensor.limit.isdigit() else sizes[tensor.limit])
            - (tensor.kind != OFFSETS)
            for tensor in read_declaration(self.signature.declaration)[0]
            # A limit is not in `sizes` if only an omitted input has it.
            if tensor.limit.isdigit() or tensor.limit in sizes
        }
        return {**{name: Interval(low=0.0, high=float(max(0, size))) for name, size in limits.items()}, **self.ranges}


class Tier(str, Enum):
    """Size of a check; each tier includes those before it."""

    # One or two calls of each operator.
    SMOKE = "smoke"
    # Calls that every backend has to compute correctly; minutes on a CPU.
    PARITY = "parity"
    # In addition long reductions, large tensors and all combinations.
    FULL = "full"


TIERS = tuple(Tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call of an operator in ``optest check``.

    ``case`` has the fields of a case in a plan except ``op``: ``shapes``, ``dtypes``, ``attributes``, ``generator``,
    ``expects_error`` and so on. ``case_set`` names the property that it tests, ``tier`` the smallest tier that runs it.
    """

    case_set: str
    case: Mapping[str, Any]
    tier: Tier = Tier.PARITY


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDescriptor:
    """Static description of one operator. Functions may be passed themselves or by their import path.

    Attributes:
        name: canonical name; ``aliases`` are other accepted names.
        alias_tensors: by alias, a signature whose tensor names a plan may use with that alias.
        signature: a :class:`Signature`, or its text: ``"input, other -> out"``; with dtypes and sizes,
            ``"x: T[rows, depth], index: index(rows)[count] -> T[count, depth]"``, it also provides ``infer``, the
            ranges of indices, and the cases of ``optest check``.
        attributes: attributes that a case may set; any other attribute is an error.
        open_attributes: accept undeclared attributes, without conversion.
        dtype_variants: the supported combinations of input dtypes; a tuple of one applies to all inputs, or, if the
            signature declares dtypes, to those of a capital letter. Empty: all dtypes are supported.
        infer: function ``(input specs, attributes) -> output specs``; raises :class:`UnfitArguments`. Without it,
            output specs come from the plan or the reference.
        reference: function ``(inputs, attributes) -> outputs``, float64 and unrounded.
        refused: function ``(inputs, attributes, expected error)``: raises a :class:`Fault` unless the reference
            rejects the call with that error. Without it only the backend is tested.
        terms: function ``(inputs, attributes) -> one Terms or ErrorBudget for each output``, or one Rule for a call
            that neither the operator's rule nor its terms apply to.
        operations: function ``(input specs, attributes) -> int | None``: conventional number of operations of one call
            (2·m·n·k for a product of matrices), for rates in benchmarks. None for operators that only move memory.
        sum_length: function ``(input specs, attributes) -> int``: number of terms in the longest sum of an output
            element, for fills that keep sums exact or finite.
        rule: the built-in rule. Without it integers and bool are compared exactly, and floats need a tolerance.
        domain: range of each input by name, for random fills; or, if it depends on shapes or attributes (as for
            indices), a function ``(input specs, attributes) -> such a mapping``.
        alternatives: function ``(inputs, attributes, actual outputs) -> one mask or None for each output``, True for an
            element that differs from the reference and is equally correct: the index of a tied maximum, the other side
            of a rounding step within the bound; or :class:`AsRight`.
        may_refuse: function ``(inputs, attributes) -> text``: the reason for which a backend may raise an exception for
            these values; "" if it may not.
        samples: function ``() -> Samples``: the calls of the operator in ``optest check``.
        signed_zeros: the sign of a zero result is defined and compared: by IEEE 754-2019 §6.3 for +, -, ×, /, sqrt and
            conversions, by §5.9 for rounding to whole numbers, by C Annex F.10 for functions. False for operators for
            which correct libraries differ (relu, maximum, sign, elu, sums of many terms).
        mutates: inputs that the operator changes on purpose.
        promotes: operands of several dtypes are converted to a common one, as in elementwise operators.
        invariants: invariants of every call, with or without a reference: ``repeat``, ``stateless``, ``batch``,
            ``permutation``; ``batch(x, y)`` if shape inference cannot determine which inputs hold the batch.
        generator: default generator in any form that a plan accepts: a fill's name, an import path, or a mapping
            such as ``{"fill": "uniform", "low": 84.0, "high": 92.0}``.
        composition: for a layer: function ``(calls, inputs, attributes) -> outputs`` that computes it by calls such as
            ``calls("linear", tensor, weight, None)``, see ``operators/composition.py``. A backend without the layer
            runs its ``parts``, the operators that may be called; ``a|b`` means one of the two.
    """

    name: str
    category: str = "custom"
    signature: Signature | str = "input0 -> out"
    aliases: tuple[str, ...] = ()
    alias_tensors: Mapping[str, str] = field(default_factory=dict)
    attributes: tuple[Attribute, ...] = ()
    open_attributes: bool = False
    dtype_variants: tuple[tuple[str, ...], ...] = ()
    infer: str | Infer | None = None
    reference: str | Hook | None = None
    reference_rejects: str | Callable[..., None] | None = None
    terms: str | Hook | None = None
    sum_length: str | SumLength | None = None
    operations: str | Operations | None = None
    rule: Rule | None = None
    domain: Mapping[str, Interval] | str | Domain = field(default_factory=dict)
    alternatives: str | Alternatives | None = None
    may_refuse: str | Callable[[Sequence[Any], Mapping[str, Any]], str] | None = None
    samples: str | Callable[[], Iterable[Sample]] | None = None
    signed_zeros: bool = False
    mutates: tuple[str, ...] = ()
    promotes: bool = False
    invariants: tuple[str, ...] = ()
    generator: str | Mapping[str, Any] | None = None
    composition: str | Callable[..., Sequence[Any]] | None = None
    parts: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.signature, str):
            object.__setattr__(self, "signature", Signature.parse(self.signature))
        variants = tuple(tuple(dtype(name).name for name in variant) for variant in self.dtype_variants)
        object.__setattr__(self, "dtype_variants", variants)
        if self.tensors.declaration:
            self._follow_declaration()
        if self.invariants:
            read_invariants(self.invariants, self.tensors)

    def _follow_declaration(self) -> None:
        """Set inference, ranges, generator of offsets and combinations of dtypes from the declared signature.

        Raises:
            ValueError: for a declaration that cannot be parsed, or a limit that is no size.
            UnknownName: for a dtype that does not exist.
        """
        inputs, outputs = read_declaration(self.tensors.declaration)
        # `dataclasses.replace` passes the hooks of an earlier declaration
        earlier = getattr(self.domain, "__self__", None)
        ranges = earlier.ranges if isinstance(earlier, _Declared) else self.domain
        hooks = _Declared(self.tensors, self.attributes, ranges if isinstance(ranges, Mapping) else {})
        if outputs and (self.infer is None or isinstance(getattr(self.infer, "__self__", None), _Declared)):
            object.__setattr__(self, "infer", hooks.infer)
        sizes = {size.name for x in inputs for size in x.sizes} | {attribute.name for attribute in self.attributes}
        if wrong := next((x for x in inputs if not (x.limit in {*sizes, ""} or x.limit.isdigit())), None):
            known = ", ".join(sorted(sizes))
            raise ValueError(f"the limit of {wrong.name} is {wrong.limit}, expected a number or one of {known}")
        if isinstance(ranges, Mapping) and any(tensor.limit for tensor in inputs):
            object.__setattr__(self, "domain", hooks.domain)
        if self.generator is None and (offsets := [tensor.name for tensor in inputs if tensor.kind == OFFSETS]):
            # valid offsets: sequences of one element each
            object.__setattr__(self, "generator", dict.fromkeys(offsets, "arange"))
        object.__setattr__(self, "dtype_variants", self._combine_dtypes(inputs))

    def _combine_dtypes(self, inputs: Sequence[DeclaredTensor]) -> tuple[tuple[str, ...], ...]:
        """Return the dtype combinations of declared inputs, for each variant, with and without optional inputs.

        Indices are int64 or int32, and ``T|float32`` is T or, for 16-bit T, float32.
        """

        def dtype_name(tensor: DeclaredTensor, name: str, index: str, is_wide: bool) -> str:
            if tensor.kind in ("index", OFFSETS):
                return index
            if tensor.kind and not tensor.kind.isupper():
                return dtype(tensor.kind).name
            return tensor.wide if is_wide and tensor.wide and dtype(name).bits == 16 else name

        rows = [
            tuple(dtype_name(tensor, *variant, index, is_wide) for tensor in inputs) if len(variant) == 1 else variant
            for variant in self.dtype_variants or _FLOATS
            for index in ("int64", "int32")
            for is_wide in (False, True)
        ]
        # rows for all inputs come first: a dtype is looked up by the index of its input
        masks = list(product(*((True, False) if tensor.is_optional else (True,) for tensor in inputs)))
        masked_rows = [tuple(compress(row, mask)) for mask in masks for row in rows if len(row) == len(inputs)]
        return tuple(dict.fromkeys([*masked_rows, *rows]))

    @property
    def tensors(self) -> Signature:
        assert isinstance(self.signature, Signature)
        return self.signature

    @property
    def test_name(self) -> str:
        """Name of its test in a suite: ``softmax_matches_torch``, for layers ``torch_…_matches_torch``."""
        return f"{'torch_' if self.parts else ''}{self.name}_matches_torch"

    def tensors_under(self, name: str) -> Signature | None:
        """Return the signature that belongs to the alias ``name``, or None if it uses the operator's signature."""
        return Signature.parse(self.alias_tensors[name]) if name in self.alias_tensors else None

    @property
    def is_promoting(self) -> bool:
        """True if operands of different dtypes are converted to a common one, that of the tensors with dimensions."""
        return self.promotes or self.category in ("comparison", "elementwise")

    @property
    def is_random(self) -> bool:
        """True if results are random: the operator has the tag ``random``."""
        return "random" in self.tags

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
        """Return all attributes with their values or defaults, in declared order; undeclared ones come last.

        Raises:
            UnfitArguments: for a wrong type, a value outside the choices, an attribute set twice, or a missing required
                one.
            UnknownName: for an attribute that the operator does not have.
        """
        values: dict[str, Any] = {}
        for name, value in stated.items():
            if self.open_attributes and all(name != a.name and name not in a.aliases for a in self.attributes):
                values[name] = value
                continue
            attribute = self.attribute(name)
            if attribute.name in values:
                names = [key for key in stated if key in (attribute.name, *attribute.aliases)]
                also = next(key for key in names if key != attribute.name)
                raise UnfitArguments(f"attribute {attribute.name} is set twice, also as {also}")
            values[attribute.name] = attribute.read(value)
        missing = [a.name for a in self.attributes if a.is_required and a.name not in values]
        if missing:
            raise UnfitArguments(f"{self.name} needs the attribute {', '.join(missing)}")
        declared = {a.name: values.pop(a.name, a.default) for a in self.attributes}
        return {**declared, **values}

    def supports(self, dtypes: Sequence[str]) -> bool:
        """Return whether the operator supports inputs of these dtypes, in order."""
        if not self.dtype_variants:
            return True
        return any(
            tuple(dtypes) == variant or (len(variant) == 1 and all(name == variant[0] for name in dtypes))
            for variant in self.dtype_variants
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call of an operator by its canonical name; attributes that are missing have its defaults."""

    operator: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


Meaning: TypeAlias = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any]], Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """An operator's name in another library, with that library's attributes and defaults.

    If only names differ, an alias is enough; a spelling is for other defaults (ONNX keeps reduced dimensions), other
    forms (padding as beginnings and ends), another order of the inputs, or one name for several operators (Conv).

    Attributes:
        operators: canonical names of the operators that it may mean, the most usual first.
        signature: tensors in the library's order: ``"X, W, B? -> Y"``.
        attributes: attributes of the library; a plan may set no others.
        meaning: function ``(input specs, attributes) -> Call``; raises :class:`UnfitArguments` for a call that none of
            the operators can do.
        inputs: for each input of the operator the index in this spelling; empty if the order is the same.
        description: meaning and unsupported parts, for the documentation.
    """

    name: str
    operators: tuple[str, ...]
    signature: str
    meaning: Meaning
    attributes: tuple[Attribute, ...] = ()
    inputs: tuple[int, ...] = ()
    description: str = ""

    @property
    def tensors(self) -> Signature:
        return Signature.parse(self.signature)

    def place_of(self, index: int) -> int:
        """Return the index in this spelling of the operator's input ``index``."""
        return self.inputs[index] if index < len(self.inputs) else index

    def in_order(self, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
        """Reorder inputs from the spelling's order to the operator's."""
        return [inputs[self.place_of(index)] for index in range(len(inputs))]

"""What an operator is: its tensors, attributes, legal inputs, reference, the class of its rule, and its samples.

Samples are the calls by which it is checked when nobody has written a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress, product
from typing import Any

from optest.errors import UnknownName
from optest.spec.declared_shapes import OFFSETS, DeclaredTensor, fitted, read_declaration
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
    """The closed range from which random inputs are drawn; ``avoid`` keeps |x| at least that far from 0."""

    low: float = float("-inf")
    high: float = float("inf")
    avoid: float = 0.0


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
        sizes = {each.name for each in self.attributes if each.is_size}
        known = {name: value for name, value in attributes.items() if name in sizes and value is not None}
        return fitted(specs, self.signature.declaration, **known)

    def infer(self, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> Sequence[TensorSpec]:
        return self._fitted(specs, attributes)[1]

    def domain(self, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> Mapping[str, Interval]:
        sizes = vars(self._fitted(specs, attributes)[0])
        limits = {
            each.name: (int(each.limit) if each.limit.isdigit() else sizes[each.limit]) - (each.kind != OFFSETS)
            for each in read_declaration(self.signature.declaration)[0]
            if each.limit.isdigit() or each.limit in sizes  # unless only an omitted input has it
        }
        return {**{name: Interval(low=0.0, high=float(max(0, size))) for name, size in limits.items()}, **self.ranges}


class Tier(str, Enum):
    """How much a check asks: each tier includes those before it."""

    SMOKE = "smoke"
    """A call or two of each operator: is anything there at all?"""
    PARITY = "parity"
    """What every backend has to get right, in minutes on a CPU."""
    FULL = "full"
    """Long reductions, large tensors, every combination."""


TIERS = tuple(Tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call of an operator.

    ``case`` is a case as a plan states it, without ``op``: ``shapes``, ``dtypes``, ``attributes``, ``generator``,
    ``expects_error`` and so on. ``case_set`` says what the call is there to find out, ``tier`` when it is asked.
    """

    case_set: str
    case: Mapping[str, Any]
    tier: Tier = Tier.PARITY


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDescriptor:
    """Everything static about one operator.

    Attributes:
        name: canonical name; ``aliases`` are accepted wherever it is.
        alias_tensors: by alias, the signature under which a plan that uses it may name the tensors, too.
        signature: a :class:`Signature`, or its text: ``"input, other -> out"``; with dtypes and sizes,
            ``"x: T[rows, depth], index: index(rows)[count] -> T[count, depth]"``, it also gives ``infer``, the ranges
            of indices, and the cases of ``optest check``.
        attributes: what a case may state beside its tensors; any other attribute is an error.
        open_attributes: accept attributes that are not declared, as they are written.
        dtype_variants: the input dtypes that are defined, a tuple for each combination; a tuple of one
            stands for all inputs alike, or for those of a capital if the signature declares dtypes; none at all admits
            every dtype.
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
        samples: dotted path or function ``() -> Samples``: the calls that ``optest check`` makes of the operator.
        signed_zeros: the sign of a result that is zero is defined, and part of the result: by IEEE 754-2019 §6.3 for
            +, -, ×, /, sqrt and conversions, by §5.9 for rounding to whole numbers, by C Annex F.10 for functions. An
            operator whose correct libraries differ there (relu, maximum, sign, elu, sums of many terms) defines none.
        mutates: inputs that the operator changes on purpose.
        promotes: operands of several dtypes meet in a common one, as those of elementwise operators do.
        invariants: what every call keeps, with or without a reference: ``repeat``, ``stateless``, ``batch``,
            ``permutation``; ``batch(x, y)`` where inference does not tell which inputs hold the batch.
        generator: default generator in any form that a plan takes: a fill's name, a dotted path, or a mapping
            such as ``{"fill": "uniform", "low": 84.0, "high": 92.0}``.
        composition: of a layer: dotted path or function ``(calls, inputs, attributes) -> outputs`` that computes it by
            ``calls("linear", tensor, weight, None)``, see ``operators/composition.py``. A backend that does not have
            the layer itself is asked for its ``parts``, the operators that may be called, ``a|b`` for one of both.
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
    refused: str | Callable[..., None] | None = None
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
        """Fill in inference, ranges and combinations of dtypes from the signature.

        Raises:
            ValueError: for a declaration that cannot be read.
            UnknownName: for a dtype that does not exist.
        """
        inputs, outputs = read_declaration(self.tensors.declaration)
        # `dataclasses.replace` hands over the hooks of an earlier declaration
        earlier = getattr(self.domain, "__self__", None)
        ranges = earlier.ranges if isinstance(earlier, _Declared) else self.domain
        hooks = _Declared(self.tensors, self.attributes, ranges if isinstance(ranges, Mapping) else {})
        if outputs and (self.infer is None or isinstance(getattr(self.infer, "__self__", None), _Declared)):
            object.__setattr__(self, "infer", hooks.infer)
        sizes = {size.name for each in inputs for size in each.sizes} | {each.name for each in self.attributes}
        if wrong := next((each for each in inputs if not (each.limit in {*sizes, ""} or each.limit.isdigit())), None):
            raise ValueError(
                f"{wrong.name} is below {wrong.limit}, expected a number or one of {', '.join(sorted(sizes))}"
            )
        if isinstance(ranges, Mapping) and any(each.limit for each in inputs):
            object.__setattr__(self, "domain", hooks.domain)
        if self.generator is None and (offsets := [each.name for each in inputs if each.kind == OFFSETS]):
            object.__setattr__(self, "generator", dict.fromkeys(offsets, "arange"))  # sequences of one element

        def named(tensor: DeclaredTensor, name: str, index: str, is_wide: bool) -> str:
            if tensor.kind in ("index", OFFSETS):
                return index
            if tensor.kind and not tensor.kind.isupper():
                return dtype(tensor.kind).name
            return tensor.wide if is_wide and tensor.wide and dtype(name).bits == 16 else name

        rows = [
            tuple(named(each, *variant, index, is_wide) for each in inputs) if len(variant) == 1 else variant
            for variant in self.dtype_variants or _FLOATS
            for index in ("int64", "int32")
            for is_wide in (False, True)
        ]
        # rows for all inputs come first: a dtype is looked up by the index of its input
        masks = list(product(*((True, False) if each.is_optional else (True,) for each in inputs)))
        several = [tuple(compress(row, mask)) for mask in masks for row in rows if len(row) == len(inputs)]
        object.__setattr__(self, "dtype_variants", tuple(dict.fromkeys([*several, *rows])))

    @property
    def tensors(self) -> Signature:
        assert isinstance(self.signature, Signature)
        return self.signature

    @property
    def test_name(self) -> str:
        """What the test of it is called in a suite: ``softmax_matches_torch``, of layers ``torch_…_matches_torch``."""
        return f"{'torch_' if self.parts else ''}{self.name}_matches_torch"

    def tensors_under(self, name: str) -> Signature | None:
        """The tensors as they are called where the operator is called ``name``; None if that makes no difference."""
        return Signature.parse(self.alias_tensors[name]) if name in self.alias_tensors else None

    @property
    def is_promoting(self) -> bool:
        """Whether operands of several dtypes meet in a common one, which is that of the tensors with dimensions."""
        return self.promotes or self.category in ("comparison", "elementwise")

    @property
    def is_random(self) -> bool:
        """Whether results are drawn at random: it has the tag ``random``, and every call may have others."""
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

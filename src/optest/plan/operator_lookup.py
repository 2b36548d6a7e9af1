"""Operators under the names in plans and flags: the name, an alias, or the spelling of another library.

A case in a spelling (ONNX's ``Conv``) is read with that library's names, then converted to the operator's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from optest.errors import UnknownName
from optest.plan.problems import Ledger, Place
from optest.plan.values import GeneratorChoice, read_generator
from optest.registry import load_object
from optest.spec import Attribute, OperatorDescriptor, Signature, Spelling, TensorSpec, TestCase, UnfitArguments

DEFAULT_FILL = "randn"
_Specs = Sequence["TensorSpec | None"]
_Attributes = Mapping[str, Any]


class Operators(Protocol):
    """Part of the operator registry that plans need."""

    def get(self, name: str) -> OperatorDescriptor: ...

    def spelling(self, name: str) -> Spelling | None: ...

    def names(self) -> tuple[str, ...]: ...


def in_call_order(signature: Signature, by_index: Mapping[int, TensorSpec]) -> list[TensorSpec | None]:
    """Return the specs of the inputs in the order of the call, None for an omitted one."""
    count = max(by_index, default=-1) + 1
    if not signature.is_variadic:
        count = max(count, len(signature.inputs))
    return [by_index.get(index) for index in range(count)]


class KnownOperators:
    """Cache of the operators that plans and flags name."""

    def __init__(self, operators: Operators, ledger: Ledger) -> None:
        self._operators = operators
        self._ledger = ledger
        self._by_name: dict[str, KnownOperator | UnknownName] = {}

    def get(self, name: str, place: Place) -> KnownOperator | None:
        """Return the operator called ``name``; note a problem and return None for an unknown one."""
        if name not in self._by_name:
            try:
                self._by_name[name] = self._look_up(name)
            # Kept, because many cases may have the same wrong name.
            except UnknownName as error:
                self._by_name[name] = error
        operator = self._by_name[name]
        if isinstance(operator, UnknownName):
            self._ledger.unknown(place, operator)
            return None
        return operator

    def _look_up(self, name: str) -> KnownOperator:
        spelling = self._operators.spelling(name)
        if spelling is None:
            descriptor = self._operators.get(name)
            return KnownOperator.of(descriptor, alias_tensors=descriptor.tensors_under(name))
        spelled = SpelledOperator(spelling, self._operators.get)
        return KnownOperator.of(spelled.descriptor(), spelled)

    def operators(self) -> list[KnownOperator]:
        return [x for x in self._by_name.values() if not isinstance(x, UnknownName)]

    def all_known(self) -> bool:
        return len(self.operators()) == len(self._by_name)


@dataclass(slots=True)
class KnownOperator:
    """One operator, with cached data for building its cases."""

    descriptor: OperatorDescriptor
    infer: Callable[..., Sequence[TensorSpec]] | None
    # Canonical names by name and alias.
    attribute_names: dict[str, str]
    generator: GeneratorChoice
    required_inputs: int
    # The operators that its cases may become: itself, or the candidates of a spelling.
    meanings: frozenset[str]
    spelled: SpelledOperator | None = None
    # Tensor names that only the alias has under which the operator was looked up.
    alias_tensors: Signature | None = None
    _tensors: dict[str, tuple[str, int]] = field(default_factory=dict)
    _supported: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        descriptor: OperatorDescriptor,
        spelled: SpelledOperator | None = None,
        alias_tensors: Signature | None = None,
    ) -> KnownOperator:
        infer = load_object(descriptor.infer)
        names = {alias: x.name for x in descriptor.attributes for alias in (x.name, *x.aliases)}
        generator = read_generator(descriptor.generator or DEFAULT_FILL)
        meanings = frozenset((descriptor.name,) if spelled is None else spelled.spelling.operators)
        required = descriptor.tensors.required_inputs
        return cls(descriptor, infer, names, generator, required, meanings, spelled, alias_tensors)

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def id_head(self) -> str:
        """Beginning of the ids of its cases without a name; "" for a spelling, whose inputs decide the operator."""
        return f"{self.name}[" if self.spelled is None else ""

    def locate(self, name: str) -> tuple[str, int]:
        """Return side and index of a tensor, by the operator's or its alias's names; raise UnknownName."""
        if name not in self._tensors:
            self._tensors[name] = self._find_tensor(name)
        return self._tensors[name]

    def _find_tensor(self, name: str) -> tuple[str, int]:
        if self.spelled is not None:
            return self.spelled.locate(name)
        try:
            return self.descriptor.tensors.locate(name)
        except UnknownName:
            if self.alias_tensors is None:
                raise
        return self.alias_tensors.locate(name)

    def knows(self, name: str) -> bool:
        """Return whether the operator has a tensor of this name."""
        try:
            self.locate(name)
        except UnknownName:
            return False
        return True

    def supports(self, names: tuple[str, ...]) -> bool:
        """Return whether the operator supports these dtypes of its inputs."""
        if names not in self._supported:
            self._supported[names] = self.descriptor.supports(names)
        return self._supported[names]


class SpelledOperator:
    """A spelling and the operators that it may mean, looked up by `operator_of`."""

    def __init__(self, spelling: Spelling, operator_of: Callable[[str], OperatorDescriptor]) -> None:
        self.spelling = spelling
        self._operator_of = operator_of
        self._default = operator_of(spelling.operators[0])
        self._tensors = spelling.tensors

    def descriptor(self) -> OperatorDescriptor:
        """Return an operator with the spelling's tensors and attributes, only for reading and checking cases."""
        spelling = self.spelling
        return dataclasses.replace(
            self._default,
            name=spelling.name,
            signature=self._tensors,
            aliases=(),
            attributes=spelling.attributes,
            dtype_variants=tuple(self._in_spelled_order(variant) for variant in self._default.dtype_variants),
            # Outputs and sums depend on the operator that a call means, which follows from its inputs.
            infer=self._infer,
            sum_length=self._sum_length if self._default.sum_length is not None else None,
        )

    def locate(self, name: str) -> tuple[str, int]:
        """Return side and index of a tensor, by names of the spelling or of its first operator; raise UnknownName."""
        try:
            return self._tensors.locate(name)
        except UnknownName:
            if name not in self._default.tensors.tensor_names():
                raise
        side, index = self._default.tensors.locate(name)
        return (side, self.spelling.place_of(index)) if side == "input" else (side, index)

    def convert(self, case: TestCase) -> TestCase:
        """Return the case as one of the operator that its call means; raise UnfitArguments if no operator fits."""
        by_place = {self._tensors.locate(x.path)[1]: x for x in case.inputs}
        places = range(max(len(self._tensors.inputs), max(by_place, default=-1) + 1))
        specs = [by_place[place].spec if place in by_place else None for place in places]
        operator, attributes, _ = self._call(specs, case.attributes)
        inputs = tuple(
            dataclasses.replace(by_place[place], name=operator.tensors.input_name(index), path=f"input{index}")
            for index, place in enumerate(map(self.spelling.place_of, places))
            if place in by_place
        )
        origins = self._origins(case, operator, attributes, specs)
        return dataclasses.replace(case, descriptor=operator, inputs=inputs, attributes=attributes, origins=origins)

    def _origins(
        self, case: TestCase, operator: OperatorDescriptor, converted: _Attributes, specs: _Specs
    ) -> dict[str, str]:
        """Return the origin of each value, by the operator's names."""
        name, prefix = self.spelling.name, "attributes."
        origins = {key: origin for key, origin in case.origins.items() if not key.startswith((prefix, "input"))}
        origins["op"] = f"{origins.get('op') or case.where or 'default'}, as {name}"
        for index in range(len(specs)):
            if (origin := case.origins.get(f"input{self.spelling.place_of(index)}.shape")) is not None:
                origins[f"input{index}.shape"] = origin
        written = {x.name: case.origins.get(prefix + x.name) for x in self.spelling.attributes}
        # An attribute of the spelling has caused a value that changes without it.
        without = {key: self._without(key, case, specs) for key, origin in written.items() if origin is not None}
        for attribute in operator.attributes:
            causes = self._causes(attribute, converted[attribute.name], without)
            words = [f"{cause} of {name}, {written[cause]}" for cause in causes]
            origins[prefix + attribute.name] = "; ".join(words) or f"default of {name}"
        return origins

    def _causes(self, attribute: Attribute, value: Any, without: Mapping[str, _Attributes]) -> list[str]:
        """Return the spelling's attributes of the same name, else those without which the operator's value differs."""
        names = {attribute.name, *attribute.aliases}
        alike = [
            x.name for x in self.spelling.attributes if x.name in without and not names.isdisjoint((x.name, *x.aliases))
        ]
        default = attribute.default
        return alike or [key for key, others in without.items() if others.get(attribute.name, default) != value]

    def _without(self, name: str, case: TestCase, specs: _Specs) -> dict[str, Any]:
        """Return the operator's attributes if `name` of the spelling had its default; {} if that is not possible."""
        attribute = next(x for x in self.spelling.attributes if x.name == name)
        if attribute.is_required:
            return {}
        try:
            return self._call(specs, {**case.attributes, name: attribute.default})[1]
        except UnfitArguments:
            return {}

    def _call(
        self, specs: _Specs, attributes: _Attributes
    ) -> tuple[OperatorDescriptor, dict[str, Any], list[TensorSpec | None]]:
        """Return the operator that the call means, its attributes, and the specs in its order."""
        call = self.spelling.meaning(specs, attributes)
        operator = self._operator_of(call.operator)
        return operator, operator.bind(call.attributes), self.spelling.in_order(specs)

    def _infer(self, specs: _Specs, attributes: _Attributes) -> Sequence[TensorSpec]:
        """Return the output specs of the operator that the call means; an error names that operator."""
        operator, operator_attributes, operator_specs = self._call(specs, attributes)
        infer = load_object(operator.infer)
        assert infer is not None
        try:
            outputs: Sequence[TensorSpec] = infer(operator_specs, operator_attributes)
        except UnfitArguments as error:
            raise UnfitArguments(f"as {operator.name}: {error}") from error
        return outputs

    def _sum_length(self, specs: _Specs, attributes: _Attributes) -> int:
        operator, operator_attributes, operator_specs = self._call(specs, attributes)
        hook = load_object(operator.sum_length)
        length: int = 1 if hook is None else hook(operator_specs, operator_attributes)
        return length

    def _in_spelled_order(self, variant: tuple[str, ...]) -> tuple[str, ...]:
        """Return a dtype variant in the spelling's input order; a variant of one dtype is for all inputs."""
        if len(variant) == 1 or not self.spelling.inputs:
            return variant
        by_place = {self.spelling.place_of(index): name for index, name in enumerate(variant)}
        return tuple(by_place[place] for place in sorted(by_place))

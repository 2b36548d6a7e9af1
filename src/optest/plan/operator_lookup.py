"""Operators as plans and flags name them: by name, by alias, or as another library spells them.

A case of a spelling (ONNX's ``Conv``) is read in that library's words, then said in the operator's own.
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
    """What is needed of the operator registry."""

    def get(self, name: str) -> OperatorDescriptor: ...

    def spelling(self, name: str) -> Spelling | None: ...

    def names(self) -> tuple[str, ...]: ...


def at_their_places(signature: Signature, by_index: Mapping[int, TensorSpec]) -> list[TensorSpec | None]:
    """The specs of the inputs in the order of the call, None for one that is left out."""
    count = max(by_index, default=-1) + 1
    if not signature.is_variadic:
        count = max(count, len(signature.inputs))
    return [by_index.get(index) for index in range(count)]


class KnownOperators:
    """The operators of plans and flags, each looked up once."""

    def __init__(self, operators: Operators, ledger: Ledger) -> None:
        self._operators = operators
        self._ledger = ledger
        self._by_name: dict[str, KnownOperator | UnknownName] = {}

    def get(self, name: str, place: Place) -> KnownOperator | None:
        """The operator called ``name``; an unknown one goes into the ledger."""
        if name not in self._by_name:
            try:
                self._by_name[name] = self._known(name)
            except UnknownName as error:
                self._by_name[name] = error
        operator = self._by_name[name]
        if isinstance(operator, UnknownName):
            self._ledger.unknown(place, operator)
            return None
        return operator

    def _known(self, name: str) -> KnownOperator:
        spelling = self._operators.spelling(name)
        if spelling is None:
            descriptor = self._operators.get(name)
            return KnownOperator.of(descriptor, alias_tensors=descriptor.tensors_under(name))
        spelled = SpelledOperator(spelling, self._operators.get)
        return KnownOperator.of(spelled.descriptor(), spelled)

    def operators(self) -> list[KnownOperator]:
        return [each for each in self._by_name.values() if not isinstance(each, UnknownName)]

    def all_known(self) -> bool:
        return len(self.operators()) == len(self._by_name)


@dataclass(slots=True)
class KnownOperator:
    """What building needs to know of one operator again and again."""

    descriptor: OperatorDescriptor
    infer: Callable[..., Sequence[TensorSpec]] | None
    attribute_names: dict[str, str]
    """Canonical name by name and alias."""
    generator: GeneratorChoice
    required_inputs: int
    meanings: frozenset[str]
    """The operators that its cases are of: itself, or those that a spelling may stand for."""
    spelled: SpelledOperator | None = None
    alias_tensors: Signature | None = None
    """Its tensors as they are called where it is called by an alias."""
    _tensors: dict[str, tuple[str, int]] = field(default_factory=dict)
    _admitted: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        descriptor: OperatorDescriptor,
        spelled: SpelledOperator | None = None,
        alias_tensors: Signature | None = None,
    ) -> KnownOperator:
        infer = load_object(descriptor.infer)
        names = {alias: each.name for each in descriptor.attributes for alias in (each.name, *each.aliases)}
        generator = read_generator(descriptor.generator or DEFAULT_FILL)
        meanings = frozenset((descriptor.name,) if spelled is None else spelled.spelling.operators)
        required = descriptor.tensors.required_inputs
        return cls(descriptor, infer, names, generator, required, meanings, spelled, alias_tensors)

    @property
    def name(self) -> str:
        return self.descriptor.name

    def locate(self, name: str) -> tuple[str, int]:
        """As :meth:`Signature.locate`, remembered."""
        found = self._tensors.get(name)
        if found is None:
            found = self._tensors[name] = self._located(name)
        return found

    def _located(self, name: str) -> tuple[str, int]:
        if self.spelled is not None:
            return self.spelled.locate(name)
        try:
            return self.descriptor.tensors.locate(name)
        except UnknownName:
            if self.alias_tensors is None:
                raise
        return self.alias_tensors.locate(name)

    def knows(self, name: str) -> bool:
        """Whether the operator has a tensor of this name."""
        try:
            self.locate(name)
        except UnknownName:
            return False
        return True

    def admits(self, names: tuple[str, ...]) -> bool:
        found = self._admitted.get(names)
        if found is None:
            found = self._admitted[names] = self.descriptor.admits(names)
        return found


class SpelledOperator:
    """A spelling and the operators that it may stand for; ``operator_of`` finds them by name."""

    def __init__(self, spelling: Spelling, operator_of: Callable[[str], OperatorDescriptor]) -> None:
        self.spelling = spelling
        self._operator_of = operator_of
        self._usual = operator_of(spelling.operators[0])
        self._tensors = spelling.tensors

    def descriptor(self) -> OperatorDescriptor:
        """An operator that takes tensors and attributes as they are spelled; no case is of it in the end."""
        spelling = self.spelling
        return dataclasses.replace(
            self._usual,
            name=spelling.name,
            signature=self._tensors,
            aliases=(),
            attributes=spelling.attributes,
            dtype_variants=tuple(self._as_spelled(variant) for variant in self._usual.dtype_variants),
            infer=self._infer,
            sum_length=self._sum_length if self._usual.sum_length is not None else None,
        )

    def locate(self, name: str) -> tuple[str, int]:
        """Side and place of a tensor under its name here, or under that of the usual operator.

        Raises:
            UnknownName: if neither has such a tensor; the names of the spelling are told.
        """
        try:
            return self._tensors.locate(name)
        except UnknownName:
            if name not in self._usual.tensors.tensor_names():
                raise
        side, index = self._usual.tensors.locate(name)
        return (side, self.spelling.place_of(index)) if side == "input" else (side, index)

    def in_own_words(self, case: TestCase) -> TestCase:
        """The case as one of the operator that it stands for.

        Raises:
            UnfitArguments: if none of the operators can do what the case asks for.
        """
        by_place = {self._tensors.locate(each.path)[1]: each for each in case.inputs}
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
        self, case: TestCase, operator: OperatorDescriptor, made: _Attributes, specs: _Specs
    ) -> dict[str, str]:
        """Where the values were written, under the operator's names for them."""
        name, prefix = self.spelling.name, "attributes."
        own = {key: origin for key, origin in case.origins.items() if not key.startswith((prefix, "input"))}
        own["op"] = f"{own.get('op') or case.where or 'default'}, as {name}"
        for index in range(len(specs)):
            if (origin := case.origins.get(f"input{self.spelling.place_of(index)}.shape")) is not None:
                own[f"input{index}.shape"] = origin
        stated = {each.name: case.origins.get(prefix + each.name) for each in self.spelling.attributes}
        told = [each for each, origin in stated.items() if origin is not None]
        without = {each: self._without(each, case, specs) for each in told}
        for attribute in operator.attributes:
            causes = self._causes(attribute, made[attribute.name], without)
            words = [f"{each} of {name}, {stated[each]}" for each in causes]
            own[prefix + attribute.name] = "; ".join(words) or f"default of {name}"
        return own

    def _causes(self, own: Attribute, made: Any, without: Mapping[str, _Attributes]) -> list[str]:
        """The stated attributes that make one of the operator's: those of its name, or without which it differs."""
        names = {own.name, *own.aliases}
        alike = [each for each in without if not names.isdisjoint(self._names_of(each))]
        return alike or [each for each, others in without.items() if others.get(own.name, own.default) != made]

    def _without(self, name: str, case: TestCase, specs: _Specs) -> dict[str, Any]:
        """The operator's attributes if one of the spelling's had its default; none where it has none or is needed."""
        attribute = next(each for each in self.spelling.attributes if each.name == name)
        if attribute.is_required:
            return {}
        try:
            return self._call(specs, {**case.attributes, name: attribute.default})[1]
        except UnfitArguments:
            return {}

    def _names_of(self, name: str) -> tuple[str, ...]:
        return next((each.name, *each.aliases) for each in self.spelling.attributes if each.name == name)

    def _call(
        self, specs: _Specs, attributes: _Attributes
    ) -> tuple[OperatorDescriptor, dict[str, Any], list[TensorSpec | None]]:
        call = self.spelling.meaning(specs, attributes)
        operator = self._operator_of(call.operator)
        return operator, operator.bind(call.attributes), self.spelling.in_order(specs)

    def _infer(self, specs: _Specs, attributes: _Attributes) -> Sequence[TensorSpec]:
        """What is wrong in the words of the operator says which operator that is."""
        operator, own_attributes, own_specs = self._call(specs, attributes)
        infer = load_object(operator.infer)
        assert infer is not None
        try:
            outputs: Sequence[TensorSpec] = infer(own_specs, own_attributes)
        except UnfitArguments as error:
            raise UnfitArguments(f"as {operator.name}: {error}") from error
        return outputs

    def _sum_length(self, specs: _Specs, attributes: _Attributes) -> int:
        operator, own_attributes, own_specs = self._call(specs, attributes)
        hook = load_object(operator.sum_length)
        length: int = 1 if hook is None else hook(own_specs, own_attributes)
        return length

    def _as_spelled(self, variant: tuple[str, ...]) -> tuple[str, ...]:
        """A row of dtypes in the spelling's order; a row of one stands for all inputs."""
        if len(variant) == 1 or not self.spelling.inputs:
            return variant
        by_place = {self.spelling.place_of(index): name for index, name in enumerate(variant)}
        return tuple(by_place[place] for place in sorted(by_place))

"""One case as it is stated, layer by layer, and the ledger of what is wrong with the statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from optest.errors import PlanError, Problem, UnknownName, listed_names
from optest.plan.forms import GeneratorChoice, read_generator
from optest.plan.products import Product, Rows
from optest.plan.request import COMMAND_LINE, CaseRequest
from optest.plan.source import Path, Source, all_at_once, format_path
from optest.plan.spelled import SpelledOperator
from optest.registry import load_object
from optest.spec import OperatorDescriptor, Signature, Spelling, TensorSpec

__all__ = [
    "COMMAND_LINE",
    "DEFAULT_FILL",
    "Entry",
    "KnownOperator",
    "KnownOperators",
    "Ledger",
    "Operators",
    "Place",
    "Statement",
    "below",
]

DEFAULT_FILL = "randn"

Place: TypeAlias = "Path | str"
"""Where a value was written: a path in the plan, or a flag."""
Entry: TypeAlias = Mapping[str, Any]


def below(place: Place, key: str) -> Place:
    return place if isinstance(place, str) else (*place, key)


@dataclass(slots=True)
class Ledger:
    """Every problem found so far, each with its place in a plan or its flag."""

    source: Source | None = None
    """The lines of the plan that is looked at; None without a plan."""
    combination: tuple[Product, Rows] | None = None
    """What is looked at of a case with a product."""
    problems: dict[tuple[Any, ...], Problem] = field(default_factory=dict)
    """By what was written and what is said of it: flags, defaults and aliased values meet many cases."""
    said: int = 0
    """How often a problem was noted, those that were known already counted too."""

    @contextmanager
    def reading(self, source: Source | None, combination: tuple[Product, Rows] | None = None) -> Iterator[None]:
        """While inside, paths are those of this plan, and of this combination of one of its cases."""
        before = self.source, self.combination
        self.source, self.combination = source, combination
        try:
            yield
        finally:
            self.source, self.combination = before

    def problem(self, place: Place, message: str, hint: str = "") -> None:
        """Note a problem, once for each thing that was written."""
        self.said += 1
        if isinstance(place, str) or self.source is None:
            flag = place if isinstance(place, str) else ""
            found = Problem(message=message, file=COMMAND_LINE, path=flag, hint=hint)
            self.problems.setdefault((flag, message), found)
            return
        if self.combination is not None and place[:2] == self.combination[0].path:
            product, rows = self.combination
            place = product.place(rows, place)
            example = f"with {product.words(rows, range(len(rows)))}"
            hint = f"{hint}\n    {example}" if hint else example
        line, written = self.source.place_of(place)
        file = self.source.file
        found = Problem(message=message, file=file, line=line, path=format_path(place), hint=hint)
        self.problems.setdefault((file, written, message), found)

    def refuse(self, problems: Sequence[Problem] = (), files: Sequence[str] = ()) -> None:
        """Raise everything that was found, and ``problems`` with it, file by file in the order of their lines.

        Raises:
            PlanError: if there is any problem.
        """
        if problems or self.problems:
            raise PlanError(all_at_once((*problems, *self.problems.values()), files))

    def unknown(self, place: Place, error: UnknownName) -> None:
        near = f"did you mean {error.suggestion}? " if error.suggestion else ""
        known = f"known: {listed_names(error.known)}" if error.known else ""
        self.problem(place, f"unknown {error.kind} {error.name!r}", near + known)


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
        infer = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
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


@dataclass(slots=True)
class Statement:
    """What plan, defaults and command line state about one case; ``path`` is () for a case made of flags.

    ``doubtful`` are the keys that could not be read or turned out wrong: nothing is concluded from these any more.
    """

    operator: KnownOperator
    entry: Entry
    path: Path
    defaults: Entry
    request: CaseRequest
    ledger: Ledger
    doubtful: set[str] = field(default_factory=set)
    implied_dtypes: Mapping[str, str] = field(default_factory=dict)
    """Dtypes by tensor that the backend's options state; they serve where nobody states ``dtypes``."""

    def stated(self, key: str, option: Any, flag: str) -> tuple[Any, Place]:
        """The value of the highest layer that states ``key`` (None if none does) and where it was written."""
        if option is not None:
            return option, flag
        if key in self.entry:
            return self.entry[key], (*self.path, key)
        if key in self.defaults:
            return self.defaults[key], ("defaults", key)
        return None, self.place(key, flag)

    def place(self, key: str, flag: str) -> Place:
        return (*self.path, key) if self.path else flag

    def locate(self, name: str, place: Place) -> tuple[str, int] | None:
        """Side and index of a tensor; an unknown name goes into the ledger."""
        try:
            return self.operator.locate(name)
        except UnknownName as error:
            self.ledger.unknown(place, error)
            return None


class Operators(Protocol):
    """What is needed of the operator registry."""

    def get(self, name: str) -> OperatorDescriptor: ...

    def spelling(self, name: str) -> Spelling | None: ...

    def tensors_under(self, name: str) -> Signature | None: ...

    def names(self) -> tuple[str, ...]: ...


class KnownOperators:
    """The operators that were asked for, each looked up once."""

    def __init__(self, operators: Operators, ledger: Ledger) -> None:
        self._operators = operators
        self._ledger = ledger
        self._found: dict[str, KnownOperator | UnknownName] = {}

    def get(self, name: str, place: Place) -> KnownOperator | None:
        """The operator called ``name``; an unknown one goes into the ledger."""
        if name not in self._found:
            try:
                self._found[name] = self._known(name)
            except UnknownName as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, UnknownName):
            self._ledger.unknown(place, found)
            return None
        return found

    def _known(self, name: str) -> KnownOperator:
        spelling = self._operators.spelling(name)
        if spelling is None:
            return KnownOperator.of(self._operators.get(name), alias_tensors=self._operators.tensors_under(name))
        spelled = SpelledOperator(spelling, self._operators.get)
        return KnownOperator.of(spelled.descriptor(), spelled)

    def found(self) -> list[KnownOperator]:
        return [each for each in self._found.values() if not isinstance(each, UnknownName)]

    def all_known(self) -> bool:
        return len(self.found()) == len(self._found)
